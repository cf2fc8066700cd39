//! Python with what some tests need of other people's, in the versions we chose.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

/// An environment with all that `requirements` lists, made by whoever comes first and kept for all. Gives its `python`.
pub fn environment(name: &str, requirements: &Path) -> PathBuf {
    let _lock = lock(name);
    let wanted = fs::read_to_string(requirements).unwrap();
    let environment = tools().join(name);
    let (python, made) = (environment.join("bin/python"), environment.join("requirements.txt"));
    // Its Python goes away with the one it was made from.
    let whole = fs::read_to_string(&made).is_ok_and(|made| made == wanted) && python.exists();
    if !whole {
        let _ = fs::remove_dir_all(&environment);
        must(Command::new("python3").args(["-m", "venv"]).arg(&environment));
        let quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"];
        must(Command::new(&python).args(quiet).arg(requirements));
        fs::write(made, wanted).unwrap();
    }
    python
}

/// Nobody else on this machine has it while the value lives.
pub fn lock(name: &str) -> File {
    fs::create_dir_all(tools()).unwrap();
    let lock = File::create(tools().join(format!("{name}.lock"))).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    lock
}

fn tools() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache"));
    cache.join("odc/tools")
}

fn must(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("Python 3, as in Debian's package python3-venv");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{command:?}, which needs Debian's package python3-venv and PyPI:\n{said}");
}
