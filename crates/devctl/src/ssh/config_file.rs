//! What OpenSSH needs to know about servers: a file of ours, and one line in the person's own that includes it. All else
//! in theirs stays byte for byte.

mod diff;

use std::path::{Path, PathBuf};

pub use diff::diff;

use crate::replace;
use crate::ssh::client::{self, Route};
use crate::ssh::host::SUFFIX;
use crate::ssh::places::Places;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path} cannot be read; check who may read it")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} cannot be written; check who may write it")]
    Write {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

/// A file as it is and as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub path: PathBuf,
    pub before: Vec<u8>,
    /// Nothing: the file goes.
    pub after: Option<Vec<u8>>,
}

impl Change {
    pub fn is_needed(&self) -> bool {
        self.after.as_ref().map_or_else(|| self.path.exists(), |after| *after != self.before)
    }
}

/// What is to be changed so that `ssh NAME.odc` works.
pub fn install(places: &Places, route: &Route) -> Result<Vec<Change>, Error> {
    let ours = change(places.our_config(), |_| Some(block(route).into_bytes()))?;
    let theirs = change(places.config(), |text| Some(with_include(text, places)))?;
    Ok(vec![ours, theirs])
}

/// What is to be changed so that nothing of ours is left. Keys stay: they may be the only way into a server.
pub fn remove(places: &Places) -> Result<Vec<Change>, Error> {
    let theirs = change(places.config(), |text| Some(without_include(text, places)))?;
    // A file that only we had made goes again.
    let theirs = match theirs {
        Change { path, before, after: Some(after) } if after.is_empty() && !before.is_empty() => {
            Change { path, before, after: None }
        }
        other => other,
    };
    let rest = [places.our_config(), places.known_hosts(), places.known_hosts().with_extension("lock")];
    let gone = rest.into_iter().map(|path| change(path, |_| None));
    std::iter::once(Ok(theirs)).chain(gone).collect()
}

/// What is to be changed for a key that was made since: nothing, unless our file is there.
pub fn with_key(places: &Places, key: &Path) -> Result<Change, Error> {
    let line = format!("  IdentityFile {}\n", client::tokens(&setting_path(key)));
    change(places.our_config(), |text| {
        let known =
            text.is_empty() || text.split_inclusive(|byte| *byte == b'\n').any(|known| known == line.as_bytes());
        // It has one block, so what is last belongs to it.
        Some(if known { text.to_owned() } else { [text, line.as_bytes()].concat() })
    })
}

/// Carries a change out.
pub fn apply(change: &Change) -> Result<(), Error> {
    let failed = |source| Error::Write { path: change.path.display().to_string(), source };
    match &change.after {
        Some(after) => {
            if let Some(directory) = change.path.parent() {
                replace::make_directory(directory).map_err(failed)?;
            }
            replace::write(&change.path, after).map_err(failed)
        }
        None => match std::fs::remove_file(&change.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        },
    }
}

fn change(path: PathBuf, edit: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Result<Change, Error> {
    let before = replace::read(&path).map_err(|source| Error::Read { path: path.display().to_string(), source })?;
    let after = edit(&before);
    Ok(Change { path, before, after })
}

/// Servers come and go without this being written again: it speaks of all names with our ending.
fn block(route: &Route) -> String {
    let mut text = format!(
        "# Written by `devctl config-ssh`, which replaces it; `devctl config-ssh --remove` takes it away.\nHost *{SUFFIX}\n"
    );
    for (name, value) in route.settings() {
        text += &format!("  {name} {value}\n");
    }
    // A second session needs no second login. It stays for a while, and an open connection does not keep a server awake.
    text += &format!("  ControlMaster auto\n  ControlPath {}\n  ControlPersist 10m\n", route.control_path("%C"));
    text
}

/// It stands first, because behind a `Host` it would only count for that host.
fn with_include(text: &[u8], places: &Places) -> Vec<u8> {
    if effective(text).any(|line| includes(line, places)) {
        return text.to_owned();
    }
    // One that stands where it does not count is of no use.
    [include(places).as_bytes(), b"\n", &without_include(text, places)].concat()
}

fn without_include(text: &[u8], places: &Places) -> Vec<u8> {
    text.split_inclusive(|byte| *byte == b'\n').filter(|line| !includes(line, places)).flatten().copied().collect()
}

fn include(places: &Places) -> String {
    format!("Include {}", setting_path(&places.our_config()))
}

/// The lines that count for every host.
fn effective(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').take_while(|line| {
        let (keyword, _) = keyword(line);
        !keyword.eq_ignore_ascii_case(b"host") && !keyword.eq_ignore_ascii_case(b"match")
    })
}

/// Whether a line includes our file and nothing else, in any of the ways people write that.
fn includes(line: &[u8], places: &Places) -> bool {
    let (keyword, rest) = keyword(line);
    let Ok(rest) = std::str::from_utf8(rest) else { return false };
    let path = rest.trim().trim_matches('"');
    let ours = places.our_config();
    keyword.eq_ignore_ascii_case(b"include")
        && (ours.to_str() == Some(path) || path == "~/.ssh/odc/config" || path == "odc/config")
}

/// `Keyword value` or `Keyword=value`.
fn keyword(line: &[u8]) -> (&[u8], &[u8]) {
    let line = line.trim_ascii();
    let end = line.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'=').unwrap_or(line.len());
    let (keyword, rest) = line.split_at(end);
    let rest = rest.trim_ascii_start();
    (keyword, rest.strip_prefix(b"=").unwrap_or(rest))
}

/// A path as a value in a file of OpenSSH: in quotes if need be.
pub fn setting_path(path: &Path) -> String {
    let text = path.display().to_string();
    if text.contains([' ', '\t', '#', '\'']) { format!("\"{text}\"") } else { text }
}

#[cfg(test)]
mod tests;
