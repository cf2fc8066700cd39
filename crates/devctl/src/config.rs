//! devctl's own settings: flags win over `DEVCTL_*`, those over the project's file, that over the person's file.
//!
//! Flags and variables are clap's business. Here are the two files, and which context is meant.

mod file;
mod key;
mod project;

use std::path::{Path, PathBuf};

pub use file::{Backend, ContextEntry, CreateDefaults, File, Ssh};
pub use key::{KEYS, Key, get, set, unset};
pub use project::{Found, Project};

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
    /// Files of projects that somebody else wrote.
    pub passed_over: Vec<PathBuf>,
    /// What the environment says for `create`: each setting with its value, as it was typed.
    variables: Vec<(&'static Key, String)>,
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
    /// Without the project's file where the working directory has nothing to do with what is done.
    pub fn read(global: &Global, with_project: bool) -> Result<Self> {
        let path = global.config.clone().map_or_else(default_path, Ok)?;
        let file = File::read(&path)?;
        let here = std::env::current_dir().unwrap_or_default();
        let Found { project, passed_over } = if with_project { Project::find(&here)? } else { Found::default() };
        let variable = |key: &'static Key| {
            let value = std::env::var(key.variable.filter(|_| key.name.starts_with("create."))?).ok()?;
            (!value.is_empty()).then_some((key, value))
        };
        let variables = KEYS.iter().filter_map(variable).collect();
        Ok(Self { path, file, project, passed_over, variables })
    }

    /// What `create` takes for what was not said: the environment's word, then the project's, then the person's.
    pub fn create(&self) -> Result<CreateDefaults> {
        let project = self.project.as_ref().map(|project| project.file.create.clone()).unwrap_or_default();
        Ok(self.said_by_variables()?.or(&project.or(&self.file.create)))
    }

    fn said_by_variables(&self) -> Result<CreateDefaults> {
        let mut said = File::default();
        for (key, value) in &self.variables {
            said = set(&said, key.name, value).map_err(|failure| Failure {
                message: format!("{}: {}", key.variable.unwrap_or_default(), failure.message),
                ..failure
            })?;
        }
        Ok(said.create)
    }

    /// The image that new servers get because the project says so.
    pub fn image_of_project(&self) -> Option<(&str, &Path)> {
        let project = self.project.as_ref()?;
        let image = project.file.create.image.as_deref()?;
        let overruled = self.variables.iter().any(|(key, _)| key.name == "create.image");
        (!overruled).then_some((image, project.path.as_path()))
    }

    /// The context that is meant because the project says so.
    pub fn context_of_project(&self, global: &Global) -> Option<(&str, &Path)> {
        let project = self.project.as_ref().filter(|_| global.context.is_none())?;
        Some((project.file.context.as_deref()?, project.path.as_path()))
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
        Settings { path: PathBuf::from("/config.yaml"), file, ..Settings::default() }
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
        let create = project.create().unwrap();
        assert_eq!(create.flavor.as_deref(), Some("gpu"));
        assert_eq!(create.lifetime.map(|time| time.to_string()).as_deref(), Some("2h"));
    }

    #[test]
    fn variables_win_over_files_and_are_named_when_they_are_wrong() {
        let key = |name: &str| KEYS.iter().find(|key| key.name == name).unwrap();
        let mut settings = with_project("create: {flavor: gpu, gpus: 4, homeSize: 5Gi, image: theirs}\n");
        assert_eq!(settings.image_of_project().map(|(image, _)| image), Some("theirs"));
        settings.variables = vec![
            (key("create.flavor"), "cpu".into()),
            (key("create.homeClaim"), "home".into()),
            (key("create.image"), "mine".into()),
        ];
        let create = settings.create().unwrap();
        assert_eq!((create.flavor.as_deref(), create.gpus), (Some("cpu"), None));
        assert_eq!((create.home_size, create.home_claim.is_some()), (None, true));
        assert_eq!(settings.image_of_project(), None);
        settings.variables = vec![(key("create.lifetime"), "soon".into())];
        let failure = settings.create().unwrap_err();
        assert!(failure.message.starts_with("DEVCTL_LIFETIME: "), "{failure}");
    }

    #[test]
    fn an_unknown_context_is_one_of_the_kubeconfig() {
        let global = Global { context: Some("demo".into()), ..Global::default() };
        let target = settings().target(&global);
        assert_eq!((target.kube_context.as_deref(), target.kubeconfig), (Some("demo"), None));
    }
}
