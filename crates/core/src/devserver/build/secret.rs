//! The Secret of a server, written once: its host key, who may log in at first, its scripts.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use odc_api::v1alpha1::{DevServer, DevServerUser};

use super::{gang, metadata, secret_name};
use crate::devserver::validate::Valid;
use crate::object::{Kind, Object};

pub(super) const SETUP: &str = "setup.sh";
pub(super) const PRE_STOP: &str = "pre-stop.sh";

/// Freshly made key pairs, in OpenSSH's form.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    pub host_private: String,
    pub host_public: String,
    /// Shared by the nodes of a gang, to log in to each other.
    pub gang_private: String,
    pub gang_public: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("host_public", &self.host_public).finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(super) struct Scripts {
    pub setup: Option<String>,
    /// What `setup` goes on with, where the owner's script is not the whole of it.
    own: Option<String>,
    pub pre_stop: Option<String>,
}

/// Gets the repository into the home if it is not there. What the owner wrote stands in variables, never in the text.
const REPOSITORY: &str = r#"# The repository, if it is not there yet.
name=${ODC_REPOSITORY_URL##*[/:]}
name=${name%.git}
if [ -n "$name" ] && [ ! -e "$HOME/$name" ]; then
  git clone ${ODC_REPOSITORY_REF:+--branch "$ODC_REPOSITORY_REF"} -- "$ODC_REPOSITORY_URL" "$HOME/$name" ||
    { git clone -- "$ODC_REPOSITORY_URL" "$HOME/$name" && git -C "$HOME/$name" checkout "$ODC_REPOSITORY_REF" --; }
fi
"#;

pub(super) fn scripts(valid: &Valid<'_>) -> Scripts {
    let Some(setup) = &valid.server.spec.setup else { return Scripts::default() };
    let written = |script: &Option<String>| script.clone().filter(|script| !script.trim().is_empty());
    let (first, own) = match (&setup.repository, written(&setup.script)) {
        (None, own) => (own, None),
        (Some(_), None) => (Some(format!("#!/bin/sh\n{REPOSITORY}")), None),
        // The owner's script may be of any language, so it stays a file of its own.
        (Some(_), own) => (Some(format!("#!/bin/sh\n{REPOSITORY}exec /odc/keys/{OWN_SETUP}\n")), own),
    };
    Scripts { setup: first, own, pre_stop: written(&setup.pre_stop) }
}

const OWN_SETUP: &str = "own-setup.sh";

pub fn secret(valid: &Valid<'_>, keys: &Keys) -> Object {
    let mut data = BTreeMap::from([
        ("host_key".to_owned(), keys.host_private.clone()),
        ("host_key.pub".to_owned(), keys.host_public.clone()),
        (
            "authorized_keys".to_owned(),
            allowed_keys(valid.user, &valid.guests, valid.server).iter().map(|line| format!("{line}\n")).collect(),
        ),
    ]);
    if valid.nodes > 1 {
        data.insert("gang_key".into(), keys.gang_private.clone());
        data.insert("gang_key.pub".into(), keys.gang_public.clone());
        data.insert("hostfile".into(), gang::hostfile(valid));
    }
    let scripts = scripts(valid);
    let named = [(SETUP, scripts.setup), (OWN_SETUP, scripts.own), (PRE_STOP, scripts.pre_stop)];
    data.extend(named.into_iter().filter_map(|(name, script)| Some((name.to_owned(), script?))));
    let secret = Secret {
        metadata: metadata(valid, secret_name(valid.name.as_str())),
        string_data: Some(data),
        type_: Some("Opaque".into()),
        ..Secret::default()
    };
    Object::new(Kind::Secret, &secret)
}

/// As many keys as a Secret and a message to an agent can hold for certain.
const MOST_KEYS: usize = 500;

/// Of the owner, of those the server names itself, and of the users it names, in this order as many as fit. The agent is
/// told when they change.
pub fn allowed_keys(owner: &DevServerUser, guests: &[&DevServerUser], server: &DevServer) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let guests = guests.iter().flat_map(|guest| &guest.spec.keys);
    for key in owner.spec.keys.iter().chain(&server.spec.access.keys).chain(guests) {
        let line = key.line();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.truncate(MOST_KEYS);
    lines
}

#[cfg(test)]
mod tests {
    use odc_api::fixtures::KEY;
    use odc_api::v1alpha1::{Repository, Setup};

    use super::*;
    use crate::devserver::fixtures::{Request, keys};

    fn data(request: &Request) -> BTreeMap<String, String> {
        let object = request.valid(|valid| secret(valid, &keys(7)));
        assert_eq!((object.name.as_str(), object.namespace.as_deref()), ("server-1-keys", Some("dev-ada")));
        serde_json::from_value(object.body["stringData"].clone()).unwrap()
    }

    fn with_setup(script: Option<&str>, repository: bool, pre_stop: Option<&str>) -> BTreeMap<String, String> {
        let repository =
            repository.then(|| Repository { url: "https://git.example.org/a.git".into(), reference: None });
        let setup = Setup { script: script.map(Into::into), repository, pre_stop: pre_stop.map(Into::into) };
        data(&Request::test(|server| server.spec.setup = Some(Box::new(setup))))
    }

    #[test]
    fn it_goes_with_its_server() {
        let object = Request::of(DevServer::test()).valid(|valid| secret(valid, &keys(7)));
        let metadata = &object.body["metadata"];
        assert_eq!(metadata["ownerReferences"][0]["uid"], "uid-server-1");
        assert_eq!(metadata["ownerReferences"][0]["controller"], true);
        assert_eq!(object.body["type"], "Opaque");
    }

    #[test]
    fn a_single_server_has_a_host_key_and_who_may_log_in() {
        let data = data(&Request::of(DevServer::test()));
        assert_eq!(data.keys().collect::<Vec<_>>(), ["authorized_keys", "host_key", "host_key.pub"]);
        assert_eq!(
            (data["host_key"].as_str(), data["host_key.pub"].as_str()),
            ("host-private-7", "ssh-ed25519 host-7")
        );
    }

    #[test]
    fn a_key_named_twice_is_written_once() {
        let request = Request::test(|server| server.spec.access.keys = vec![KEY.parse().unwrap()]);
        assert_eq!(data(&request)["authorized_keys"].lines().count(), 1);
        let mut nobody = Request::of(DevServer::test());
        nobody.user.as_mut().unwrap().spec.keys.clear();
        assert_eq!(data(&nobody)["authorized_keys"], "");
    }

    #[test]
    fn a_gang_shares_a_key_and_a_host_file() {
        let data = data(&Request::of(DevServer::test().size("flavor-gpu", 4, 2).ephemeral("1Gi")));
        assert_eq!(data["gang_key"], "gang-private-7");
        assert_eq!(
            data["hostfile"],
            "server-1-0.server-1.dev-ada.svc slots=4\nserver-1-1.server-1.dev-ada.svc slots=4\n"
        );
    }

    #[test]
    fn scripts_are_what_the_owner_wrote() {
        assert_eq!(with_setup(Some("make all"), false, Some("sync"))["setup.sh"], "make all");
        assert_eq!(with_setup(None, false, Some("sync"))["pre-stop.sh"], "sync");
        let none = with_setup(Some("  \n"), false, Some(""));
        assert!(!none.contains_key("setup.sh") && !none.contains_key("pre-stop.sh"));
    }

    #[test]
    fn a_repository_comes_before_the_owners_script_and_its_address_is_no_code() {
        let data = with_setup(Some("make all"), true, None);
        assert!(data["setup.sh"].ends_with("exec /odc/keys/own-setup.sh\n"));
        assert!(!data["setup.sh"].contains("git.example.org"));
        assert_eq!(data["own-setup.sh"], "make all");
        let alone = with_setup(None, true, None);
        assert!(alone["setup.sh"].starts_with("#!/bin/sh\n") && !alone.contains_key("own-setup.sh"));
        let empty = with_setup(Some(" "), true, None);
        assert!(!empty["setup.sh"].contains("own-setup") && !empty.contains_key("own-setup.sh"));
    }

    #[test]
    fn keys_are_not_printed() {
        assert!(!format!("{:?}", keys(7)).contains("private"));
    }
}
