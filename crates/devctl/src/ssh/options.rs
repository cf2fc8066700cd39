//! The options that make OpenSSH reach servers through devctl.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::cli::Global;
use crate::client::Target;
use crate::config::{ContextSelection, Settings, expand_home};
use crate::error::{Error, Result};
use crate::shell;
use crate::ssh::config_file::quote_path;
use crate::ssh::paths::SshPaths;

/// Options of one connection that override the settings.
#[derive(Clone, Debug, Default)]
pub struct SshOverrides {
    pub identity: Option<PathBuf>,
    pub forward_agent: Option<bool>,
}

impl SshOverrides {
    /// For connections that only transfer data.
    pub const NO_AGENT: Self = Self { identity: None, forward_agent: Some(false) };
}

/// How OpenSSH reaches servers. Independent of later changes to the current context or the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshOptions {
    /// The path of this program.
    pub devctl: PathBuf,
    /// The value of KUBECONFIG if it lists several files, for which there is no flag.
    pub kubeconfigs: Option<String>,
    /// The flags that select the cluster and namespace.
    pub arguments: Vec<String>,
    /// Private keys to offer besides those of the agent.
    pub identities: Vec<PathBuf>,
    pub paths: SshPaths,
    pub forward_agent: bool,
}

impl SshOptions {
    pub fn new(global: &Global, settings: &Settings, target: &Target, overrides: &SshOverrides) -> Result<Self> {
        let paths = super::ssh_paths()?;
        let identities = match identity_file(settings, overrides.identity.as_deref()) {
            Some(file) => vec![absolute(&file)?],
            // OpenSSH warns about missing files. Without any, it tries its defaults.
            None => [paths.ssh().join("id_ed25519"), paths.key()].into_iter().filter(|path| path.exists()).collect(),
        };
        let kubeconfig_env = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
        Ok(Self {
            devctl: own_path()?,
            kubeconfigs: kubeconfig_env.as_deref().and_then(OsStr::to_str).and_then(several_kubeconfigs),
            arguments: arguments(global, &settings.select_context(global), target, kubeconfig_env.as_deref())?,
            identities,
            paths,
            forward_agent: overrides.forward_agent.or(settings.file.ssh.forward_agent).unwrap_or(true),
        })
    }

    /// Returns the keywords and values for `ssh_config`.
    pub fn config(&self) -> Vec<(&'static str, String)> {
        self.config_with("ssh --stdio '%n'")
    }

    /// OpenSSH replaces `%n` by the host as typed, and a shell parses the result. Hosts may be untrusted, such as the URL of
    /// a submodule; OpenSSH rejects those with quotes.
    fn config_with(&self, subcommand: &str) -> Vec<(&'static str, String)> {
        let mut config = vec![
            ("ProxyCommand", self.proxy_command(subcommand)),
            ("UserKnownHostsFile", escape_percent(&quote_path(&self.paths.known_hosts()))),
            ("StrictHostKeyChecking", "yes".into()),
            // The status of the server is the only source of its host key.
            ("UpdateHostKeys", "no".into()),
            ("CheckHostIP", "no".into()),
            // Shorter than the idle timeout of common proxies.
            ("ServerAliveInterval", "30".into()),
            ("ServerAliveCountMax", "4".into()),
            ("ForwardAgent", if self.forward_agent { "yes" } else { "no" }.into()),
        ];
        config.extend(self.identities.iter().map(|path| ("IdentityFile", escape_percent(&quote_path(path)))));
        config
    }

    /// Returns `-o` options for an ssh that devctl runs. The control path is specific to the server, as a name may refer to
    /// different servers in different namespaces. The server was ready just before, so the proxy does not wake it.
    pub fn flags(&self, control_name: Option<&str>) -> Vec<String> {
        let path = control_name.map_or_else(|| "none".to_owned(), |name| self.control_path(name));
        let config = self.config_with("ssh --no-wake --stdio '%n'").into_iter().chain([("ControlPath", path)]);
        config.map(|(keyword, value)| format!("-o{keyword}={value}")).collect()
    }

    fn proxy_command(&self, subcommand: &str) -> String {
        let devctl = self.devctl.display().to_string();
        let env = self.kubeconfigs.as_ref().map(|files| ["env".to_owned(), format!("KUBECONFIG={files}")]);
        let words = env.iter().flatten().chain([&devctl]).chain(&self.arguments);
        format!("{} {subcommand}", escape_percent(&shell::join(words.map(String::as_str))))
    }

    /// Returns the path of a control socket. It is short, because socket names are limited to about 100 bytes.
    pub fn control_path(&self, name: &str) -> String {
        let directory = escape_percent(&self.paths.dir().display().to_string());
        quote_path(Path::new(&format!("{directory}/{name}")))
    }
}

/// Escapes `%`, which OpenSSH would expand.
pub fn escape_percent(text: &str) -> String {
    text.replace('%', "%%")
}

