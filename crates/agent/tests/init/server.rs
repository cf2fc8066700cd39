//! A server in a PID namespace of its own, with the agent as process 1, as in a container.
//!
//! Whoever is not root gets a user namespace around it, in which they are. All processes end with the value: killing
//! `unshare` kills process 1, and that takes the namespace along.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use odc_agent::state::{Phase, Run, State};
use odc_control::Outcome;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

pub const AGENT: &str = env!("CARGO_BIN_EXE_odc-agent");

/// Longer than anything takes, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// What a test says about its server before it starts.
pub struct Plan {
    home: TempDir,
    flags: Vec<String>,
    entrypoint: Vec<String>,
    unshare: Vec<String>,
    /// Shell lines before the agent, for mounts; they end with what it takes to become the agent.
    wrapper: Option<String>,
    unread: bool,
}

pub struct Server {
    pub home: TempDir,
    unshare: Child,
    /// Absent if it ended before anybody could look.
    init: Option<Pid>,
}

impl Plan {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        // Also for servers that run as somebody else.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let state = format!("--state-dir={}", home.path().join("state").display());
        Self { home, flags: vec![state], entrypoint: Vec::new(), unshare: Vec::new(), wrapper: None, unread: false }
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

    /// As this user, of whom the machine knows nothing.
    pub fn user(mut self, uid: u32) -> Self {
        self.unshare = vec!["--user".to_owned(), format!("--map-user={uid}"), format!("--map-group={uid}")];
        self
    }

    /// With the given lines run as process 1 before the agent; `$R` is the home, and the last one must start with `exec`
    /// and run the words it is given.
    pub fn wrapper(mut self, lines: &str) -> Self {
        self.wrapper = Some(lines.to_owned());
        self
    }

    /// Nobody reads what the server prints.
    pub fn unread(mut self) -> Self {
        self.unread = true;
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
        if self.unread {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        } else {
            let file = |name| File::create(self.home.path().join(name)).unwrap();
            command.stdout(file("stdout")).stderr(file("stderr"));
        }
        let mut unshare = command.spawn().unwrap();
        let init = eventually("process 1 is the agent", || {
            // It may have come and gone already.
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
        eventually(name, || self.path(name).exists().then_some(()));
    }

    pub fn wait_for_text(&self, name: &str, text: &str) {
        eventually(text, || self.text(name).contains(text).then_some(()));
    }

    /// What the agent wrote last.
    pub fn state(&self) -> Option<State> {
        Some(State::parse(&fs::read(self.path("state/init.json")).ok()?).unwrap())
    }

    pub fn wait_for(&self, what: &str, condition: impl Fn(&State) -> bool) -> State {
        eventually(what, || self.state().filter(&condition))
    }

    pub fn wait_running(&self) -> State {
        self.wait_for("the server runs", |state| state.phase == Phase::Running)
    }

    pub fn wait_entrypoint(&self) -> Outcome {
        outcome(self.wait_for("the entrypoint ends", |state| ended(state.entrypoint.as_ref())).entrypoint)
    }

    fn init(&self) -> Pid {
        self.init.expect("the server did not end at once")
    }

    /// As the container's runtime does.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.init(), signal).unwrap();
    }

    /// A command in the server, as `kubectl exec` starts it.
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

    /// The sender may not live to tell, because what it asks for may end it too.
    pub fn signal_from_inside(&self, signal: &str) {
        self.run_inside(&["/bin/sh", "-c", &format!("kill -{signal} 1")]);
    }

    pub fn probe(&self) -> (Option<i32>, String) {
        let state = format!("--state-dir={}", self.path("state").display());
        let output = self.run_inside(&[AGENT, "probe", &state]);
        (output.status.code(), String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
    }

    /// States of the processes that process 1 is the parent of.
    pub fn children(&self) -> Vec<char> {
        let pid = self.init().as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let state = |pid: &str| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(") ")?.1.chars().next()
        };
        children.split_whitespace().filter_map(state).collect()
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the server ends", || self.unshare.try_wait().unwrap())
    }

    pub fn wait_code(&mut self) -> i32 {
        self.wait().code().expect("process 1 exits")
    }

    /// Asks it to stop, and tells how it ended and how long that took.
    pub fn stop(&mut self) -> (i32, Duration) {
        let begun = Instant::now();
        self.signal(Signal::TERM);
        (self.wait_code(), begun.elapsed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        if thread::panicking() {
            let mut text = String::new();
            for name in ["stdout", "stderr", "state/init.json"] {
                let _ = File::open(self.path(name)).and_then(|mut file| file.read_to_string(&mut text));
                text.push('\n');
            }
            eprintln!("the server said:\n{text}");
        }
    }
}

pub fn ended(run: Option<&Run>) -> bool {
    run.is_some_and(|run| run.ended.is_some())
}

pub fn outcome(run: Option<Run>) -> Outcome {
    run.unwrap().ended.unwrap().outcome
}

/// Looks until there is something to see.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < LIMIT, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn child_of(pid: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

/// Under a wrapper, process 1 is first a shell.
fn runs_agent(pid: Pid) -> bool {
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).unwrap_or_default();
    name.trim_end() == "odc-agent"
}
