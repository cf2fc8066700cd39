//! Both servers, and the client that talks to them. All end with their values.

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
/// Where sshd wants to find nothing, if it is root.
const EMPTY: &str = "/run/sshd";
const LIMIT: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_micros(200);

/// Keys and homes.
pub(crate) struct Place {
    directory: TempDir,
    made_empty: bool,
}

impl Place {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let made_empty = geteuid().is_root() && !Path::new(EMPTY).exists();
        let place = Self { directory: tempfile::tempdir()?, made_empty };
        if place.made_empty {
            fs::create_dir(EMPTY).with_context(|| format!("making {EMPTY}"))?;
        }
        client::furnish(place.path()).context("making keys")?;
        client::keygen(place.path(), "keys/control_ca").context("making the control CA")?;
        Ok(place)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    fn of(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.made_empty {
            let _ = fs::remove_dir(EMPTY);
        }
    }
}

/// Ends with the value.
pub(crate) struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        Ok(Self(command.spawn().with_context(|| format!("{}", command.get_program().display()))?))
    }

    fn succeed(&mut self) -> anyhow::Result<()> {
        let status = self.0.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Server {
    process: Running,
    address: SocketAddr,
}

impl Server {
    /// Returns as soon as it listens.
    pub(crate) fn agent(agent: &Path, place: &Place) -> anyhow::Result<Self> {
        Self::agent_at(agent, place, free_address()?)
    }

    pub(crate) fn agent_at(agent: &Path, place: &Place, address: SocketAddr) -> anyhow::Result<Self> {
        let mut command = Command::new(agent);
        command.args(["serve", "--server-uid", UID, "--listen", &address.to_string()]);
        command.args(["--keys", &place.of("keys"), "--state-dir", &place.of("state")]);
        command.env("HOME", place.path().join("home"));
        Self::start(&mut command, place, address)
    }

    pub(crate) fn openssh(place: &Place) -> anyhow::Result<Self> {
        let address = free_address()?;
        let settings = [
            format!("ListenAddress {address}"),
            format!("HostKey {}", place.of("keys/host_key")),
            format!("AuthorizedKeysFile {}", place.of("keys/authorized_keys")),
            // Whatever the shell of whoever measures does when it starts, it would do for only one of them.
            format!("SetEnv HOME={}", place.of("home")),
            "PidFile none".to_owned(),
            "StrictModes no".to_owned(),
            "UsePAM no".to_owned(),
            "UseDNS no".to_owned(),
            "PermitRootLogin yes".to_owned(),
            "PrintLastLog no".to_owned(),
        ];
        let file = PathBuf::from(place.of("sshd.conf"));
        fs::write(&file, settings.join("\n") + "\n")?;
        // It wants to know where it lies, because it starts itself anew for each connection.
        Self::start(Command::new(SSHD).arg("-D").arg("-f").arg(file), place, address)
    }

    fn start(command: &mut Command, place: &Place, address: SocketAddr) -> anyhow::Result<Self> {
        let log = fs::File::create(place.of("log"))?;
        let process = Running::start(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log))?;
        let server = Self { process, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            let said = || fs::read_to_string(place.of("log")).unwrap_or_default();
            ensure!(begun.elapsed() < LIMIT, "{} does not listen: {}", command.get_program().display(), said());
            thread::sleep(GLANCE);
        }
        Ok(server)
    }

    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a process has memory")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? << 10)
    }

    fn ssh(&self, place: &Place, cipher: &str) -> Command {
        let mut command = client("ssh", self.address.port(), place.path(), "id");
        command.arg(format!("-oCiphers={cipher}")).arg(format!("-oKexAlgorithms={KEY_EXCHANGE}"));
        // As whoever we are: sshd lets nobody else in without being root, and the agent does not mind.
        command.arg(self.address.ip().to_string());
        command
    }

    /// There and back, with nothing to do in between.
    pub(crate) fn log_in(&self, place: &Place, cipher: &str) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        Running::start(self.ssh(place, cipher).arg("true"))?.succeed()?;
        Ok(begun.elapsed())
    }

    /// Zeros, without disks. The time of the login is in it.
    pub(crate) fn transfer(&self, place: &Place, cipher: &str, bytes: u64, upwards: bool) -> anyhow::Result<Duration> {
        let mut command = self.ssh(place, cipher);
        let zeros = format!("head -c {bytes} /dev/zero");
        if !upwards {
            let begun = Instant::now();
            Running::start(command.arg(zeros).stdout(Stdio::null()))?.succeed()?;
            return Ok(begun.elapsed());
        }
        let mut source =
            Running::start(Command::new("sh").args(["-c", &format!("exec {zeros}")]).stdout(Stdio::piped()))?;
        let pipe = source.0.stdout.take().context("a pipe")?;
        let begun = Instant::now();
        Running::start(command.arg("cat >/dev/null").stdin(pipe))?.succeed()?;
        Ok(begun.elapsed())
    }

    /// Returns when the other side has said something on its terminal.
    pub(crate) fn open_session(&self, place: &Place) -> anyhow::Result<Running> {
        let mut command = self.ssh(place, super::CIPHERS[0]);
        command.arg("-tt").arg("echo ready; exec sleep 1000").stdout(Stdio::piped());
        let mut session = Running::start(&mut command)?;
        let mut line = String::new();
        BufReader::new(session.0.stdout.take().context("a pipe")?).read_line(&mut line)?;
        ensure!(line.trim() == "ready", "the session said {line:?}");
        Ok(session)
    }
}

/// Free at least a moment ago.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Of OpenSSH.
pub(crate) fn version() -> anyhow::Result<String> {
    let output = Command::new("ssh").arg("-V").output()?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok(said.split(',').next().unwrap_or_default().to_owned())
}
