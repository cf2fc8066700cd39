//! Where the HTTP API is, and with which key to use it.

use std::fmt;
use std::path::PathBuf;

use super::{ApiEntry, expand_home};

/// The variables `DEVCTL_API_URL`, `DEVCTL_API_KEY` and `DEVCTL_API_CA`, and `DEVCTL_CONTEXT`, which they override.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiVariables {
    pub url: Option<String>,
    pub key: Option<ApiKey>,
    pub ca: Option<PathBuf>,
    /// The parser of the command line does not tell this variable from its flag.
    pub context: Option<String>,
}

/// The HTTP API that a context uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiEndpoint {
    pub url: String,
    pub key: Option<ApiKey>,
    /// The CA certificate, if no public CA has signed the certificate of the API.
    pub ca: Option<PathBuf>,
}

/// An API key, or where to get it.
#[derive(Clone, PartialEq, Eq)]
pub enum ApiKey {
    Text(String),
    File(PathBuf),
    /// The output of a shell command.
    Command(String),
}

impl fmt::Debug for ApiKey {
    /// Does not print the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Command(command) => f.debug_tuple("Command").field(command).finish(),
        }
    }
}

impl ApiVariables {
    /// Reads the variables. An empty one counts as unset.
    pub fn read() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            url: variable("DEVCTL_API_URL"),
            key: variable("DEVCTL_API_KEY").map(ApiKey::Text),
            ca: variable("DEVCTL_API_CA").map(PathBuf::from),
            context: variable("DEVCTL_CONTEXT"),
        }
    }

    /// Returns the API of the variables, if they name one.
    pub fn endpoint(&self) -> Option<ApiEndpoint> {
        let Self { url, key, ca, context: _ } = self.clone();
        Some(ApiEndpoint { url: url?, key, ca })
    }

    /// Returns the API of a context. The key of the variables belongs to their URL; a context uses it if it has none.
    pub fn complete(&self, entry: &ApiEntry) -> ApiEndpoint {
        let ApiEntry { url, ca, key_file, key_command } = entry.clone();
        let file = key_file.map(|path| ApiKey::File(expand_home(&path)));
        ApiEndpoint {
            url: url.unwrap_or_default(),
            key: file.or(key_command.map(ApiKey::Command)).or_else(|| self.key.clone()),
            ca: ca.map(|path| expand_home(&path)).or_else(|| self.ca.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_context_wins_over_the_variable() {
        let variables = ApiVariables { key: Some(ApiKey::Text("odc_variable".into())), ..ApiVariables::default() };
        let entry = ApiEntry { url: Some("https://a".into()), ..ApiEntry::default() };
        assert_eq!(variables.complete(&entry).key, variables.key);
        let entry = ApiEntry { key_file: Some("/key".into()), ..entry };
        assert_eq!(variables.complete(&entry).key, Some(ApiKey::File("/key".into())));
    }

    #[test]
    fn key_is_not_printed() {
        assert!(!format!("{:?}", ApiKey::Text("odc_secret".into())).contains("secret"));
    }
}
