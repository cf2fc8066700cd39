//! Servers that several tests share, though every test is a process of its own.
//!
//! The first test that needs a bed starts its keeper, `odc-testbed`. A test holds a connection to the keeper for as long
//! as it uses the bed, alone or with others; the keeper ends everything when nobody has come for a while. A test that is
//! killed lets go by dying.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Building nothing, starting everything; generous on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(400);

/// A keeper that finds another at work ends with this code.
pub const OTHER_KEEPER: i32 = 75;

/// What a connection says first; the keeper answers when it is granted.
pub const SHARED: u8 = b's';
pub const ALONE: u8 = b'a';
pub const GRANTED: u8 = b'g';

/// One kind of bed: a cloud of so many nodes; none means a control plane.
#[derive(Clone, Debug)]
pub struct Bed {
    pub nodes: u8,
    /// The cloud's state directory.
    pub directory: PathBuf,
}

/// Held while a test uses a bed.
#[derive(Debug)]
pub struct Lease {
    _connection: UnixStream,
}

impl Bed {
    pub fn of(nodes: u8) -> Self {
        Self { nodes, directory: std::env::temp_dir().join(format!("{}n{nodes}", prefix())) }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.with_extension("sock")
    }

    pub fn lock(&self) -> PathBuf {
        self.directory.with_extension("lock")
    }

    pub fn log(&self) -> PathBuf {
        self.directory.with_extension("log")
    }

    /// Waits for the bed, starting it if need be, and for its turn.
    pub async fn take(&self, mode: u8) -> anyhow::Result<Lease> {
        let started = Instant::now();
        loop {
            if let Some(lease) = self.try_take(mode).await? {
                return Ok(lease);
            }
            let mut keeper = self.start_keeper()?;
            while !self.socket().exists() {
                if let Some(status) = keeper.try_wait()? {
                    // Another keeper is at work, or just leaving: then ours must start when it is gone.
                    let other = status.code() == Some(OTHER_KEEPER);
                    anyhow::ensure!(
                        other,
                        "the test bed did not start ({status}):
{}",
                        self.last_words()
                    );
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    break;
                }
                anyhow::ensure!(
                    started.elapsed() < START_LIMIT,
                    "the test bed is not ready after {} s:\n{}",
                    START_LIMIT.as_secs(),
                    self.last_words()
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// Nothing if no keeper listens, or it was just about to leave.
    async fn try_take(&self, mode: u8) -> anyhow::Result<Option<Lease>> {
        let Ok(mut connection) = UnixStream::connect(self.socket()).await else {
            if self.is_orphaned()? {
                // Of a keeper that was killed.
                let _ = std::fs::remove_file(self.socket());
            }
            return Ok(None);
        };
        let mut answer = [0];
        let granted = async {
            connection.write_all(&[mode]).await?;
            connection.read_exact(&mut answer).await
        };
        Ok(match granted.await {
            Ok(_) if answer == [GRANTED] => Some(Lease { _connection: connection }),
            _ => None,
        })
    }

    fn is_orphaned(&self) -> anyhow::Result<bool> {
        let lock = std::fs::File::create(self.lock())?;
        Ok(lock.try_lock().is_ok())
    }

    fn start_keeper(&self) -> anyhow::Result<std::process::Child> {
        let log = std::fs::File::options().create(true).append(true).open(self.log())?;
        let keeper = executable("odc-testbed")?;
        Command::new(keeper)
            .arg(self.nodes.to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A runner that ends a test ends its process group; the bed is for the others too.
            .process_group(0)
            .spawn()
            .context("starting odc-testbed")
    }

    fn last_words(&self) -> String {
        odc_local::artifact::tail(&std::fs::read_to_string(self.log()).unwrap_or_default(), 20)
    }
}

/// What all directories of this clone's clouds begin with, so that two clones do not share and none is forgotten.
pub fn prefix() -> String {
    let hash = Sha256::digest(env!("CARGO_MANIFEST_DIR"));
    let short: String = hash.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    format!("odc-bed-{short}-")
}

/// What directories of servers that die with their test begin with; only their files can be left.
pub fn temporary() -> String {
    format!("{}tmp-", prefix())
}

/// One of our executables: where `./dev test` put them, or beside the running one.
pub fn executable(name: &str) -> anyhow::Result<PathBuf> {
    let named = std::env::var_os("ODC_BIN_DIR").map(PathBuf::from);
    let own = std::env::current_exe()?;
    let beside = own.ancestors().skip(1).take(2).map(Path::to_path_buf);
    let found = named.into_iter().chain(beside).map(|directory| directory.join(name)).find(|path| path.exists());
    found.with_context(|| format!("{name} is not built; run ./dev test, or `cargo build --bins` first"))
}

/// Runs `odc local` on the cloud in `directory`; gives what it said on both channels.
pub async fn odc_local(directory: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    let output = tokio::process::Command::new(executable("odc")?)
        .args(["local", "--dir"])
        .arg(directory)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Output { ok: output.status.success(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
}

#[derive(Clone, Debug)]
pub struct Output {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// What it printed, if it ended well.
    pub fn good(self) -> anyhow::Result<String> {
        anyhow::ensure!(self.ok, "odc local failed:\n{}", self.stderr);
        Ok(self.stdout)
    }
}
