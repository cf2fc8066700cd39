//! The settings of devctl. Flags override `DEVCTL_*` variables, which override the project file, which overrides the user's
//! config file.
//!
//! Clap handles flags and most variables; this module reads the two files and selects the context.

mod api;
mod file;
mod key;
mod project;

use std::path::{Path, PathBuf};

pub use api::{ApiEndpoint, ApiKey, ApiVariables};
pub use file::{ApiEntry, Backend, ContextEntry, CreateDefaults, File, Ssh};
pub use key::{KEYS, Key, get, set, unset};
pub use project::{Project, ProjectSearch};

use crate::cli::Global;
use crate::error::{Error, Result};

/// All settings except flags.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The path of the config file, which may not exist.
    pub path: PathBuf,
    pub file: File,
    /// The project file of the working directory.
    pub project: Option<Project>,
    /// Project files of other users, which are not read.
    pub ignored_projects: Vec<PathBuf>,
    /// The variables that set defaults of `create`, unparsed.
    variables: Vec<(&'static Key, String)>,
    /// The variables of the HTTP API.
    pub api: ApiVariables,
}

/// The cluster, user and namespace of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextSelection {
    /// The name of the context.
    pub name: Option<String>,
    pub kubeconfig: Option<PathBuf>,
    pub kube_context: Option<String>,
    pub namespace: Option<String>,
    /// The HTTP API, if the context uses it. The kubeconfig then only serves what needs connections to pods.
    pub api: Option<ApiEndpoint>,
}

impl Settings {
    /// Reads the settings. `with_project` is false if the working directory is arbitrary, as in a `ProxyCommand`.
    pub fn read(global: &Global, with_project: bool) -> Result<Self> {
        let path = global.config.clone().map_or_else(default_path, Ok)?;
        let file = File::read(&path)?;
        let directory = std::env::current_dir().unwrap_or_default();
        let ProjectSearch { project, ignored } =
            if with_project { Project::find(&directory)? } else { ProjectSearch::default() };
        let variable = |key: &'static Key| {
            let value = std::env::var(key.variable.filter(|_| key.name.starts_with("create."))?).ok()?;
            (!value.is_empty()).then_some((key, value))
        };
        let variables = KEYS.iter().filter_map(variable).collect();
        Ok(Self { path, file, project, ignored_projects: ignored, variables, api: ApiVariables::read() })
    }

    /// Returns the defaults of `create`: from variables, then the project file, then the config file.
    pub fn create(&self) -> Result<CreateDefaults> {
        let project = self.project.as_ref().map(|project| project.file.create.clone()).unwrap_or_default();
        Ok(self.defaults_from_variables()?.or(&project.or(&self.file.create)))
    }

    fn defaults_from_variables(&self) -> Result<CreateDefaults> {
        let mut file = File::default();
        for (key, value) in &self.variables {
            file = set(&file, key.name, value).map_err(|error| Error {
                message: format!("{}: {}", key.variable.unwrap_or_default(), error.message),
                ..error
            })?;
        }
        Ok(file.create)
    }

    /// Returns the default image if the project file sets it, and the path of that file.
    pub fn project_image(&self) -> Option<(&str, &Path)> {
        let project = self.project.as_ref()?;
        let image = project.file.create.image.as_deref()?;
        let overridden = self.variables.iter().any(|(key, _)| key.name == "create.image");
        (!overridden).then_some((image, project.path.as_path()))
    }

    /// Returns the context if the project file sets it, and the path of that file.
    pub fn project_context(&self, global: &Global) -> Option<(&str, &Path)> {
        let project = self.project.as_ref().filter(|_| global.context.is_none())?;
        Some((project.file.context.as_deref()?, project.path.as_path()))
    }

    /// Selects the context. A name that the config file does not define is a context of the kubeconfig. `DEVCTL_API_URL`
    /// overrides every context but that of the flag.
    pub fn select_context(&self, global: &Global) -> ContextSelection {
        if global.context == self.api.context
            && let Some(api) = self.api.endpoint()
        {
            return ContextSelection {
                name: None,
                kubeconfig: global.kubeconfig.clone(),
                kube_context: None,
                namespace: global.namespace.clone(),
                api: Some(api),
            };
        }
        let project_context = || self.project.as_ref().and_then(|project| project.file.context.clone());
        let name = global.context.clone().or_else(project_context).or_else(|| self.file.context.clone());
        let entry = name.as_ref().and_then(|name| self.file.contexts.get(name));
        let kube_context = match (&name, entry) {
            (Some(_), Some(entry)) => entry.kube_context.clone(),
            (Some(name), None) => Some(name.clone()),
            (None, _) => None,
        };
        ContextSelection {
            kubeconfig: global
                .kubeconfig
                .clone()
                .or_else(|| entry.and_then(|entry| entry.kubeconfig.as_deref().map(expand_home))),
            kube_context,
            namespace: global.namespace.clone().or_else(|| entry.and_then(|entry| entry.namespace.clone())),
            api: entry.filter(|entry| entry.backend == Backend::Api).map(|entry| self.api.complete(&entry.api)),
            name,
        }
    }
}

