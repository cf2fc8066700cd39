//! The settings of `devctl config set`, by name.

use serde_json::Value;

use super::File;
use crate::error::{Error, Result};

/// A setting that can be changed individually.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub description: &'static str,
    /// The environment variable that overrides it.
    pub variable: Option<&'static str>,
}

pub const KEYS: &[Key] = &[
    Key { name: "context", description: "the current context", variable: Some("DEVCTL_CONTEXT") },
    Key {
        name: "output",
        description: "the output format: table, wide, json, yaml or name",
        variable: Some("DEVCTL_OUTPUT"),
    },
    Key { name: "create.flavor", description: "the flavor of new servers", variable: Some("DEVCTL_FLAVOR") },
    Key { name: "create.gpus", description: "the number of GPUs of new servers", variable: None },
    Key { name: "create.lifetime", description: "the lifetime of new servers", variable: Some("DEVCTL_LIFETIME") },
    Key { name: "create.image", description: "the image of new servers", variable: Some("DEVCTL_IMAGE") },
    Key {
        name: "create.disk",
        description: "the disk for the home directory, or none for an ephemeral home [default: home]",
        variable: Some("DEVCTL_DISK"),
    },
    Key {
        name: "create.diskSize",
        description: "the size of a new disk [default: 20Gi]",
        variable: Some("DEVCTL_DISK_SIZE"),
    },
    Key {
        name: "create.homeClaim",
        description: "an existing PVC for the home directory, instead of a disk",
        variable: Some("DEVCTL_HOME_CLAIM"),
    },
    Key { name: "create.homeSize", description: "the size of an ephemeral home, instead of a disk", variable: None },
    Key { name: "create.team", description: "the team whose quota is used", variable: Some("DEVCTL_TEAM") },
    Key { name: "create.jupyter", description: "whether new servers start JupyterLab", variable: None },
    Key { name: "ssh.identityFile", description: "the private SSH key", variable: Some("DEVCTL_IDENTITY") },
    Key { name: "ssh.forwardAgent", description: "whether to forward the SSH agent", variable: None },
    Key {
        name: "ssh.include",
        description: "whether to configure OpenSSH (`devctl config-ssh`); asked once",
        variable: None,
    },
];

/// Returns the value of a setting as text.
pub fn get(file: &File, key: &Key) -> Option<String> {
    let value = serde_json::to_value(file).ok()?;
    match value.pointer(&pointer(key.name))? {
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

pub fn set(file: &File, name: &str, value: &str) -> Result<File> {
    let key = find_key(name)?;
    // Try numbers and booleans first, then text: a flavor may be called 4090.
    let literal = serde_json::from_str::<Value>(value).ok().filter(|value| value.is_number() || value.is_boolean());
    let candidates = literal.into_iter().chain([Value::String(value.to_owned())]);
    let mut cause = String::new();
    for candidate in candidates {
        match with_value(file, key, Some(candidate)) {
            Ok(file) => return Ok(file),
            Err(error) => cause = error,
        }
    }
    Err(Error::usage(format!("invalid value {value:?} for {name}: {cause}"))
        .with_hint(format!("{name} is {}", key.description)))
}

pub fn unset(file: &File, name: &str) -> Result<File> {
    let key = find_key(name)?;
    with_value(file, key, None).map_err(Error::failed)
}

fn with_value(file: &File, key: &Key, value: Option<Value>) -> std::result::Result<File, String> {
    let mut root = serde_json::to_value(file).map_err(|error| error.to_string())?;
    let (parent, field) = key.name.rsplit_once('.').unwrap_or(("", key.name));
    let mut object = &mut root;
    for part in parent.split('.').filter(|part| !part.is_empty()) {
        object = &mut object[part];
    }
    match (value, object.as_object_mut()) {
        (Some(value), _) => object[field] = value,
        (None, Some(fields)) => {
            fields.remove(field);
        }
        // The section does not exist either.
        (None, None) => return Ok(file.clone()),
    }
    serde_json::from_value(root).map_err(|error| error.to_string())
}

fn find_key(name: &str) -> Result<&'static Key> {
    KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
        let nearest = crate::resolve::nearest(name, KEYS.iter().map(|key| key.name));
        let all = KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
        let hint = nearest.map_or_else(|| format!("choose one of {all}"), |nearest| format!("did you mean {nearest}?"));
        Error::usage(format!("unknown setting {name}")).with_hint(hint)
    })
}

fn pointer(name: &str) -> String {
    format!("/{}", name.replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_can_be_set_read_and_unset() {
        for key in KEYS {
            let value = match key.name {
                "output" => "wide",
                "create.gpus" => "4",
                "create.lifetime" => "2h",
                "create.homeSize" | "create.diskSize" => "5Gi",
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
    fn invalid_value_is_rejected_with_the_cause() {
        let error = set(&File::default(), "create.lifetime", "soon").unwrap_err();
        assert!(error.message.contains("soon"), "{error}");
        let error = set(&File::default(), "create.flavour", "gpu").unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("did you mean create.flavor?"));
    }

    #[test]
    fn flavor_name_may_be_a_number() {
        assert_eq!(set(&File::default(), "create.flavor", "4090").unwrap().create.flavor.as_deref(), Some("4090"));
    }
}
