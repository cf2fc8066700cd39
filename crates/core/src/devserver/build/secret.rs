//! The Secret of a server, written once: its host key, the initial authorized keys, and its scripts.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use odc_api::ssh_key::PublicKey;
use odc_api::v1alpha1::{DevServer, DevServerUser, DiskOperation};

use super::{gang_discovery, metadata, secret_name};
use crate::devserver::validate::Valid;
use crate::manifest::{Kind, Object};

pub(super) const SETUP: &str = "setup.sh";
pub(super) const PRE_STOP: &str = "pre-stop.sh";

pub(crate) const HOST_KEY: &str = "host_key";
pub const HOST_PUBLIC_KEY: &str = "host_key.pub";
/// Shared by the nodes of a gang for logins between them.
const GANG_KEY: &str = "gang_key";

#[derive(Default)]
pub(super) struct Scripts {
    pub setup: Option<String>,
    /// The owner's script, if `setup` is generated and calls it.
    own: Option<String>,
    pub pre_stop: Option<String>,
}

/// Clones the repository into the home if it does not exist. Input of the owner is passed in variables only.
const REPOSITORY: &str = r#"# Clone the repository unless it exists.
name=${ODC_REPOSITORY_URL##*[/:]}
name=${name%.git}
if [ -n "$name" ] && [ ! -e "$HOME/$name" ]; then
  git clone ${ODC_REPOSITORY_REF:+--branch "$ODC_REPOSITORY_REF"} -- "$ODC_REPOSITORY_URL" "$HOME/$name" ||
    { git clone -- "$ODC_REPOSITORY_URL" "$HOME/$name" && git -C "$HOME/$name" checkout "$ODC_REPOSITORY_REF" --; }
fi
"#;

pub(super) fn scripts(valid: &Valid<'_>) -> Scripts {
    let Some(setup) = &valid.server.spec.setup else { return Scripts::default() };
    let non_empty = |script: &Option<String>| script.clone().filter(|script| !script.trim().is_empty());
    let (first, own) = match (&setup.repository, non_empty(&setup.script)) {
        (None, own) => (own, None),
        (Some(_), None) => (Some(format!("#!/bin/sh\n{REPOSITORY}")), None),
        // The owner's script may be in any language, so it is a separate file.
        (Some(_), own) => (Some(format!("#!/bin/sh\n{REPOSITORY}exec /odc/keys/{OWN_SETUP}\n")), own),
    };
    Scripts { setup: first, own, pre_stop: non_empty(&setup.pre_stop) }
}

const OWN_SETUP: &str = "own-setup.sh";

/// Returns the names of the key pairs in the Secret.
pub fn key_names(valid: &Valid<'_>) -> &'static [&'static str] {
    if valid.nodes > 1 { &[HOST_KEY, GANG_KEY] } else { &[HOST_KEY] }
}

/// Returns the Secret without its key pairs, which are generated when it is created.
pub fn secret(valid: &Valid<'_>) -> Object {
    let mut data = BTreeMap::from([(
        "authorized_keys".to_owned(),
        authorized_keys(&allowed_keys(valid.user, &valid.guests, valid.server)),
    )]);
    if valid.nodes > 1 {
        data.insert("hostfile".into(), gang_discovery::hostfile(valid));
    }
    let scripts = scripts(valid);
    let named = [(SETUP, scripts.setup), (OWN_SETUP, scripts.own), (PRE_STOP, scripts.pre_stop)];
    data.extend(named.into_iter().filter_map(|(name, script)| Some((name.to_owned(), script?))));
    let secret = Secret {
        metadata: metadata(valid, secret_name(valid.name.as_str(), valid.uid)),
        string_data: Some(data),
        type_: Some("Opaque".into()),
        ..Secret::default()
    };
    Object::new(Kind::Secret, &secret)
}

/// Returns the content of an `authorized_keys` file.
pub(crate) fn authorized_keys(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Bounded so that the keys fit into a Secret and into a message to the agent.
const MAX_KEYS: usize = 500;

/// Returns the keys of the owner, of the spec, and of the users the server is shared with, in this order, at most
/// [`MAX_KEYS`]. Agents are reconfigured when they change.
pub fn allowed_keys(owner: &DevServerUser, guests: &[&DevServerUser], server: &DevServer) -> Vec<String> {
    let guests = guests.iter().flat_map(|guest| &guest.spec.keys);
    unique_lines(owner.spec.keys.iter().chain(&server.spec.access.keys).chain(guests))
}

/// Returns the keys of a user and of an operation on a disk, at most [`MAX_KEYS`].
pub(crate) fn operation_keys(owner: &DevServerUser, operation: &DiskOperation) -> Vec<String> {
    unique_lines(owner.spec.keys.iter().chain(operation.spec.keys()))
}

fn unique_lines<'a>(keys: impl Iterator<Item = &'a PublicKey>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for key in keys {
        let line = key.line();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.truncate(MAX_KEYS);
    lines
}

#[cfg(test)]
mod tests {
    use odc_api::fixtures::KEY;
    use odc_api::v1alpha1::{Repository, Setup};

    use super::*;
    use crate::devserver::fixtures::Request;

    fn data(request: &Request) -> BTreeMap<String, String> {
        let object = request.valid(secret);
        assert_eq!((object.name.as_str(), object.namespace.as_deref()), ("server-1-keys-uid-serv", Some("dev-ada")));
        serde_json::from_value(object.body["stringData"].clone()).unwrap()
    }

    fn with_setup(script: Option<&str>, repository: bool, pre_stop: Option<&str>) -> BTreeMap<String, String> {
        let repository =
            repository.then(|| Repository { url: "https://git.example.org/a.git".into(), reference: None });
        let setup = Setup {
            script: script.map(Into::into),
            repository,
            pre_stop: pre_stop.map(Into::into),
            recreate_env: false,
        };
        data(&Request::test(|server| server.spec.setup = Some(Box::new(setup))))
    }

    #[test]
    fn secret_is_owned_by_server() {
        let object = Request::new(DevServer::test()).valid(secret);
        let metadata = &object.body["metadata"];
        assert_eq!(metadata["ownerReferences"][0]["uid"], "uid-server-1");
        assert_eq!(metadata["ownerReferences"][0]["controller"], true);
        assert_eq!(object.body["type"], "Opaque");
    }

    #[test]
    fn secret_of_single_node_has_host_key_and_authorized_keys() {
        let request = Request::new(DevServer::test());
        assert_eq!(data(&request).keys().collect::<Vec<_>>(), ["authorized_keys"]);
        assert_eq!(request.valid(key_names), ["host_key"]);
        assert_eq!(HOST_PUBLIC_KEY, format!("{HOST_KEY}.pub"));
    }

    #[test]
    fn duplicate_key_is_written_once() {
        let request = Request::test(|server| server.spec.access.keys = vec![KEY.parse().unwrap()]);
        assert_eq!(data(&request)["authorized_keys"].lines().count(), 1);
        let mut without_keys = Request::new(DevServer::test());
        without_keys.user.as_mut().unwrap().spec.keys.clear();
        assert_eq!(data(&without_keys)["authorized_keys"], "");
    }

    #[test]
    fn secret_of_gang_has_shared_key_and_hostfile() {
        let request = Request::new(DevServer::test().size("flavor-gpu", 4, 2).ephemeral("1Gi"));
        assert_eq!(request.valid(key_names), ["host_key", "gang_key"]);
        assert_eq!(
            data(&request)["hostfile"],
            "server-1-0.server-1.dev-ada.svc slots=4\nserver-1-1.server-1.dev-ada.svc slots=4\n"
        );
    }

    #[test]
    fn scripts_of_spec_are_stored_verbatim() {
        assert_eq!(with_setup(Some("make all"), false, Some("sync"))["setup.sh"], "make all");
        assert_eq!(with_setup(None, false, Some("sync"))["pre-stop.sh"], "sync");
        let none = with_setup(Some("  \n"), false, Some(""));
        assert!(!none.contains_key("setup.sh") && !none.contains_key("pre-stop.sh"));
    }

    #[test]
    fn repository_is_cloned_before_setup_and_its_url_is_not_in_script() {
        let data = with_setup(Some("make all"), true, None);
        assert!(data["setup.sh"].ends_with("exec /odc/keys/own-setup.sh\n"));
        assert!(!data["setup.sh"].contains("git.example.org"));
        assert_eq!(data["own-setup.sh"], "make all");
        let alone = with_setup(None, true, None);
        assert!(alone["setup.sh"].starts_with("#!/bin/sh\n") && !alone.contains_key("own-setup.sh"));
        let empty = with_setup(Some(" "), true, None);
        assert!(!empty["setup.sh"].contains("own-setup") && !empty.contains_key("own-setup.sh"));
    }
}
