//! Where the state of `init` and the logs of its scripts are kept: a directory that was named, or else one that both
//! sides find by themselves. `init` is the only writer.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::replace::replace;
use crate::state::{ParseError, State};

const FILE: &str = "init.json";

/// In the order in which writer and readers try them. The root may be read-only; in a pod the second is writable even then.
const DEFAULTS: [&str; 3] = ["/run/odc", "/dev/shm/odc", "/tmp/odc"];

#[derive(Debug)]
pub struct Directory(PathBuf);

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("init has written no state to {0}; if it never does, mount a writable directory there")]
    Missing(String),
    #[error("the init that wrote {0} is gone, and its successor has written nothing yet")]
    Stale(String),
    #[error("reading {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("reading {path}: {source}")]
    Parse { path: String, source: ParseError },
}

impl Directory {
    /// Finds the directory by writing the first state to it.
    pub fn with(state: &State, given: Option<&Path>) -> io::Result<Self> {
        let mut refusals = Vec::new();
        for path in candidates(given) {
            let directory = Self(path);
            match fs::create_dir_all(&directory.0).and_then(|()| directory.store(state)) {
                Ok(()) => return Ok(directory),
                Err(error) => refusals.push(format!("{}: {error}", directory.0.display())),
            }
        }
        Err(io::Error::other(refusals.join("; ")))
    }

    pub fn store(&self, state: &State) -> io::Result<()> {
        let text = serde_json::to_vec(state)?;
        replace(&self.0.join(FILE), 0o644, |file| file.write_all(&text))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The log of a script.
    pub fn log(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.log"))
    }
}

/// Where others than `init` may write beside it: where its state is, or else the first place that takes files.
pub fn find(given: Option<&Path>) -> io::Result<PathBuf> {
    let candidates = candidates(given);
    if let Some(path) = candidates.iter().find(|path| matches!(load_from(&path.join(FILE)), Ok(Some(_)))) {
        return Ok(path.clone());
    }
    let mut refusals = Vec::new();
    for path in candidates {
        match fs::create_dir_all(&path).and_then(|()| access(&path, Access::WRITE_OK).map_err(io::Error::from)) {
            Ok(()) => return Ok(path),
            Err(error) => refusals.push(format!("{}: {error}", path.display())),
        }
    }
    Err(io::Error::other(refusals.join("; ")))
}

/// The state of the `init` that runs now. One that an earlier life left in a better place does not hide it.
pub fn load(given: Option<&Path>) -> Result<State, LoadError> {
    let mut problem = None;
    for directory in candidates(given) {
        match load_from(&directory.join(FILE)) {
            Ok(Some(state)) => return Ok(state),
            Ok(None) => {}
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    Err(problem.unwrap_or_else(|| {
        let names: Vec<String> = candidates(given).iter().map(|path| path.display().to_string()).collect();
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
        Ok(state) if state.init.is_there() => Ok(Some(state)),
        Ok(_) => Err(LoadError::Stale(path)),
        Err(source) => Err(LoadError::Parse { path, source }),
    }
}

/// All places where the state may be, in the order in which they are tried.
pub fn candidates(given: Option<&Path>) -> Vec<PathBuf> {
    given.map_or_else(|| DEFAULTS.iter().map(PathBuf::from).collect(), |path| vec![path.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::process::Process;
    use crate::state::{Phase, VERSION};
    use std::time::Duration;

    fn state(init: Process) -> State {
        State {
            version: VERSION,
            init,
            phase: Phase::Running,
            phase_since: Duration::ZERO.into(),
            setup: None,
            entrypoint: None,
            pre_stop: None,
            serve: None,
        }
    }

    #[test]
    fn what_was_stored_is_loaded() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("made/for/it");
        assert!(matches!(load(Some(&path)), Err(LoadError::Missing(_))));
        let state = state(Process::own());
        Directory::with(&state, Some(&path)).unwrap();
        assert_eq!(load(Some(&path)).unwrap(), state);
    }

    #[test]
    fn the_state_of_an_earlier_life_is_not_taken_for_this_one() {
        let place = tempfile::tempdir().unwrap();
        let own = Process::own();
        let earlier = Process { start_ticks: own.start_ticks.map(|ticks| ticks - 1), ..own };
        let directory = Directory::with(&state(earlier), Some(place.path())).unwrap();
        assert!(matches!(load(Some(place.path())), Err(LoadError::Stale(_))));
        directory.store(&state(own)).unwrap();
        assert_eq!(load(Some(place.path())).unwrap(), state(own));
    }

    #[test]
    fn a_place_that_takes_no_files_is_named() {
        let error = Directory::with(&state(Process::own()), Some(Path::new("/dev/null/x"))).unwrap_err();
        assert!(error.to_string().starts_with("/dev/null/x: "), "{error}");
    }
}
