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

/// Returns the response of an HTTP GET without TLS, with its head.
pub async fn http_get(address: &str, path: &str) -> anyhow::Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut connection = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    connection.read_to_string(&mut response).await?;
    Ok(response)
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
