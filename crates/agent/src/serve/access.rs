//! Who may log in: public keys, and those whose certificates count. First what the server's Secret says, then what the
//! operator says, as a whole each time. That is also kept in the state directory, so that a new `serve` goes on with it
//! until the container is started anew, and, where there is a place that outlives the container, beyond that.

pub mod list;

use std::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use russh::keys::Certificate;
use russh::keys::ssh_key::public::KeyData;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::replace::replace;
use crate::serve::access::list::List;
use crate::serve::certificate::{self, Principal};
use crate::serve::gang;
use crate::state::process::Process;

/// What messages call those who sign for the operator.
const CONTROL: &str = "control CA";

const FILE: &str = "access.json";
/// Where others have files too.
const LASTING_FILE: &str = "odc-access.json";

/// More than the longest lists take.
const LARGEST_FILE: u64 = 16 << 20;

#[derive(Debug)]
pub struct Access {
    now: Mutex<Now>,
    changes: watch::Sender<()>,
    file: PathBuf,
    /// Outlives the container.
    lasting: Option<PathBuf>,
    /// What the nodes of a gang log in to each other with, whatever else is said.
    gang: Option<String>,
}

#[derive(Debug)]
struct Now {
    said: odc_control::Access,
    lists: Arc<Lists>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    pub keys: List,
    pub user_cas: List,
    pub control_cas: List,
}

/// What somebody logged in with, and must still be worth something for the connection to stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    Key(KeyData),
    Certificate { authority: KeyData, principal: Principal },
}

/// What became of a new list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Lines that were left out, each with its reason.
    pub unusable: Vec<String>,
    /// Why a new `serve` would not know of it.
    pub not_kept: Option<String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("there are {0} lines; at most {most} can be handled", most = list::MOST)]
    Many(usize),
    #[error("no control CA in the list can be used, so the operator could never come back; nothing was changed{0}")]
    NoControl(Reasons),
}

/// Why lines cannot be used, to follow a sentence.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reasons(Vec<String>);

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|reason| write!(f, "; {reason}"))
    }
}

/// As it is stored. Files may outlive the container they were meant for, so its process 1 is part of them.
#[derive(Serialize, Deserialize)]
struct Stored {
    init: Process,
    access: odc_control::Access,
}

impl Lists {
    /// `gang` is let in too.
    pub fn parse(said: &odc_control::Access, gang: Option<&str>) -> Self {
        let odc_control::Access { keys, user_cas, control_cas } = said;
        let list = |lines: &[String]| List::parse(lines.iter().map(String::as_str));
        let keys = List::parse(keys.iter().map(String::as_str).chain(gang));
        Self { keys, user_cas: list(user_cas), control_cas: list(control_cas) }
    }

    pub fn admits(&self, credential: &Credential) -> bool {
        match credential {
            Credential::Key(key) => self.keys.has(key),
            Credential::Certificate { authority, principal: Principal::User } => self.user_cas.has(authority),
            Credential::Certificate { authority, principal: Principal::Control } => self.control_cas.has(authority),
        }
    }

    /// In words, for the log and for whoever said it.
    fn unusable(&self) -> Vec<String> {
        let Self { keys, user_cas, control_cas } = self;
        [("key", keys), ("user CA", user_cas), (CONTROL, control_cas)]
            .into_iter()
            .flat_map(|(name, list)| {
                list.unusable.iter().map(move |(line, reason)| format!("{name} in line {line}: {reason}"))
            })
            .collect()
    }
}

impl Access {
    /// Goes on with what was said in this life of the container, or else begins with the Secret. Tells what was left out.
    ///
    /// In `keep`, if there is such a place, is also what was said in earlier lives. It is newer than the Secret and the
    /// pod: without it, whoever was taken off the list since would be back, and an authority that came since would not.
    pub fn begin(keys: &Path, control_cas: &[String], state: &Path, keep: Option<&Path>) -> (Self, Vec<String>) {
        let (file, lasting) = (state.join(FILE), keep.map(|keep| keep.join(LASTING_FILE)));
        let earlier = || stored(lasting.as_deref()?).map(|stored| stored.access);
        let said = load(&file).or_else(earlier).unwrap_or_else(|| odc_control::Access {
            keys: lines(&keys.join("authorized_keys")),
            user_cas: lines(&keys.join("user_ca.pub")),
            control_cas: match control_cas {
                [] => lines(&keys.join("control_ca.pub")),
                given => given.to_vec(),
            },
        });
        let gang = gang::public_key(keys);
        let lists = Lists::parse(&said, gang.as_deref());
        let unusable = lists.unusable();
        let now = Mutex::new(Now { said, lists: Arc::new(lists) });
        (Self { now, changes: watch::Sender::new(()), file, lasting, gang }, unusable)
    }

    /// Replaces everything at once. Connections of those who are not admitted any more end within a second.
    pub fn set(&self, list: odc_control::Access) -> Result<Changed, Refused> {
        let count = list.keys.len() + list.user_cas.len() + list.control_cas.len();
        if count > list::MOST {
            return Err(Refused::Many(count));
        }
        let lists = Lists::parse(&list, self.gang.as_deref());
        let unusable = lists.unusable();
        if lists.control_cas.keys.is_empty() {
            let about_control = |line: &String| line.starts_with(CONTROL);
            return Err(Refused::NoControl(Reasons(unusable.into_iter().filter(about_control).collect())));
        }
        let stored = Stored { init: Process::init(), access: list };
        let kept = serde_json::to_vec(&stored).map_err(io::Error::from).and_then(|text| {
            let write = |file: &Path| replace(file, 0o600, |file| file.write_all(&text));
            self.lasting.as_deref().map_or(Ok(()), write).and(write(&self.file))
        });
        *self.now() = Now { said: stored.access, lists: Arc::new(lists) };
        self.changes.send_replace(());
        Ok(Changed { unusable, not_kept: kept.err().map(|error| error.to_string()) })
    }

    /// As it was said.
    pub fn current(&self) -> odc_control::Access {
        self.now().said.clone()
    }

    pub fn lists(&self) -> Arc<Lists> {
        Arc::clone(&self.now().lists)
    }

    /// Seen whenever something was said.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub fn judge(&self, certificate: &Certificate, now: u64, uid: &str) -> Result<Principal, certificate::Refused> {
        certificate::judge(certificate, now, &self.lists(), uid)
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of this life of the container.
fn load(file: &Path) -> Option<odc_control::Access> {
    stored(file).filter(|stored| stored.init == Process::init()).map(|stored| stored.access)
}

fn stored(file: &Path) -> Option<Stored> {
    serde_json::from_slice(&read(file).ok()?).ok()
}

/// None, if there is no such file.
fn lines(file: &Path) -> Vec<String> {
    let text = read(file).unwrap_or_default();
    String::from_utf8_lossy(&text).split('\n').map(str::to_owned).collect()
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    fs::File::open(file)?.take(LARGEST_FILE).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