/// Returns the configured private key: from the flag, the environment or the settings.
pub fn identity_file(settings: &Settings, flag: Option<&Path>) -> Option<PathBuf> {
    let from_env = || std::env::var_os("DEVCTL_IDENTITY").map(PathBuf::from);
    let path = flag.map(Path::to_owned).or_else(from_env).or_else(|| settings.file.ssh.identity_file.clone());
    let path = expand_home(&path?);
    // The path of the public key is accepted as well.
    Some(if path.extension() == Some(OsStr::new("pub")) { path.with_extension("") } else { path })
}

/// Returns the flags that select exactly this target.
fn arguments(
    global: &Global,
    selection: &ContextSelection,
    target: &Target,
    kubeconfig_env: Option<&OsStr>,
) -> Result<Vec<String>> {
    let mut arguments = Vec::new();
    let mut push = |flag: &str, value: &str| arguments.extend([flag.to_owned(), value.to_owned()]);
    if let Some(config) = &global.config {
        push("--config", &to_text(&absolute(config)?)?);
    }
    let single =
        kubeconfig_env.filter(|value| several_kubeconfigs(&value.to_string_lossy()).is_none()).map(PathBuf::from);
    if let Some(path) = selection.kubeconfig.as_ref().or(single.as_ref()) {
        push("--kubeconfig", &to_text(&absolute(path)?)?);
    }
    if target.is_named {
        push("--context", &target.context);
    }
    push("--namespace", &target.namespace);
    arguments.push("--no-input".to_owned());
    Ok(arguments)
}

/// Returns the value of KUBECONFIG with absolute paths if it lists several files.
fn several_kubeconfigs(value: &str) -> Option<String> {
    let files: Vec<PathBuf> = std::env::split_paths(value).filter(|path| !path.as_os_str().is_empty()).collect();
    let absolute: Vec<PathBuf> =
        files.iter().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())).collect();
    (absolute.len() > 1).then(|| std::env::join_paths(absolute).ok()?.into_string().ok()).flatten()
}

/// Returns the path by which this program was called. Links are not resolved: they stay valid when devctl is updated.
fn own_path() -> Result<PathBuf> {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    if called.components().count() > 1 {
        return absolute(&called);
    }
    match which::which(&called) {
        Ok(path) => absolute(&path),
        Err(_) => std::env::current_exe()
            .map_err(|error| Error::failed(format!("could not determine the path of devctl: {error}"))),
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::failed(format!("could not resolve {}: {error}", path.display())))
}

fn to_text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Error::usage(format!("path {} is not valid UTF-8", path.display())).with_hint("move the file to another path")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(context: &str) -> Target {
        Target {
            context: context.to_owned(),
            is_named: context != "in-cluster",
            address: "https://api".to_owned(),
            namespace: "dev-ada".to_owned(),
            owner: Some("ada".to_owned()),
        }
    }

    #[test]
    fn only_the_config_file_wakes_servers() {
        let options = SshOptions {
            devctl: "/usr/bin/devctl".into(),
            kubeconfigs: Some("/a:/b".into()),
            arguments: vec!["--namespace".into(), "dev-ada".into()],
            identities: vec![],
            paths: SshPaths::new(Path::new("/home/ada")),
            forward_agent: false,
        };
        let command =
            |subcommand: &str| format!("env 'KUBECONFIG=/a:/b' /usr/bin/devctl --namespace dev-ada {subcommand} '%n'");
        assert_eq!(options.config()[0], ("ProxyCommand", command("ssh --stdio")));
        assert_eq!(options.flags(None)[0], format!("-oProxyCommand={}", command("ssh --no-wake --stdio")));
        assert!(options.flags(Some("uid.0")).contains(&"-oControlPath=/home/ada/.ssh/odc/uid.0".to_owned()));
    }

    #[test]
    fn arguments_select_the_target_explicitly() {
        let global = Global { kubeconfig: Some("/k".into()), ..Global::default() };
        let selection = Settings::default().select_context(&global);
        let words = arguments(&global, &selection, &target("work"), Some(OsStr::new("/other"))).unwrap();
        assert_eq!(words.join(" "), "--kubeconfig /k --context work --namespace dev-ada --no-input");
    }

    #[test]
    fn single_kubeconfig_of_the_environment_is_a_flag() {
        let selection = Settings::default().select_context(&Global::default());
        let words = |value: &str| {
            arguments(&Global::default(), &selection, &target("work"), Some(OsStr::new(value))).unwrap().join(" ")
        };
        assert_eq!(words("/a"), "--kubeconfig /a --context work --namespace dev-ada --no-input");
        assert_eq!(words("/a:/b"), "--context work --namespace dev-ada --no-input");
        assert_eq!(several_kubeconfigs("/a:/b").as_deref(), Some("/a:/b"));
        assert_eq!(several_kubeconfigs("/a:"), None);
    }

    #[test]
    fn in_cluster_arguments_have_no_context() {
        let selection = Settings::default().select_context(&Global::default());
        let words = arguments(&Global::default(), &selection, &target("in-cluster"), None).unwrap();
        assert_eq!(words.join(" "), "--namespace dev-ada --no-input");
    }

    #[test]
    fn identity_file_accepts_the_public_key() {
        for name in ["/keys/work", "/keys/work.pub"] {
            let file = identity_file(&Settings::default(), Some(Path::new(name)));
            assert_eq!(file.as_deref(), Some(Path::new("/keys/work")));
        }
    }
}
