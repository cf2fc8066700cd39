//! A server in its own PID namespace, with the agent as PID 1, as in a container.
//!
//! Without root, a user namespace is created too. Dropping the server kills all processes: killing `unshare` kills
//! PID 1, and the kernel kills the rest of the namespace.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use odc_agent::init_state::{Phase, Run, State};
use odc_control::Outcome;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

pub const AGENT: &str = env!("CARGO_BIN_EXE_odc-agent");

/// Generous, for busy machines.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Configuration of a server.
pub struct ServerBuilder {
    home: TempDir,
    flags: Vec<String>,
    entrypoint: Vec<String>,
    unshare: Vec<String>,
    /// Shell script that is run before the agent and must `exec` it.
    wrapper: Option<String>,
    unread_output: bool,
}

pub struct Server {
    pub home: TempDir,
    unshare: Child,
    /// Absent if it exited before it was found.
    init: Option<Pid>,
}

impl ServerBuilder {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        // For servers that run as another user.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let state = format!("--state-dir={}", home.path().join("state").display());
        Self {
            home,
            flags: vec![state],
            entrypoint: Vec::new(),
            unshare: Vec::new(),
            wrapper: None,
            unread_output: false,
        }
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    pub fn no_flags(mut self) -> Self {
        self.flags.clear();
        self
    }

    fn script(self, flag: &str, text: &str) -> Self {
        let path = self.home.path().join(format!("{flag}.sh"));
        fs::write(&path, text).unwrap();
        self.flag(format!("--{flag}={}", path.display()))
    }

    pub fn setup(self, text: &str) -> Self {
        self.script("setup", text)
    }

    pub fn pre_stop(self, text: &str) -> Self {
        self.script("pre-stop", text)
    }

    pub fn entrypoint(mut self, words: &[&str]) -> Self {
        self.entrypoint = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    pub fn shell(self, text: &str) -> Self {
        self.entrypoint(&["/bin/sh", "-c", text])
    }

    /// Runs as a user without a passwd entry.
    pub fn user(mut self, uid: u32) -> Self {
        self.unshare = vec!["--user".to_owned(), format!("--map-user={uid}"), format!("--map-group={uid}")];
        self
    }

    /// Runs a script as PID 1 before the agent. `$R` is the home. The script must `exec` its arguments.
    pub fn wrapper(mut self, lines: &str) -> Self {
        self.wrapper = Some(lines.to_owned());
        self
    }

    /// Leaves the output pipes of the server unread.
    pub fn unread_output(mut self) -> Self {
        self.unread_output = true;
        self
    }

    pub fn start(self) -> Server {
        let mut command = Command::new("unshare");
        if self.unshare.is_empty() && !geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(&self.unshare).args(["--pid", "--mount", "--fork", "--kill-child=KILL", "--mount-proc"]);
        match &self.wrapper {
            Some(lines) => command.args(["/bin/sh", "-ec", lines, "sh", "/odc-agent"]),
            None => command.arg(AGENT),
        };
        command.arg("init").args(&self.flags);
        if !self.entrypoint.is_empty() {
            command.arg("--").args(&self.entrypoint);
        }
        command.env("HOME", self.home.path()).env("R", self.home.path()).env("AGENT", AGENT).stdin(Stdio::null());
        if self.unread_output {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        } else {
            let file = |name| File::create(self.home.path().join(name)).unwrap();
            command.stdout(file("stdout")).stderr(file("stderr"));
        }
        let mut unshare = command.spawn().unwrap();
        let init = wait_until("PID 1 is the agent", || {
            // It may have exited already.
            let init = child_of(unshare.id()).filter(|pid| runs_agent(*pid));
            if init.is_some() || unshare.try_wait().unwrap().is_some() { Some(init) } else { None }
        });
        Server { home: self.home, unshare, init }
    }
}

impl Server {
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn wait_for_file(&self, name: &str) {
        wait_until(name, || self.path(name).exists().then_some(()));
    }

