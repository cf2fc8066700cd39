//! The agent, sshd and the OpenSSH client. Processes are killed when their values are dropped.

#[path = "../../../agent/tests/ssh/client.rs"]
mod client;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::process::geteuid;
use tempfile::TempDir;

use super::KEY_EXCHANGE;
use client::client;

pub(crate) const UID: &str = "8f6001c5-f354-404c";
const SSHD: &str = "/usr/sbin/sshd";
/// Privilege separation directory of sshd, required if it runs as root.
const PRIVSEP_DIR: &str = "/run/sshd";
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_INTERVAL: Duration = Duration::from_micros(200);

/// Temporary directory with keys and home directories.
pub(crate) struct Fixture {
    directory: TempDir,
    created_privsep_dir: bool,
}

impl Fixture {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let created_privsep_dir = geteuid().is_root() && !Path::new(PRIVSEP_DIR).exists();
        let fixture = Self { directory: tempfile::tempdir()?, created_privsep_dir };
        if fixture.created_privsep_dir {
            fs::create_dir(PRIVSEP_DIR).with_context(|| format!("creating {PRIVSEP_DIR}"))?;
        }
        client::create_server_files(fixture.path()).context("creating keys")?;
        client::keygen(fixture.path(), "keys/control_ca").context("creating the control CA")?;
        Ok(fixture)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    fn join(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if self.created_privsep_dir {
            let _ = fs::remove_dir(PRIVSEP_DIR);
        }
    }
}

/// Kills the process when dropped.
pub(crate) struct ChildGuard(Child);

impl ChildGuard {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        Ok(Self(command.spawn().with_context(|| format!("{}", command.get_program().display()))?))
    }

    fn wait_success(&mut self) -> anyhow::Result<()> {
        let status = self.0.wait()?;
        ensure!(status.success(), "the process failed ({status})");
        Ok(())
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Server {
    process: ChildGuard,
    address: SocketAddr,
}

impl Server {
    /// Starts the agent and returns when it listens.
    pub(crate) fn agent(agent: &Path, fixture: &Fixture) -> anyhow::Result<Self> {
        Self::agent_at(agent, fixture, free_address()?)
    }

    pub(crate) fn agent_at(agent: &Path, fixture: &Fixture, address: SocketAddr) -> anyhow::Result<Self> {
        let mut command = Command::new(agent);
        command.args(["serve", "--server-uid", UID, "--listen", &address.to_string()]);
        command.args(["--keys", &fixture.join("keys"), "--state-dir", &fixture.join("state")]);
        command.env("HOME", fixture.path().join("home"));
        Self::start(&mut command, fixture, address)
    }

    pub(crate) fn openssh(fixture: &Fixture) -> anyhow::Result<Self> {
        let address = free_address()?;
        let settings = [
            format!("ListenAddress {address}"),
            format!("HostKey {}", fixture.join("keys/host_key")),
            format!("AuthorizedKeysFile {}", fixture.join("keys/authorized_keys")),
            // The same home as for the agent, so that the user's shell configuration is not measured.
            format!("SetEnv HOME={}", fixture.join("home")),
            "PidFile none".to_owned(),
            "StrictModes no".to_owned(),
            "UsePAM no".to_owned(),
            "UseDNS no".to_owned(),
            "PermitRootLogin yes".to_owned(),
            "PrintLastLog no".to_owned(),
        ];
        let file = PathBuf::from(fixture.join("sshd.conf"));
        fs::write(&file, settings.join("\n") + "\n")?;
        // sshd requires an absolute path, because it executes itself for every connection.
        Self::start(Command::new(SSHD).arg("-D").arg("-f").arg(file), fixture, address)
    }

    fn start(command: &mut Command, fixture: &Fixture, address: SocketAddr) -> anyhow::Result<Self> {
        let log = fs::File::create(fixture.join("log"))?;
        let process = ChildGuard::start(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log))?;
        let server = Self { process, address };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            let log = || fs::read_to_string(fixture.join("log")).unwrap_or_default();
            ensure!(
                started.elapsed() < LISTEN_TIMEOUT,
                "{} does not listen: {}",
                command.get_program().display(),
                log()
            );
            thread::sleep(CONNECT_INTERVAL);
        }
        Ok(server)
    }

    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        odc_local::process::resident_memory(self.process.0.id())
    }

    fn ssh(&self, fixture: &Fixture, cipher: &str) -> Command {
        let mut command = client("ssh", self.address.port(), fixture.path(), "id");
        command.arg(format!("-oCiphers={cipher}")).arg(format!("-oKexAlgorithms={KEY_EXCHANGE}"));
        // As the current user: without root, sshd accepts no other, and the agent accepts any.
        command.arg(self.address.ip().to_string());
        command
    }

    /// Measures `ssh host true`.
    pub(crate) fn log_in(&self, fixture: &Fixture, cipher: &str) -> anyhow::Result<Duration> {
        let started = Instant::now();
        ChildGuard::start(self.ssh(fixture, cipher).arg("true"))?.wait_success()?;
        Ok(started.elapsed())
    }

    /// Measures a transfer of zeros that does not touch disks. Includes the login.
    pub(crate) fn transfer(
        &self,
        fixture: &Fixture,
        cipher: &str,
        bytes: u64,
        upload: bool,
    ) -> anyhow::Result<Duration> {
        let mut command = self.ssh(fixture, cipher);
        let zeros = format!("head -c {bytes} /dev/zero");
        if !upload {
            let started = Instant::now();
            ChildGuard::start(command.arg(zeros).stdout(Stdio::null()))?.wait_success()?;
            return Ok(started.elapsed());
        }
        let mut source =
            ChildGuard::start(Command::new("sh").args(["-c", &format!("exec {zeros}")]).stdout(Stdio::piped()))?;
        let pipe = source.0.stdout.take().context("stdout is piped")?;
        let started = Instant::now();
        ChildGuard::start(command.arg("cat >/dev/null").stdin(pipe))?.wait_success()?;
        Ok(started.elapsed())
    }

    /// Returns when the other side has said something on its terminal.
    pub(crate) fn open_session(&self, fixture: &Fixture) -> anyhow::Result<ChildGuard> {
        let mut command = self.ssh(fixture, super::CIPHERS[0]);
        command.arg("-tt").arg("echo ready; exec sleep 1000").stdout(Stdio::piped());
        let mut session = ChildGuard::start(&mut command)?;
        let mut line = String::new();
        BufReader::new(session.0.stdout.take().context("stdout is piped")?).read_line(&mut line)?;
        ensure!(line.trim() == "ready", "unexpected output of the session: {line:?}");
        Ok(session)
    }
}

/// Returns an address that was free a moment ago.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Returns the version of OpenSSH.
pub(crate) fn version() -> anyhow::Result<String> {
    let output = Command::new("ssh").arg("-V").output()?;
    let version = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok(version.split(',').next().unwrap_or_default().to_owned())
}
