//! Settings by name: what `devctl config set` knows.

use serde_json::Value;

use super::File;
use crate::failure::{Failure, Result};

/// A setting that can be changed by itself.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub about: &'static str,
    /// The variable that wins over it.
    pub variable: Option<&'static str>,
}

pub const KEYS: &[Key] = &[
    Key { name: "context", about: "the context in use", variable: Some("DEVCTL_CONTEXT") },
    Key {
        name: "output",
        about: "how to print data: table, wide, json, yaml or name",
        variable: Some("DEVCTL_OUTPUT"),
    },
    Key { name: "create.flavor", about: "the flavor of new servers", variable: Some("DEVCTL_FLAVOR") },
    Key { name: "create.gpus", about: "how many GPUs they get", variable: None },
    Key { name: "create.lifetime", about: "how long they may run", variable: Some("DEVCTL_LIFETIME") },
    Key { name: "create.image", about: "their image", variable: Some("DEVCTL_IMAGE") },
    Key { name: "create.homeClaim", about: "the claim that is their home", variable: Some("DEVCTL_HOME_CLAIM") },
    Key { name: "create.homeSize", about: "the size of a home that goes with its server", variable: None },
    Key { name: "create.team", about: "the team whose quota they use", variable: Some("DEVCTL_TEAM") },
    Key { name: "create.jupyter", about: "whether they start Jupyter Lab", variable: None },
    Key { name: "ssh.identityFile", about: "the private key to log in with", variable: Some("DEVCTL_IDENTITY") },
    Key { name: "ssh.forwardAgent", about: "whether servers may use your key agent", variable: None },
    Key { name: "ssh.include", about: "whether ssh's own configuration knows servers; asked once", variable: None },
];

/// What a file says about a setting, as it would be typed.
pub fn get(file: &File, key: &Key) -> Option<String> {
    let value = serde_json::to_value(file).ok()?;
    match value.pointer(&pointer(key.name))? {
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

pub fn set(file: &File, name: &str, value: &str) -> Result<File> {
    let key = known(name)?;
    // Numbers and truth are written without quotes; whatever the field does not take is tried as text.
    let plain = serde_json::from_str::<Value>(value).ok().filter(|value| value.is_number() || value.is_boolean());
    let candidates = plain.into_iter().chain([Value::String(value.to_owned())]);
    let mut problem = String::new();
    for candidate in candidates {
        match changed(file, key, Some(candidate)) {
            Ok(file) => return Ok(file),
            Err(error) => problem = error,
        }
    }
    Err(Failure::usage(format!("{name} cannot be {value:?}: {problem}")).advise(format!("{name} is {}.", key.about)))
}

pub fn unset(file: &File, name: &str) -> Result<File> {
    let key = known(name)?;
    changed(file, key, None).map_err(Failure::failed)
}

fn changed(file: &File, key: &Key, value: Option<Value>) -> std::result::Result<File, String> {
    let mut all = serde_json::to_value(file).map_err(|error| error.to_string())?;
    let (parent, field) = key.name.rsplit_once('.').unwrap_or(("", key.name));
    let mut place = &mut all;
    for part in parent.split('.').filter(|part| !part.is_empty()) {
        place = &mut place[part];
    }
    match (value, place.as_object_mut()) {
        (Some(value), _) => place[field] = value,
        (None, Some(fields)) => {
            fields.remove(field);
        }
        // What it would be in is not there either.
        (None, None) => return Ok(file.clone()),
    }
    serde_json::from_value(all).map_err(|error| error.to_string())
}

fn known(name: &str) -> Result<&'static Key> {
    KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
        let near = crate::find::nearest(name, KEYS.iter().map(|key| key.name));
        let all = KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
        let advice = near.map_or_else(|| format!("There are {all}."), |near| format!("Did you mean {near}?"));
        Failure::usage(format!("there is no setting {name}")).advise(advice)
    })
}

fn pointer(name: &str) -> String {
    format!("/{}", name.replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_can_be_set_shown_and_taken_back() {
        for key in KEYS {
            let value = match key.name {
                "output" => "wide",
                "create.gpus" => "4",
                "create.lifetime" => "2h",
                "create.homeSize" => "5Gi",
                "create.jupyter" | "ssh.forwardAgent" | "ssh.include" => "true",
                _ => "word",
            };
            let set = set(&File::default(), key.name, value).unwrap();
            assert_eq!(get(&set, key).as_deref(), Some(value), "{}", key.name);
            assert_eq!(unset(&set, key.name).unwrap(), File::default(), "{}", key.name);
            assert_eq!(unset(&File::default(), key.name).unwrap(), File::default(), "{}", key.name);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let failure = set(&File::default(), "create.lifetime", "soon").unwrap_err();
        assert!(failure.message.contains("soon"), "{failure}");
        let failure = set(&File::default(), "create.flavour", "gpu").unwrap_err();
        assert_eq!(failure.advice.as_deref(), Some("Did you mean create.flavor?"));
    }

    /// A name that looks like a number stays one where a name is wanted.
    #[test]
    fn a_flavor_may_be_called_4090() {
        assert_eq!(set(&File::default(), "create.flavor", "4090").unwrap().create.flavor.as_deref(), Some("4090"));
    }
}
