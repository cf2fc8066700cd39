//! Clusters that several test processes share.
//!
//! The first test that needs a cluster starts its daemon, `odc-testbed`. A test keeps a connection to the daemon open for as
//! long as it uses the cluster, shared or exclusively. The daemon stops the cluster when no test has connected for a while.
//! A killed test releases the cluster because the kernel closes its connection.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::command::executable;

/// Start of all components on a busy machine, without building anything.
const START_TIMEOUT: Duration = Duration::from_secs(400);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Exit code of a daemon that finds another one running (`EX_TEMPFAIL`).
pub const EXIT_ALREADY_RUNNING: i32 = 75;

/// Reply of the daemon once the requested use is granted.
pub const GRANTED: u8 = b'g';

/// How a test uses the cluster. The first byte of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    Shared = b's',
    Exclusive = b'x',
}

impl Mode {
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Shared, Self::Exclusive].into_iter().find(|mode| *mode as u8 == byte)
    }
}

/// Number of control planes that tests use in turn.
pub const CONTROL_PLANES: u8 = 3;

/// What a shared cluster is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Nodes for running pods. Zero nodes is a control plane for tests in their own namespaces.
    Nodes(u8),
    /// A control plane with ODC installed, for one test at a time.
    ControlPlane(u8),
}

impl Purpose {
    /// Returns all shared clusters.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Nodes(0), Self::Nodes(2)].into_iter().chain((0..CONTROL_PLANES).map(Self::ControlPlane))
    }

    /// Returns the number of nodes.
    pub fn nodes(self) -> u8 {
        match self {
            Self::Nodes(nodes) => nodes,
            Self::ControlPlane(_) => 0,
        }
    }
}

impl std::fmt::Display for Purpose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nodes(nodes) => write!(f, "n{nodes}"),
            Self::ControlPlane(index) => write!(f, "control-plane-{index}"),
        }
    }
}

impl std::str::FromStr for Purpose {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        Self::all().find(|purpose| purpose.to_string() == name).with_context(|| format!("unknown cluster {name}"))
    }
}

/// One of the shared clusters.
#[derive(Clone, Debug)]
pub struct SharedCluster {
    pub purpose: Purpose,
    /// State directory of the cluster.
    pub directory: PathBuf,
}

/// Releases the cluster when dropped.
#[derive(Debug)]
pub struct ClusterLease {
    _connection: UnixStream,
}

impl SharedCluster {
    pub fn new(purpose: Purpose) -> Self {
        Self { purpose, directory: std::env::temp_dir().join(format!("{}{purpose}", directory_prefix())) }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.with_extension("sock")
    }

    pub fn lock(&self) -> PathBuf {
        self.directory.with_extension("lock")
    }

    /// Locked by the test that uses a control plane.
    pub fn in_use(&self) -> PathBuf {
        self.directory.with_extension("use")
    }

    pub fn log(&self) -> PathBuf {
        self.directory.with_extension("log")
    }

    /// Starts the daemon if necessary and waits until it grants the use. Waits without limit for exclusive users.
    pub async fn acquire(&self, mode: Mode) -> anyhow::Result<ClusterLease> {
        let started = Instant::now();
        loop {
            if let Some(guard) = self.try_acquire(mode).await? {
                return Ok(guard);
            }
            let mut daemon = self.start_daemon()?;
            while !self.socket().exists() {
                anyhow::ensure!(
                    started.elapsed() < START_TIMEOUT,
                    "the shared cluster is not ready after {}s:\n{}",
                    START_TIMEOUT.as_secs(),
                    self.log_tail()
                );
                let status = daemon.try_wait()?;
                tokio::time::sleep(POLL_INTERVAL).await;
                let Some(status) = status else { continue };
                // Another daemon is starting or stopping. Start ours when that one has exited.
                anyhow::ensure!(
                    status.code() == Some(EXIT_ALREADY_RUNNING),
                    "odc-testbed did not start ({status}):\n{}",
                    self.log_tail()
                );
                break;
            }
        }
    }

    /// Returns `None` if no daemon listens or the daemon is shutting down.
    async fn try_acquire(&self, mode: Mode) -> anyhow::Result<Option<ClusterLease>> {
        let Ok(mut connection) = UnixStream::connect(self.socket()).await else {
            if !self.has_daemon()? {
                // Left behind by a killed daemon.
                let _ = std::fs::remove_file(self.socket());
            }
            return Ok(None);
        };
        let mut reply = [0];
        let exchange = async {
            connection.write_all(&[mode as u8]).await?;
            connection.read_exact(&mut reply).await
        };
        Ok(match exchange.await {
            Ok(_) if reply == [GRANTED] => Some(ClusterLease { _connection: connection }),
            _ => None,
        })
    }

    fn has_daemon(&self) -> anyhow::Result<bool> {
        let lock = std::fs::File::create(self.lock())?;
        Ok(lock.try_lock().is_err())
    }

    fn start_daemon(&self) -> anyhow::Result<Child> {
        let log = std::fs::File::options().create(true).append(true).open(self.log())?;
        Command::new(executable("odc-testbed")?)
            .arg(self.purpose.to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A test runner kills the process group of a test, and other tests still use the cluster.
            .process_group(0)
            .spawn()
            .context("starting odc-testbed")
    }

    fn log_tail(&self) -> String {
        odc_local::artifact::tail(&std::fs::read_to_string(self.log()).unwrap_or_default(), 20)
    }
}

/// Prefix of the state directories of this clone, so that clones do not share clusters and leftovers are found.
pub fn directory_prefix() -> String {
    let hash = Sha256::digest(env!("CARGO_MANIFEST_DIR"));
    let short: String = hash.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    format!("odc-test-cluster-{short}-")
}

/// Prefix of the directories of servers that the kernel stops with their test. Only files can be left there.
pub fn temporary_directory_prefix() -> String {
    format!("{}tmp-", directory_prefix())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_purpose_round_trips() {
        for purpose in Purpose::all() {
            assert_eq!(purpose.to_string().parse::<Purpose>().unwrap(), purpose);
        }
        assert!("n7".parse::<Purpose>().is_err());
    }

    #[test]
    fn mode_byte_round_trips() {
        for mode in [Mode::Shared, Mode::Exclusive] {
            assert_eq!(Mode::from_byte(mode as u8), Some(mode));
        }
        assert_eq!(Mode::from_byte(GRANTED), None);
    }
}
