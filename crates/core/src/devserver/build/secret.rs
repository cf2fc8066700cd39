//! The Secret of a server, written once: its host key, who may log in at first, its scripts.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;

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

pub(super) struct Scripts {
    pub setup: Option<String>,
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
    let Some(setup) = &valid.server.spec.setup else { return Scripts { setup: None, pre_stop: None } };
    let own = setup.script.as_deref().filter(|script| !script.trim().is_empty());
    let script = match (&setup.repository, own) {
        (None, None) => None,
        (None, Some(own)) => Some(own.to_owned()),
        (Some(_), None) => Some(format!("#!/bin/sh\n{REPOSITORY}")),
        // The owner's script may be of any language, so it stays a file of its own.
        (Some(_), Some(_)) => Some(format!("#!/bin/sh\n{REPOSITORY}exec /odc/keys/{OWN_SETUP}\n")),
    };
    Scripts { setup: script, pre_stop: setup.pre_stop.clone().filter(|script| !script.trim().is_empty()) }
}

const OWN_SETUP: &str = "own-setup.sh";

pub fn secret(valid: &Valid<'_>, keys: &Keys) -> Object {
    let mut data = BTreeMap::from([
        ("host_key".to_owned(), keys.host_private.clone()),
        ("host_key.pub".to_owned(), keys.host_public.clone()),
        ("authorized_keys".to_owned(), authorized_keys(valid)),
    ]);
    if valid.nodes > 1 {
        data.insert("gang_key".into(), keys.gang_private.clone());
        data.insert("gang_key.pub".into(), keys.gang_public.clone());
        data.insert("hostfile".into(), gang::hostfile(valid));
    }
    let scripts = scripts(valid);
    data.extend(scripts.setup.map(|script| (SETUP.to_owned(), script)));
    data.extend(scripts.pre_stop.map(|script| (PRE_STOP.to_owned(), script)));
    let setup = valid.server.spec.setup.as_ref();
    if let Some(own) = setup.filter(|setup| setup.repository.is_some()).and_then(|setup| setup.script.clone()) {
        data.insert(OWN_SETUP.into(), own);
    }
    let secret = Secret {
        metadata: metadata(valid, secret_name(valid.name.as_str())),
        string_data: Some(data),
        type_: Some("Opaque".into()),
        ..Secret::default()
    };
    Object::new(Kind::Secret, &secret)
}

/// Of the owner and of those the server names itself. Other users' keys are pushed to the agent.
fn authorized_keys(valid: &Valid<'_>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for key in valid.user.spec.keys.iter().chain(&valid.server.spec.access.keys) {
        let line = key.line();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
