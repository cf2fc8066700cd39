//! The access list: keys that may log in, and CAs whose certificates are accepted. Initially it comes from the server's
//! Secret; the operator replaces it as a whole. The latest list is persisted, so that a restarted `serve` continues
//! with it, and, with a persist directory, so does a restarted container.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use russh::keys::Certificate;
use russh::keys::ssh_key::public::KeyData;
use tokio::sync::watch;

use crate::bounded_read::read_bounded;
use crate::serve::auth::certificate::{self, CertificateError, Principal};
use crate::serve::auth::key_list::{KeyList, MAX_KEYS};
use crate::serve::gang_ssh;
use crate::serve::persisted_state;

/// Name of the operator's CA in messages.
const CONTROL_CA: &str = "control CA";

const FILE: &str = "access.json";
/// In the persist directory, which other programs use too.
const PERSIST_FILE: &str = "odc-access.json";

const MAX_FILE_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub struct Access {
    keys: Mutex<Arc<AuthorizedKeys>>,
    changes: watch::Sender<()>,
    file: PathBuf,
    /// Outlives the container.
    persist_file: Option<PathBuf>,
    /// The shared key of the nodes of a gang; always allowed.
    gang_key: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizedKeys {
    pub user_keys: KeyList,
    pub user_cas: KeyList,
    pub control_cas: KeyList,
}

/// What a connection has authenticated with. The connection is closed when the access list no longer allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    Key(KeyData),
    Certificate { authority: KeyData, principal: Principal },
}

/// The result of a new access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Ignored lines with the reason.
    pub invalid: Vec<String>,
    /// Why the list could not be persisted.
    pub persist_error: Option<String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    #[error("rejected access list: it contains {0} lines, the maximum is {MAX_KEYS}")]
    TooMany(usize),
    #[error("rejected access list: it contains no usable control CA{0}")]
    NoControlCa(Reasons),
}

/// Reasons why lines are invalid, appended to a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reasons(Vec<String>);

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|reason| write!(f, "; {reason}"))
    }
}

impl AuthorizedKeys {
    pub fn parse(spec: &odc_control::Access, gang_key: Option<&str>) -> Self {
        let odc_control::Access { keys, user_cas, control_cas } = spec;
        let list = |lines: &[String]| KeyList::parse(lines.iter().map(String::as_str));
        let user_keys = KeyList::parse(keys.iter().map(String::as_str).chain(gang_key));
        Self { user_keys, user_cas: list(user_cas), control_cas: list(control_cas) }
    }

    pub fn allows(&self, credential: &Credential) -> bool {
        match credential {
            Credential::Key(key) => self.user_keys.contains(key),
            Credential::Certificate { authority, principal: Principal::User } => self.user_cas.contains(authority),
            Credential::Certificate { authority, principal: Principal::Control } => {
                self.control_cas.contains(authority)
            }
        }
    }

    /// Returns the ignored lines with the reason.
    fn invalid(&self) -> Vec<String> {
        let Self { user_keys, user_cas, control_cas } = self;
        [("key", user_keys), ("user CA", user_cas), (CONTROL_CA, control_cas)]
            .into_iter()
            .flat_map(|(name, list)| {
                list.invalid.iter().map(move |(line, reason)| format!("{name} in line {line}: {reason}"))
            })
            .collect()
    }
}

impl Access {
    /// Loads the list that was set in this run of the container, or else the Secret. Returns the ignored lines too.
    ///
    /// A list in `persist_dir`, from an earlier run of the container, is newer than the Secret and the pod: without it,
    /// revoked keys would be allowed again, and a rotated CA would be unknown.
    pub fn load(
        keys: &Path,
        control_cas: &[String],
        state_dir: &Path,
        persist_dir: Option<&Path>,
    ) -> (Self, Vec<String>) {
        let (file, persist_file) = (state_dir.join(FILE), persist_dir.map(|directory| directory.join(PERSIST_FILE)));
        let earlier_run = || persisted_state::load_any_run(persist_file.as_deref()?);
        let spec = persisted_state::load(&file).or_else(earlier_run).unwrap_or_else(|| odc_control::Access {
            keys: lines(&keys.join("authorized_keys")),
            user_cas: lines(&keys.join("user_ca.pub")),
            control_cas: match control_cas {
                [] => lines(&keys.join("control_ca.pub")),
                given => given.to_vec(),
            },
        });
        let gang_key = gang_ssh::public_key(keys);
        let keys = AuthorizedKeys::parse(&spec, gang_key.as_deref());
        let invalid = keys.invalid();
        let keys = Mutex::new(Arc::new(keys));
        (Self { keys, changes: watch::Sender::new(()), file, persist_file, gang_key }, invalid)
    }

    /// Replaces the list. Connections that it no longer allows are closed within a second.
    pub fn set(&self, spec: &odc_control::Access) -> Result<Update, AccessError> {
        let count = spec.keys.len() + spec.user_cas.len() + spec.control_cas.len();
        if count > MAX_KEYS {
            return Err(AccessError::TooMany(count));
        }
        let keys = AuthorizedKeys::parse(spec, self.gang_key.as_deref());
        let invalid = keys.invalid();
        if keys.control_cas.keys.is_empty() {
            let is_control_ca = |line: &String| line.starts_with(CONTROL_CA);
            return Err(AccessError::NoControlCa(Reasons(invalid.into_iter().filter(is_control_ca).collect())));
        }
        let store = |file: &Path| persisted_state::store(file, spec);
        let stored = self.persist_file.as_deref().map_or(Ok(()), store).and(store(&self.file));
        *self.keys() = Arc::new(keys);
        self.changes.send_replace(());
        Ok(Update { invalid, persist_error: stored.err().map(|error| error.to_string()) })
    }

    pub fn authorized_keys(&self) -> Arc<AuthorizedKeys> {
        Arc::clone(&self.keys())
    }

    /// Returns a receiver that is notified of every new list.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub fn verify_certificate(
        &self,
        certificate: &Certificate,
        now: u64,
        uid: &str,
    ) -> Result<Principal, CertificateError> {
        certificate::verify(certificate, now, &self.authorized_keys(), uid)
    }

    fn keys(&self) -> MutexGuard<'_, Arc<AuthorizedKeys>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the lines of a file, none if it does not exist.
fn lines(file: &Path) -> Vec<String> {
    let text = read_bounded(file, MAX_FILE_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&text).split('\n').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
