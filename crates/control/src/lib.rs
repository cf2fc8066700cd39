//! What the operator and a server's agent say to each other.

use serde::{Deserialize, Serialize};

/// Who may log in to a server. Replaces what was said before, as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Access {
    /// Lines of an authorized-keys file, without options.
    pub keys: Vec<String>,
    /// Public keys that sign certificates for people.
    pub user_cas: Vec<String>,
    /// Public keys that sign certificates for the operator.
    pub control_cas: Vec<String>,
}
