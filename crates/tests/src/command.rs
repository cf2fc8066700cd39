//! Executables of the workspace, run as child processes.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;

/// Captured output of a finished command.
#[derive(Clone, Debug)]
pub struct Output {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// Returns standard output, or an error that contains standard error if the command failed.
    pub fn check(self) -> anyhow::Result<String> {
        anyhow::ensure!(self.success, "odc local failed:\n{}", self.stderr);
        Ok(self.stdout)
    }
}

/// Returns the path of an executable of the workspace: from `ODC_BIN_DIR`, or from the directory of the test executable.
pub fn executable(name: &str) -> anyhow::Result<PathBuf> {
    let configured = std::env::var_os("ODC_BIN_DIR").map(PathBuf::from);
    let current = std::env::current_exe()?;
    let nearby = current.ancestors().skip(1).take(2).map(Path::to_path_buf);
    let found = configured.into_iter().chain(nearby).map(|directory| directory.join(name)).find(|path| path.exists());
    found.with_context(|| format!("{name} is not built; run `./dev test`, or `cargo build --bins` first"))
}

/// Runs `odc local` on the cluster whose state is in `directory`.
pub async fn odc_local(directory: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    let output = tokio::process::Command::new(executable("odc")?)
        .args(["local", "--dir"])
        .arg(directory)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Output { success: output.status.success(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
}
