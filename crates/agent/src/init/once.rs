//! The preStop script runs once in a container's life, whoever is asked first: `serve`, when the operator prepares a stop,
//! or `init`, when the container is told to end. A file that only one of them can make decides, and another one tells how
//! the script ended.
//!
//! The directory may outlive the container, so the names carry which life it is.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::outcome::Outcome;
use crate::random;
use crate::replace::replace;
use crate::state::process::Process;

/// More than any of the files holds.
const LARGEST: u64 = 64 << 10;

#[derive(Clone, Debug)]
pub struct Once {
    directory: PathBuf,
    life: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// We run it, and must say how it ended.
    Ours,
    /// Somebody else does or did; see [`Once::look`].
    Theirs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    NotBegun,
    Running,
    Ended(Outcome),
}

impl Once {
    pub fn new(state: &Path) -> Self {
        let life = Process::init().start_ticks.map_or_else(|| "unknown".to_owned(), |ticks| ticks.to_string());
        Self { directory: state.to_owned(), life }
    }

    /// An error means that nobody can take turns here; whoever gets it had better run the script.
    pub fn claim(&self) -> io::Result<Claim> {
        // A link is made as a whole, with the content of what it leads to: nobody ever sees half a claim.
        let draft = self.directory.join(format!("pre-stop-{}.claim", random::hex::<8>()));
        write(&draft, &Process::own())?;
        let made = fs::hard_link(&draft, self.file("started"));
        let _ = fs::remove_file(&draft);
        match made {
            Ok(()) => Ok(Claim::Ours),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Claim::Theirs),
            Err(error) => Err(error),
        }
    }

    /// Which process it is. If we die, others can still see when it ends.
    pub fn began(&self, script: Process) -> io::Result<()> {
        write(&self.file("running"), &script)
    }

    pub fn finish(&self, outcome: &Outcome) -> io::Result<()> {
        write(&self.file("json"), outcome)
    }

    pub fn look(&self) -> Look {
        if let Some(outcome) = read(&self.file("json")) {
            return Look::Ended(outcome);
        }
        let Some(claimant) = read::<Process>(&self.file("started")) else { return Look::NotBegun };
        let script = read::<Process>(&self.file("running"));
        if claimant.runs() || script.is_some_and(|script| script.runs()) {
            return Look::Running;
        }
        // It may have said so between our looks.
        read(&self.file("json")).map_or_else(|| Look::Ended(lost()), Look::Ended)
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("pre-stop-{}.{kind}", self.life))
    }
}

/// It is over, and nobody is left who knows how it went.
fn lost() -> Outcome {
    Outcome::NotStarted { code: 126, reason: "whoever ran it died before it ended".to_owned() }
}

fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    replace(path, 0o644, |file| file.write_all(&text))
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(LARGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn of_many_only_one_runs_it() {
        let place = tempfile::tempdir().unwrap();
        let once = Once::new(place.path());
        assert_eq!(once.look(), Look::NotBegun);
        let barrier = Barrier::new(8);
        let ours = thread::scope(|scope| {
            let claim = || {
                barrier.wait();
                once.claim().unwrap() == Claim::Ours
            };
            let all: Vec<_> = (0..8).map(|_| scope.spawn(claim)).collect();
            all.into_iter().map(|one| one.join().unwrap()).filter(|ours| *ours).count()
        });
        assert_eq!(ours, 1);
        assert_eq!(once.look(), Look::Running);
        once.finish(&Outcome::Code(3)).unwrap();
        assert_eq!(once.look(), Look::Ended(Outcome::Code(3)));
        assert_eq!(once.claim().unwrap(), Claim::Theirs);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "claims leave nothing else");
    }

    #[test]
    fn another_life_of_the_container_runs_it_again() {
        let place = tempfile::tempdir().unwrap();
        let once = Once::new(place.path());
        once.claim().unwrap();
        let next = Once { life: "another".to_owned(), ..once };
        assert_eq!((next.look(), next.claim().unwrap()), (Look::NotBegun, Claim::Ours));
    }

    #[test]
    fn a_script_whose_starter_died_is_waited_for_and_then_lost() {
        let place = tempfile::tempdir().unwrap();
        let once = Once::new(place.path());
        let mut gone = Command::new("true").spawn().unwrap();
        let dead = Process::of(gone.id()).unwrap();
        gone.wait().unwrap();
        write(&once.file("started"), &dead).unwrap();
        let mut script = Command::new("sleep").arg("1000").spawn().unwrap();
        once.began(Process::of(script.id()).unwrap()).unwrap();
        let running = once.look();
        script.kill().unwrap();
        script.wait().unwrap();
        assert_eq!(running, Look::Running);
        assert_eq!(once.look(), Look::Ended(lost()));
    }

    #[test]
    fn a_place_that_takes_no_files_is_an_error() {
        assert!(Once::new(Path::new("/dev/null/x")).claim().is_err());
    }
}
