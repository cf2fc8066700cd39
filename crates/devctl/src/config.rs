//! devctl's own settings: flags win over `DEVCTL_*`, those over the project's file, that over the person's file.
//!
//! Flags and variables are clap's business. Here are the two files, and which context is meant.

mod file;
mod key;
mod project;

use std::path::{Path, PathBuf};

pub use file::{Backend, ContextEntry, CreateDefaults, File, Ssh};
pub use key::{KEYS, Key, get, set, unset};
pub use project::Project;

use crate::args::Global;
use crate::failure::{Failure, Result};

/// Everything that was said before the command began.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Where the person's file is, or would be.
    pub path: PathBuf,
    pub file: File,
    /// The project's file, if the working directory is in one.
    pub project: Option<Project>,
}

/// Which cluster, as whom, where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What people call it.
    pub name: Option<String>,
    pub kubeconfig: Option<PathBuf>,
    pub kube_context: Option<String>,
    pub namespace: Option<String>,
}

impl Settings {
    pub fn read(global: &Global) -> Result<Self> {
        let path = global.config.clone().map_or_else(default_path, Ok)?;
        let file = File::read(&path)?;
        let here = std::env::current_dir().unwrap_or_default();
        Ok(Self { path, file, project: Project::find(&here)? })
    }

    /// What `create` takes for what was not said: the project's word, then the person's.
    pub fn create(&self) -> CreateDefaults {
        let project = self.project.as_ref().map(|project| project.file.create.clone()).unwrap_or_default();
        project.or(&self.file.create)
    }

    /// The context that is meant. One that is not in devctl's file is one of the kubeconfig.
    pub fn target(&self, global: &Global) -> Target {
        let of_project = || self.project.as_ref().and_then(|project| project.file.context.clone());
        let name = global.context.clone().or_else(of_project).or_else(|| self.file.context.clone());
        let entry = name.as_ref().and_then(|name| self.file.contexts.get(name));
        let kube_context = match (&name, entry) {
            (Some(_), Some(entry)) => entry.kube_context.clone(),
            (Some(name), None) => Some(name.clone()),
            (None, _) => None,
        };
        Target {
            kubeconfig: global
                .kubeconfig
                .clone()
                .or_else(|| entry.and_then(|entry| entry.kubeconfig.as_deref().map(expanded))),
            kube_context,
            namespace: global.namespace.clone().or_else(|| entry.and_then(|entry| entry.namespace.clone())),
            name,
        }
    }
}

/// `devctl/config.yaml` in the configuration directory, by the XDG rules on every system.
pub fn default_path() -> Result<PathBuf> {
    use etcetera::BaseStrategy as _;
    let directories = etcetera::base_strategy::Xdg::new().map_err(|_| {
        Failure::failed("your home directory is not known").advise("Set HOME, or name the settings with --config.")
    })?;
    Ok(directories.config_dir().join("devctl/config.yaml"))
}

/// Where devctl keeps what it made itself: keys, known hosts, ssh's settings.
pub fn data_directory() -> Result<PathBuf> {
    use etcetera::BaseStrategy as _;
    let directories = etcetera::base_strategy::Xdg::new()
        .map_err(|_| Failure::failed("your home directory is not known").advise("Set HOME."))?;
    Ok(directories.data_dir().join("devctl"))
}

/// `~/` at the beginning is the home directory, as in a shell.
pub fn expanded(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), etcetera::home_dir()) {
        (Ok(rest), Ok(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let file = File::parse(
            "context: work\ncontexts:\n  work:\n    backend: kube\n    kubeconfig: /w.kubeconfig\n    kubeContext: demo\n    namespace: dev-ada\ncreate:\n  flavor: cpu\n  lifetime: 2h\n",
        )
        .unwrap();
        Settings { path: PathBuf::from("/config.yaml"), file, project: None }
    }

    fn with_project(text: &str) -> Settings {
        Settings { project: Some(Project::parse(Path::new("/p/.devctl.yaml"), text).unwrap()), ..settings() }
    }

    #[test]
    fn a_context_of_the_file_stands_for_all_it_names() {
        let target = settings().target(&Global::default());
        assert_eq!(target.kubeconfig.as_deref(), Some(Path::new("/w.kubeconfig")));
        assert_eq!((target.kube_context.as_deref(), target.namespace.as_deref()), (Some("demo"), Some("dev-ada")));
    }

    #[test]
    fn flags_win_over_the_project_and_that_over_the_person() {
        let project = with_project("context: elsewhere\ncreate: {flavor: gpu}\n");
        assert_eq!(project.target(&Global::default()).kube_context.as_deref(), Some("elsewhere"));
        let global = Global { context: Some("work".into()), namespace: Some("dev-bob".into()), ..Global::default() };
        let target = project.target(&global);
        assert_eq!((target.kube_context.as_deref(), target.namespace.as_deref()), (Some("demo"), Some("dev-bob")));
        let create = project.create();
        assert_eq!(create.flavor.as_deref(), Some("gpu"));
        assert_eq!(create.lifetime.map(|time| time.to_string()).as_deref(), Some("2h"));
    }

    #[test]
    fn an_unknown_context_is_one_of_the_kubeconfig() {
        let global = Global { context: Some("demo".into()), ..Global::default() };
        let target = settings().target(&global);
        assert_eq!((target.kube_context.as_deref(), target.kubeconfig), (Some("demo"), None));
    }
}
