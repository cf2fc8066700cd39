//! A server to log in to, and the clients that do. All processes end with the value.

#[path = "client.rs"]
pub mod client;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use odc_agent::serve::marker::Marker;
use odc_agent::state::State;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use client::client;

pub const AGENT: &str = env!("CARGO_BIN_EXE_odc-agent");
pub const UID: &str = "8f6001c5-f354-404c";

/// Longer than anything takes, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

pub struct Server {
    pub place: TempDir,
    process: Child,
    pub address: SocketAddr,
}

pub struct Plan {
    place: TempDir,
    listen: String,
    flags: Vec<String>,
    serve_only: bool,
    wrapper: Option<String>,
    before: Option<String>,
    environment: Vec<(&'static str, OsString)>,
}

impl Plan {
    /// With a host key, and `id` as the key of the one who may log in.
    pub fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        client::furnish(place.path()).unwrap();
        Self {
            place,
            listen: "127.0.0.1:0".to_owned(),
            flags: Vec::new(),
            serve_only: false,
            wrapper: None,
            before: None,
            environment: vec![],
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn place_path(&self) -> &Path {
        self.place.path()
    }

    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// On a port that stays the same when `serve` is started again.
    pub fn fixed_port(mut self) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        self.listen = listener.local_addr().unwrap().to_string();
        self
    }

    pub fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Without `init`; for those who start nothing.
    pub fn alone(mut self) -> Self {
        self.serve_only = true;
        self
    }

    /// Shell lines before the agent, which end with what it takes to become it. `$R` is the place.
    pub fn wrapper(mut self, lines: &str) -> Self {
        self.wrapper = Some(lines.to_owned());
        self
    }

    /// Shell lines before the agent, for mounts that only its server sees. `$R` is the place.
    pub fn before(mut self, lines: &str) -> Self {
        self.before = Some(format!("{lines}\nexec \"$@\""));
        self
    }

    pub fn start(self) -> Server {
        let path = |name: &str| self.place.path().join(name);
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
        command.env("R", self.place.path()).env("AGENT", AGENT);
        command.env("ODC_SERVER", "ada-1").env("ODC_FLAVOR", "h100").env("OMP_NUM_THREADS", "7");
        command.envs(self.environment);
        let log = File::create(path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process = command.spawn().unwrap();
        let mut server = Server { place: self.place, process, address: ([127, 0, 0, 1], 0).into() };
        server.address = eventually("it listens", || server.listens());
        server
    }
}

impl Server {
    pub fn start() -> Self {
        Plan::new().start()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    pub fn wait_for_text(&self, name: &str, text: &str) {
        eventually(text, || self.text(name).contains(text).then_some(()));
    }

    /// Process numbers in the file are those of another namespace, so that it is there is all that counts.
    fn listens(&self) -> Option<SocketAddr> {
        let marker: Marker = serde_json::from_slice(&fs::read(self.path("state/serve.json")).ok()?).unwrap();
        Some(marker.address())
    }

    pub fn state(&self) -> State {
        State::parse(&fs::read(self.path("state/init.json")).unwrap()).unwrap()
    }

    pub fn client(&self, program: &str) -> Command {
        let mut command = client(program, self.address.port(), self.place.path(), "id");
        command.env_remove("LANG");
        command
    }

    /// `ssh` with these words before the host.
    pub fn ssh(&self, words: &[&str]) -> Command {
        let mut command = self.client("ssh");
        command.args(words).arg("dev@127.0.0.1");
        command
    }

    pub fn run(&self, line: &str) -> Output {
        self.ssh(&[]).arg(line).output().unwrap()
    }

    /// What a command prints, which must succeed.
    pub fn said(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// The number, outside, of its process 1.
    pub fn init_pid(&self) -> Option<u32> {
        children(self.pid()).first().copied()
    }

    /// As the container's runtime does.
    pub fn terminate(&self) {
        let init = self.init_pid().expect("it runs").try_into().unwrap();
        kill_process(Pid::from_raw(init).unwrap(), Signal::TERM).unwrap();
    }

    pub fn has_ended(&self) -> bool {
        self.init_pid().is_none()
    }

    /// The number, outside, of its `serve`, while there is one.
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
            eprintln!("the server said:\n{text}");
        }
    }
}

/// Ends with the value.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub fn code(&mut self) -> Option<i32> {
        eventually("the client ends", || self.0.try_wait().unwrap()).code()
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

pub fn keygen(place: &Path, name: &str) {
    client::keygen(place, name).unwrap();
}

/// Looks until there is something to see.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(LIMIT, what, look)
}

pub fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < limit, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes that no compression makes smaller and no chance repeats.
pub fn noise(length: usize) -> Vec<u8> {
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
