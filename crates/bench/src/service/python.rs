//! Python with the packages of the peers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

const ENVIRONMENT: &str = "bench-service-peers";

/// Returns the directory of the programs of the peers.
pub(super) fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Returns the `python` of an environment with the required packages, which is created once.
pub(super) fn environment() -> anyhow::Result<PathBuf> {
    let requirements = programs().join("requirements.txt");
    let required = fs::read_to_string(&requirements)?;
    let tools = odc_local::artifact::cache_dir()?.join("tools");
    fs::create_dir_all(&tools)?;
    let lock = File::create(tools.join(format!("{ENVIRONMENT}.lock")))?;
    lock.lock()?;
    let environment = tools.join(ENVIRONMENT);
    let (python, installed) = (environment.join("bin/python"), environment.join("requirements.txt"));
    // The interpreter is a link to that of the system, which may have been removed.
    let is_complete = fs::read_to_string(&installed).is_ok_and(|installed| installed == required) && python.exists();
    if !is_complete {
        match fs::remove_dir_all(&environment) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"];
        run(Command::new(&python).args(install).arg(&requirements))?;
        fs::write(installed, required)?;
    }
    Ok(python)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success(),
        "{command:?} failed:\n{errors}\nhint: it needs Debian's package python3-venv and access to PyPI"
    );
    Ok(())
}
