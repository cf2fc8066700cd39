//! Locates the directory for the state of `init` and the logs of scripts: the configured one, or the first usable
//! default. Writer and readers apply the same rule. Only `init` writes its state.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::atomic_write::write_atomic;
use crate::init_state::{ParseError, State};

const STATE_FILE: &str = "init.json";

/// In the order in which writer and readers try them. `/dev/shm` is writable in a pod with a read-only root.
const DEFAULT_DIRS: [&str; 3] = ["/run/odc", "/dev/shm/odc", "/tmp/odc"];

#[derive(Debug)]
pub struct StateDirectory(PathBuf);

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("init has not written its state to {0} yet; if this persists, mount a writable directory there")]
    Missing(String),
    #[error("{0} was written by an earlier init; the current one has not written its state yet")]
    Stale(String),
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("cannot read {path}: {source}")]
    Parse { path: String, source: ParseError },
}

impl StateDirectory {
    /// Selects the first directory to which `state` can be written.
    pub fn create(state: &State, configured: Option<&Path>) -> io::Result<Self> {
        let mut failures = Vec::new();
        for path in candidates(configured) {
            let directory = Self(path);
            match fs::create_dir_all(&directory.0).and_then(|()| directory.store(state)) {
                Ok(()) => return Ok(directory),
                Err(error) => failures.push(format!("{}: {error}", directory.0.display())),
            }
        }
        Err(io::Error::other(failures.join("; ")))
    }

    pub fn store(&self, state: &State) -> io::Result<()> {
        let text = serde_json::to_vec(state)?;
        write_atomic(&self.0.join(STATE_FILE), 0o644, |file| file.write_all(&text))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the log file of a script.
    pub fn log_file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.log"))
    }
}

/// Returns the directory that has the state of the current `init`, or else the first writable one.
pub fn find(configured: Option<&Path>) -> io::Result<PathBuf> {
    let candidates = candidates(configured);
    if let Some(path) = candidates.iter().find(|path| matches!(load_from(&path.join(STATE_FILE)), Ok(Some(_)))) {
        return Ok(path.clone());
    }
    let mut failures = Vec::new();
    for path in candidates {
        match fs::create_dir_all(&path).and_then(|()| access(&path, Access::WRITE_OK).map_err(io::Error::from)) {
            Ok(()) => return Ok(path),
            Err(error) => failures.push(format!("{}: {error}", path.display())),
        }
    }
    Err(io::Error::other(failures.join("; ")))
}

/// Returns the state of the current `init`. A stale file in a preferred directory does not hide it.
pub fn load(configured: Option<&Path>) -> Result<State, LoadError> {
    let mut first_error = None;
    for directory in candidates(configured) {
        match load_from(&directory.join(STATE_FILE)) {
            Ok(Some(state)) => return Ok(state),
            Ok(None) => {}
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| {
        let names: Vec<String> = candidates(configured).iter().map(|path| path.display().to_string()).collect();
        LoadError::Missing(names.join(" or "))
    }))
}

fn load_from(file: &Path) -> Result<Option<State>, LoadError> {
    let path = file.display().to_string();
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(LoadError::Read { path, source }),
    };
    match State::parse(&text) {
        Ok(state) if state.init.may_exist() => Ok(Some(state)),
        Ok(_) => Err(LoadError::Stale(path)),
        Err(source) => Err(LoadError::Parse { path, source }),
    }
}

/// Returns the directories that may hold the state, in order of preference.
pub fn candidates(configured: Option<&Path>) -> Vec<PathBuf> {
    configured.map_or_else(|| DEFAULT_DIRS.iter().map(PathBuf::from).collect(), |path| vec![path.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init_state::{Phase, VERSION};
    use crate::process_id::ProcessId;
    use std::time::Duration;

    fn state(init: ProcessId) -> State {
        State {
            version: VERSION,
            init,
            phase: Phase::Running,
            phase_since: Duration::ZERO.into(),
            startup_files: None,
            setup: None,
            entrypoint: None,
            pre_stop: None,
            serve: None,
        }
    }

    #[test]
    fn stored_state_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        assert!(matches!(load(Some(&path)), Err(LoadError::Missing(_))));
        let state = state(ProcessId::current());
        StateDirectory::create(&state, Some(&path)).unwrap();
        assert_eq!(load(Some(&path)).unwrap(), state);
    }

    #[test]
    fn state_of_an_earlier_init_is_stale() {
        let dir = tempfile::tempdir().unwrap();
        let current = ProcessId::current();
        let earlier = ProcessId { start_ticks: current.start_ticks.map(|ticks| ticks - 1), ..current };
        let directory = StateDirectory::create(&state(earlier), Some(dir.path())).unwrap();
        assert!(matches!(load(Some(dir.path())), Err(LoadError::Stale(_))));
        directory.store(&state(current)).unwrap();
        assert_eq!(load(Some(dir.path())).unwrap(), state(current));
    }

    #[test]
    fn unwritable_directory_is_named_in_the_error() {
        let error = StateDirectory::create(&state(ProcessId::current()), Some(Path::new("/dev/null/x"))).unwrap_err();
        assert!(error.to_string().starts_with("/dev/null/x: "), "{error}");
    }
}
