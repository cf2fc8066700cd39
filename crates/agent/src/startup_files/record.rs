//! A file in the home that records which step is under way, and the servers for which startup files were replaced.
//!
//! It belongs to the user, who may change it. An invalid record is reported, and then nothing is changed.

use std::ffi::CStr;
use std::fmt;

use anyhow::Context as _;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::home::Home;
use crate::args::ServerUid;
use crate::bounded_read::read_from;
use crate::tree::open_file;

/// Names in the home that start with this are not files of the user.
pub const OWN_FILE_PREFIX: &str = ".odc-startup-files";

const RECORD: &CStr = c".odc-startup-files.json";

const MAX_RECORD_BYTES: u64 = 64 << 10;

/// Servers that are remembered. One that is forgotten would have to wake after as many others replaced the files.
const MAX_SERVERS: usize = 64;

pub fn is_own_file(name: &CStr) -> bool {
    name.to_bytes().starts_with(OWN_FILE_PREFIX.as_bytes())
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    /// The uids of servers, the oldest first.
    #[serde(default)]
    recreated_for: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The uid of the server that replaces startup files; absent if the home is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    pub step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Startup files are moved into the backup directory. Nothing has been copied yet.
    Move { backup: BackupName },
    /// `/etc/skel` is copied.
    Copy,
}

impl Record {
    pub fn load(home: &Home<'_>) -> anyhow::Result<Self> {
        let file = match open_file(home.root(), RECORD) {
            Err(Errno::NOENT) => return Ok(Self::default()),
            other => other.map_err(std::io::Error::from),
        };
        let name = RECORD.to_string_lossy();
        let text = file
            .and_then(|file| read_from(file, MAX_RECORD_BYTES))
            .with_context(|| format!("cannot read {name}; move it away"))?;
        serde_json::from_slice(&text).with_context(|| format!("invalid {name}; move it away"))
    }

    pub fn store(&self, home: &Home<'_>) -> anyhow::Result<()> {
        let replaces = self.pending.as_ref().is_some_and(|pending| pending.server.is_some());
        let stored = if *self == Self::default() {
            home.remove_own_file(RECORD)
        } else {
            home.replace_own_file(RECORD, &serde_json::to_vec(self)?, replaces)
        };
        stored.with_context(|| format!("cannot write {}", RECORD.to_string_lossy()))
    }

    pub fn is_recreated_for(&self, server: &ServerUid) -> bool {
        self.recreated_for.iter().any(|uid| uid == server.as_str())
    }

    /// Ends the pending steps.
    pub fn complete(&mut self) {
        self.recreated_for.extend(self.pending.take().and_then(|pending| pending.server));
        let surplus = self.recreated_for.len().saturating_sub(MAX_SERVERS);
        self.recreated_for.drain(..surplus);
    }
}

/// The name of a backup directory in the home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BackupName(String);

#[derive(Debug, thiserror::Error)]
#[error("invalid name of a backup directory")]
pub struct InvalidBackupName;

impl BackupName {
    const PREFIX: &str = ".startup-files-backup-";

    /// `suffix` is a time, and a number if that is not unique.
    pub fn new(suffix: &str) -> Result<Self, InvalidBackupName> {
        let is_valid =
            (1..=64).contains(&suffix.len()) && suffix.bytes().all(|symbol| symbol.is_ascii_digit() || symbol == b'-');
        if is_valid { Ok(Self(format!("{}{suffix}", Self::PREFIX))) } else { Err(InvalidBackupName) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for BackupName {
    type Error = InvalidBackupName;

    fn try_from(name: String) -> Result<Self, InvalidBackupName> {
        Self::new(name.strip_prefix(Self::PREFIX).ok_or(InvalidBackupName)?)
    }
}

impl From<BackupName> for String {
    fn from(name: BackupName) -> Self {
        name.0
    }
}

impl fmt::Display for BackupName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_stable() {
        let backup = BackupName::new("20261118-093000").unwrap();
        let pending = Some(Pending { server: Some("uid-1".to_owned()), step: Step::Move { backup } });
        let mut record = Record { pending, recreated_for: vec!["uid-0".to_owned()] };
        let text =
            r#"{"pending":{"server":"uid-1","step":{"move":{"backup":".startup-files-backup-20261118-093000"}}},"#
                .to_owned()
                + r#""recreatedFor":["uid-0"]}"#;
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        record.complete();
        assert_eq!(serde_json::to_string(&record).unwrap(), r#"{"recreatedFor":["uid-0","uid-1"]}"#);
    }

    #[test]
    fn backup_name_with_a_path_is_rejected() {
        for name in ["", "/etc", ".startup-files-backup-", ".startup-files-backup-../x", ".startup-files-backup-1/2"] {
            assert!(BackupName::try_from(name.to_owned()).is_err(), "{name}");
        }
    }

    #[test]
    fn oldest_servers_are_forgotten() {
        let mut record = Record::default();
        for number in 0..=MAX_SERVERS {
            record.pending = Some(Pending { server: Some(number.to_string()), step: Step::Copy });
            record.complete();
        }
        assert_eq!(record.recreated_for.len(), MAX_SERVERS);
        assert!(record.is_recreated_for(&"64".parse().unwrap()) && !record.is_recreated_for(&"0".parse().unwrap()));
    }
}
