//! A server and its clients. All processes are killed when the values are dropped.

#[path = "client.rs"]
pub mod client;

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Read as _;
use std::iter;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use odc_agent::init_state::State;
use odc_agent::serve::endpoint_file::ServeEndpoint;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use client::client;

pub const AGENT: &str = env!("CARGO_BIN_EXE_odc-agent");
pub const UID: &str = "8f6001c5-f354-404c";

/// Generous, for busy machines.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Server {
    pub dir: TempDir,
    process: Child,
    pub address: SocketAddr,
}

pub struct ServerBuilder {
    dir: TempDir,
    listen: String,
    flags: Vec<String>,
    serve_only: bool,
    wrapper: Option<String>,
    before: Option<String>,
    environment: Vec<(&'static str, OsString)>,
}

impl ServerBuilder {
    /// Creates a host key, and `id` as an authorized key.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        client::create_server_files(dir.path()).unwrap();
        Self {
            dir,
            listen: "127.0.0.1:0".to_owned(),
            flags: Vec::new(),
            serve_only: false,
            wrapper: None,
            before: None,
            environment: vec![],
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn dir_path(&self) -> &Path {
        self.dir.path()
    }

    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// Uses a port that does not change when `serve` restarts.
    pub fn fixed_port(mut self) -> Self {
        self.listen = format!("127.0.0.1:{}", free_port());
        self
    }

    pub fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Runs `serve` without `init`.
    pub fn serve_only(mut self) -> Self {
        self.serve_only = true;
        self
    }

    /// Runs a script before the agent, which must `exec` its arguments. `$R` is the directory of the server.
    pub fn wrapper(mut self, lines: &str) -> Self {
        self.wrapper = Some(lines.to_owned());
        self
    }

    /// Runs a script before the agent in its mount namespace. `$R` is the directory of the server.
    pub fn before(mut self, lines: &str) -> Self {
        self.before = Some(format!("{lines}\nexec \"$@\""));
        self
    }

    pub fn start(self) -> Server {
        let path = |name: &str| self.dir.path().join(name);
        let mut command = if self.serve_only {
            let mut command = Command::new(AGENT);
            command.arg("serve");
            command
        } else {
            let mut command = Command::new("unshare");
            if !geteuid().is_root() {
                command.args(["--user", "--map-root-user"]);
            }
            command.args(["--pid", "--mount", "--fork", "--kill-child=KILL", "--mount-proc"]);
            match (&self.wrapper, &self.before) {
                (Some(lines), _) => command.args(["/bin/sh", "-ec", lines, "sh", "/odc-agent"]),
                (None, Some(lines)) => command.args(["/bin/sh", "-ec", lines, "sh", AGENT]),
                (None, None) => command.arg(AGENT),
            };
            command.args(["init", "--serve"]);
            command
        };
        let (keys, state) = match self.wrapper {
            Some(_) => (PathBuf::from("/keys"), PathBuf::from("/state")),
            None => (path("keys"), path("state")),
        };
        command.arg("--keys").arg(keys).arg("--state-dir").arg(state).args(["--server-uid", UID]);
        command.args(["--listen", &self.listen]).args(&self.flags);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", if self.wrapper.is_some() { PathBuf::from("/home") } else { path("home") });
        command.env("R", self.dir.path()).env("AGENT", AGENT);
        command.env("ODC_SERVER", "ada-1").env("ODC_FLAVOR", "h100").env("OMP_NUM_THREADS", "7");
        command.envs(self.environment);
        let log = File::create(path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process = command.spawn().unwrap();
        let mut server = Server { dir: self.dir, process, address: ([127, 0, 0, 1], 0).into() };
        server.address = wait_until("it listens", || server.listen_address());
        server
    }
}

impl Server {
    pub fn start() -> Self {
        ServerBuilder::new().start()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    pub fn wait_for_text(&self, name: &str, text: &str) {
        wait_until(text, || self.text(name).contains(text).then_some(()));
    }

    /// PIDs in the file belong to another namespace, so they are not checked.
    fn listen_address(&self) -> Option<SocketAddr> {
        let endpoint: ServeEndpoint = serde_json::from_slice(&fs::read(self.path("state/serve.json")).ok()?).unwrap();
        Some(endpoint.loopback_address())
    }

    pub fn state(&self) -> State {
        State::parse(&fs::read(self.path("state/init.json")).unwrap()).unwrap()
    }

    pub fn client(&self, program: &str) -> Command {
        let mut command = client(program, self.address.port(), self.dir.path(), "id");
        command.env_remove("LANG");
        command
    }

    /// Returns `ssh` with these arguments before the host.
    pub fn ssh(&self, args: &[&str]) -> Command {
        let mut command = self.client("ssh");
        command.args(args).arg("dev@127.0.0.1");
        command
    }

    pub fn run(&self, line: &str) -> Output {
        self.ssh(&[]).arg(line).output().unwrap()
    }

    /// Returns the output of a command, which must succeed.
    pub fn stdout(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Returns the PID of `init` outside its namespace.
    pub fn init_pid(&self) -> Option<u32> {
        children(self.pid()).first().copied()
    }

    /// Sends SIGTERM, as a container runtime does.
    pub fn terminate(&self) {
        let init = self.init_pid().expect("it is running").try_into().unwrap();
        kill_process(Pid::from_raw(init).unwrap(), Signal::TERM).unwrap();
    }

    pub fn has_exited(&self) -> bool {
        self.init_pid().is_none()
    }

    /// Returns the PID of `serve` outside its namespace, while it runs.
    pub fn serve_pid(&self) -> Option<u32> {
        children(self.init_pid()?).into_iter().find(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(b"serve")
        })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let mut text = String::new();
            let _ = File::open(self.path("log")).and_then(|mut file| file.read_to_string(&mut text));
            eprintln!("log of the server:\n{text}");
        }
    }
}

/// Kills the process when dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub fn code(&mut self) -> Option<i32> {
        wait_until("the client exits", || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

pub fn keygen(dir: &Path, name: &str) {
    client::keygen(dir, name).unwrap();
}

/// Polls until there is a value.
pub fn wait_until<T>(condition: &str, poll: impl FnMut() -> Option<T>) -> T {
    wait_timeout(WAIT_TIMEOUT, condition, poll)
}

pub fn wait_timeout<T>(timeout: Duration, condition: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(started.elapsed() < timeout, "timed out waiting until {condition}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns pseudo-random bytes, which do not compress.
/// Returns a free port below the ephemeral range. The kernel assigns ports of that range to other sockets at any time.
pub fn free_port() -> u16 {
    // Each RandomState has other keys.
    let random = || 20_000 + u16::try_from(RandomState::new().build_hasher().finish() % 10_000).unwrap();
    iter::repeat_with(random).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

pub fn random_bytes(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