/// Returns `devctl/config.yaml` in the XDG config directory, on every platform.
pub fn default_path() -> Result<PathBuf> {
    use etcetera::BaseStrategy as _;
    let directories = etcetera::base_strategy::Xdg::new().map_err(|_| {
        Error::failed("could not determine the home directory")
            .with_hint("set HOME, or pass the config file with `--config`")
    })?;
    Ok(directories.config_dir().join("devctl/config.yaml"))
}

/// Expands `~/` at the start of a path.
pub fn expand_home(path: &Path) -> PathBuf {
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
    fn context_of_the_config_file_sets_all_fields() {
        let selection = settings().select_context(&Global::default());
        assert_eq!(selection.kubeconfig.as_deref(), Some(Path::new("/w.kubeconfig")));
        assert_eq!(
            (selection.kube_context.as_deref(), selection.namespace.as_deref()),
            (Some("demo"), Some("dev-ada"))
        );
    }

    #[test]
    fn flags_override_the_project_which_overrides_the_user() {
        let project = with_project("context: elsewhere\ncreate: {flavor: gpu}\n");
        assert_eq!(project.select_context(&Global::default()).kube_context.as_deref(), Some("elsewhere"));
        let global = Global { context: Some("work".into()), namespace: Some("dev-bob".into()), ..Global::default() };
        let selection = project.select_context(&global);
        assert_eq!(
            (selection.kube_context.as_deref(), selection.namespace.as_deref()),
            (Some("demo"), Some("dev-bob"))
        );
        let create = project.create().unwrap();
        assert_eq!(create.flavor.as_deref(), Some("gpu"));
        assert_eq!(create.lifetime.map(|time| time.to_string()).as_deref(), Some("2h"));
    }

    #[test]
    fn variables_override_files_and_errors_name_them() {
        let key = |name: &str| KEYS.iter().find(|key| key.name == name).unwrap();
        let mut settings = with_project("create: {flavor: gpu, gpus: 4, homeSize: 5Gi, image: theirs}\n");
        assert_eq!(settings.project_image().map(|(image, _)| image), Some("theirs"));
        settings.variables = vec![
            (key("create.flavor"), "cpu".into()),
            (key("create.homeClaim"), "home".into()),
            (key("create.image"), "mine".into()),
        ];
        let create = settings.create().unwrap();
        assert_eq!((create.flavor.as_deref(), create.gpus), (Some("cpu"), None));
        assert_eq!((create.home_size, create.home_claim.is_some()), (None, true));
        assert_eq!(settings.project_image(), None);
        settings.variables = vec![(key("create.lifetime"), "soon".into())];
        let error = settings.create().unwrap_err();
        assert!(error.message.starts_with("DEVCTL_LIFETIME: "), "{error}");
    }

    #[test]
    fn variables_of_the_api_override_every_context_but_that_of_the_flag() {
        let variables = ApiVariables {
            url: Some("https://odc.example.org".into()),
            key: Some(ApiKey::Text("odc_x".into())),
            ca: None,
            context: Some("elsewhere".into()),
        };
        let settings = Settings { api: variables, ..settings() };
        let global = Global { context: Some("elsewhere".into()), ..Global::default() };
        let selection = settings.select_context(&global);
        assert_eq!((selection.name, selection.api.map(|api| api.url)), (None, Some("https://odc.example.org".into())));
        let global = Global { context: Some("work".into()), ..Global::default() };
        let selection = settings.select_context(&global);
        assert_eq!((selection.name.as_deref(), selection.api), (Some("work"), None));
    }

    #[test]
    fn undefined_context_is_a_context_of_the_kubeconfig() {
        let global = Global { context: Some("demo".into()), ..Global::default() };
        let selection = settings().select_context(&global);
        assert_eq!((selection.kube_context.as_deref(), selection.kubeconfig), (Some("demo"), None));
    }
}
