//! Python virtual environments with pinned packages.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

/// Returns the `python` of an environment with the packages in `requirements`. The environment is created once and
/// shared by all tests.
pub fn environment(name: &str, requirements: &Path) -> PathBuf {
    let _lock = lock(name);
    let required = fs::read_to_string(requirements).unwrap();
    let environment = tools().join(name);
    let (python, installed) = (environment.join("bin/python"), environment.join("requirements.txt"));
    // The interpreter is a link to that of the system, which may have been removed.
    let is_complete = fs::read_to_string(&installed).is_ok_and(|installed| installed == required) && python.exists();
    if !is_complete {
        let _ = fs::remove_dir_all(&environment);
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"];
        run(Command::new(&python).args(install).arg(requirements));
        fs::write(installed, required).unwrap();
    }
    python
}

/// Holds a lock for this machine until the value is dropped.
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

fn run(command: &mut Command) {
    let result = command.stdin(Stdio::null()).output().expect("Python 3, as in Debian's package python3-venv");
    let output = [result.stdout, result.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(result.status.success(), "{command:?}, which needs Debian's package python3-venv and PyPI:\n{output}");
}