    pub fn wait_for_text(&self, name: &str, text: &str) {
        wait_until(text, || self.text(name).contains(text).then_some(()));
    }

    /// Returns the latest state.
    pub fn state(&self) -> Option<State> {
        Some(State::parse(&fs::read(self.path("state/init.json")).ok()?).unwrap())
    }

    pub fn wait_for(&self, description: &str, condition: impl Fn(&State) -> bool) -> State {
        wait_until(description, || self.state().filter(&condition))
    }

    pub fn wait_running(&self) -> State {
        self.wait_for("the server runs", |state| state.phase == Phase::Running)
    }

    pub fn wait_entrypoint(&self) -> Outcome {
        outcome(self.wait_for("the entrypoint exits", |state| has_exited(state.entrypoint.as_ref())).entrypoint)
    }

    fn init(&self) -> Pid {
        self.init.expect("the server is running")
    }

    /// Sends a signal from outside, as a container runtime does.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.init(), signal).unwrap();
    }

    /// Returns a command in the server, as `kubectl exec` starts it.
    pub fn inside(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init().as_raw_nonzero().to_string(), "--pid", "--mount", "--root"]);
        if !geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").args(words).env("HOME", self.home.path()).stdin(Stdio::null());
        command
    }

    pub fn run_inside(&self, words: &[&str]) -> Output {
        self.inside(words).output().unwrap()
    }

    /// Sends a signal from a process in the server. Its result is ignored, because the signal may terminate it too.
    pub fn signal_internally(&self, signal: &str) {
        self.run_inside(&["/bin/sh", "-c", &format!("kill -{signal} 1")]);
    }

    pub fn probe(&self) -> (Option<i32>, String) {
        let state = format!("--state-dir={}", self.path("state").display());
        let output = self.run_inside(&[AGENT, "probe", &state]);
        (output.status.code(), String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
    }

    /// Returns the states of the children of PID 1.
    pub fn children(&self) -> Vec<char> {
        let pid = self.init().as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let state = |pid: &str| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(") ")?.1.chars().next()
        };
        children.split_whitespace().filter_map(state).collect()
    }

    /// Waits until the server has exited.
    pub fn wait(&mut self) -> ExitStatus {
        wait_until("the server exits", || self.unshare.try_wait().unwrap())
    }

    pub fn wait_code(&mut self) -> i32 {
        self.wait().code().expect("PID 1 exits")
    }

    /// Stops the server, and returns its exit code.
    pub fn stop(&mut self) -> i32 {
        self.signal(Signal::TERM);
        self.wait_code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has exited already.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        if thread::panicking() {
            let mut text = String::new();
            for name in ["stdout", "stderr", "state/init.json"] {
                let _ = File::open(self.path(name)).and_then(|mut file| file.read_to_string(&mut text));
                text.push('\n');
            }
            eprintln!("log of the server:\n{text}");
        }
    }
}

pub fn has_exited(run: Option<&Run>) -> bool {
    run.is_some_and(|run| run.ended.is_some())
}

pub fn outcome(run: Option<Run>) -> Outcome {
    run.unwrap().ended.unwrap().outcome
}

/// Returns a script that sets traps, creates the file `ready` and waits for signals. Its child creates the file, because it
/// would lose a signal that arrives between its fork and its exec.
pub fn wait_with_traps(traps: &str) -> String {
    format!("{traps} sh -c 'touch $HOME/ready; exec sleep 1000' & while :; do wait; done")
}

/// Polls until there is a value.
pub fn wait_until<T>(condition: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(started.elapsed() < WAIT_TIMEOUT, "timed out waiting until {condition}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn child_of(pid: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

/// With a wrapper, PID 1 is a shell at first.
fn runs_agent(pid: Pid) -> bool {
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).unwrap_or_default();
    name.trim_end() == "odc-agent"
}
