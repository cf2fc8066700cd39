//! How OpenSSH reaches servers from here: what was typed and written down, put together.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::args::Global;
use crate::backend::Place;
use crate::config::{Settings, Target, expanded};
use crate::failure::{Failure, Result};
use crate::ssh::client::Route;

/// What is said for one connection and stands above the settings.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub identity: Option<PathBuf>,
    pub forward_agent: Option<bool>,
}

/// The way from here, the same however often the current context or the environment change afterwards.
pub fn route(global: &Global, settings: &Settings, place: &Place, wishes: &Wishes) -> Result<Route> {
    let places = super::places()?;
    let identities = match named_identity(settings, wishes.identity.as_deref()) {
        Some(named) => vec![absolute(&named)?],
        // OpenSSH complains about each that is not there. Without any it looks in the usual places itself.
        None => [places.ssh().join("id_ed25519"), places.key()].into_iter().filter(|path| path.exists()).collect(),
    };
    let environment = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    Ok(Route {
        devctl: own_path()?,
        kubeconfigs: environment.as_deref().and_then(OsStr::to_str).and_then(several_kubeconfigs),
        arguments: arguments(global, &settings.target(global), place, environment.as_deref())?,
        identities,
        places,
        forward_agent: wishes.forward_agent.or(settings.file.ssh.forward_agent).unwrap_or(true),
    })
}

/// The key that was named: for this once, by the environment, or in the settings.
pub fn named_identity(settings: &Settings, wish: Option<&Path>) -> Option<PathBuf> {
    let from_environment = || std::env::var_os("DEVCTL_IDENTITY").map(PathBuf::from);
    let named = wish.map(Path::to_owned).or_else(from_environment).or_else(|| settings.file.ssh.identity_file.clone());
    let named = expanded(&named?);
    // Either part of the key names it.
    Some(if named.extension() == Some(OsStr::new("pub")) { named.with_extension("") } else { named })
}

/// What tells another devctl exactly this place.
fn arguments(global: &Global, target: &Target, place: &Place, environment: Option<&OsStr>) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut say = |flag: &str, value: &str| words.extend([flag.to_owned(), value.to_owned()]);
    if let Some(config) = &global.config {
        say("--config", &text(&absolute(config)?)?);
    }
    let only = environment.filter(|value| several_kubeconfigs(&value.to_string_lossy()).is_none()).map(PathBuf::from);
    if let Some(path) = target.kubeconfig.as_ref().or(only.as_ref()) {
        say("--kubeconfig", &text(&absolute(path)?)?);
    }
    if place.context != crate::backend::kube::IN_CLUSTER {
        say("--context", &place.context);
    }
    say("--namespace", &place.namespace);
    words.push("--no-input".to_owned());
    Ok(words)
}

/// The variable may name several files, which no flag can.
fn several_kubeconfigs(value: &str) -> Option<String> {
    let files: Vec<PathBuf> = std::env::split_paths(value).filter(|path| !path.as_os_str().is_empty()).collect();
    let all: Vec<PathBuf> =
        files.iter().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())).collect();
    (all.len() > 1).then(|| std::env::join_paths(all).ok()?.into_string().ok()).flatten()
}

/// As it was called, not where links lead to: those change when devctl is updated.
fn own_path() -> Result<PathBuf> {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    if called.components().count() > 1 {
        return absolute(&called);
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search).map(|directory| directory.join(&called)).find(|path| path.is_file());
    match found {
        Some(path) => absolute(&path),
        None => std::env::current_exe().map_err(|error| Failure::failed(format!("devctl cannot find itself: {error}"))),
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Failure::failed(format!("{} cannot be found: {error}", path.display())))
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::usage(format!("{} is no plain text, so ssh cannot be told", path.display()))
            .advise("Move it to a place that can be written down.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(context: &str) -> Place {
        Place {
            context: context.to_owned(),
            address: "https://api".to_owned(),
            namespace: "dev-ada".to_owned(),
            owner: Some("ada".to_owned()),
        }
    }

    #[test]
    fn another_devctl_is_told_everything_that_could_change() {
        let global = Global { kubeconfig: Some("/k".into()), ..Global::default() };
        let target = Settings::default().target(&global);
        let words = arguments(&global, &target, &place("work"), Some(OsStr::new("/other"))).unwrap();
        assert_eq!(words.join(" "), "--kubeconfig /k --context work --namespace dev-ada --no-input");
    }

    #[test]
    fn one_kubeconfig_of_the_environment_is_a_flag_and_several_are_not() {
        let target = Settings::default().target(&Global::default());
        let of = |value: &str| {
            arguments(&Global::default(), &target, &place("work"), Some(OsStr::new(value))).unwrap().join(" ")
        };
        assert_eq!(of("/a"), "--kubeconfig /a --context work --namespace dev-ada --no-input");
        assert_eq!(of("/a:/b"), "--context work --namespace dev-ada --no-input");
        assert_eq!(several_kubeconfigs("/a:/b").as_deref(), Some("/a:/b"));
        assert_eq!(several_kubeconfigs("/a:"), None);
    }

    #[test]
    fn inside_a_cluster_there_is_no_context_to_name() {
        let target = Settings::default().target(&Global::default());
        let words = arguments(&Global::default(), &target, &place("in-cluster"), None).unwrap();
        assert_eq!(words.join(" "), "--namespace dev-ada --no-input");
    }

    #[test]
    fn a_key_is_named_by_either_part() {
        for name in ["/keys/work", "/keys/work.pub"] {
            let named = named_identity(&Settings::default(), Some(Path::new(name)));
            assert_eq!(named.as_deref(), Some(Path::new("/keys/work")));
        }
    }
}
