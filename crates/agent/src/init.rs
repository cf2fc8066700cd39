//! `odc-agent init`: PID 1 of a server. It reaps orphans, forwards signals, runs the scripts and the entrypoint,
//! supervises `serve`, and stops everything within the grace period. It writes its [`crate::init_state`] to a file.
//!
//! [`state_machine`] decides; this module executes. One thread starts processes, reaps them and receives signals, so
//! these cannot race. It waits for nothing else, because a PID 1 that hangs can only be killed. Whatever may block
//! (the log, the output of scripts, file systems) has its own thread.

pub mod children;
pub mod shutdown_schedule;
pub mod signals;
pub mod state_machine;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use odc_control::Outcome;

use crate::accounts;
use crate::args::{self, ServerUid, StartupFilesAction};
use crate::init::children::Children;
use crate::init::signals::{SignalAction, Signals};
use crate::init::state_machine::{Action, Event, InitConfig, InitMachine, POLL_INTERVAL, Role};
use crate::init_state::State;
use crate::init_state::directory::StateDirectory;
use crate::log::{Logger, join_timeout};
use crate::pre_stop_script::claim::{Claim, PreStopRuns, RunState};
use crate::process_id::{ProcessId, SELF_EXE};
use crate::script::{self, ExecErrorPipe, Script};
use crate::syncfs::FileSystemSync;

/// Time for the last output to reach the container's log.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// Returns when the server has stopped, with the exit code for the container.
pub fn run(args: args::Init) -> anyhow::Result<ExitCode> {
    let signals = Signals::install().context("cannot install signal handlers")?;
    // `init` signals every process it can reach, so it must have its own PID namespace.
    anyhow::ensure!(
        std::process::id() == 1,
        "init must be PID 1; use it as the command of a container without a shared process namespace"
    );
    Ok(ExitCode::from(Init::new(args).run(signals)))
}

struct Init {
    commands: Commands,
    start: Instant,
    machine: InitMachine,
    pending_actions: Vec<Action>,
    children: Children,
    logger: Logger,
    storage: Storage,
    output_threads: Vec<JoinHandle<()>>,
    exec_errors: Vec<(Role, ExecErrorPipe)>,
    sync: FileSystemSync,
    /// The claim of the preStop script for the current stop.
    pre_stop_claim: Option<Claim>,
}

/// What to start for each role.
struct Commands {
    startup_files: Option<Command>,
    setup: Option<PathBuf>,
    pre_stop: Option<PathBuf>,
    serve: Option<Command>,
    entrypoint: Option<Command>,
}

/// The state directory, if one is writable.
struct Storage {
    directory: Option<StateDirectory>,
    pre_stop_runs: Option<PreStopRuns>,
    stored_state: State,
}

impl Init {
    fn new(args: args::Init) -> Self {
        let start = Instant::now();
        let logger = Logger::new();
        if let Some(home) = args.account_home.clone()
            && let Err(error) = accounts::update_in_place(home)
        {
            logger.log(format!("cannot update the image's passwd file: {error:#}"));
        }
        let config = InitConfig {
            startup_files: args.startup_files.is_some(),
            setup: args.setup.is_some(),
            entrypoint: (!args.entrypoint.is_empty()).then_some(args.entrypoint_exit),
            pre_stop: args.pre_stop.is_some(),
            serve: args.serve,
            grace_period: Duration::from_secs(args.grace.into()),
        };
        let (machine, pending_actions) = InitMachine::new(config, ProcessId::current(), start.elapsed());
        Self {
            storage: Storage::new(machine.state(), args.state.state_dir.as_deref(), &logger),
            commands: Commands::new(args),
            start,
            machine,
            pending_actions,
            children: Children::default(),
            logger,
            output_threads: Vec::new(),
            exec_errors: Vec::new(),
            sync: FileSystemSync::default(),
            pre_stop_claim: None,
        }
    }

    fn run(mut self, mut signals: Signals) -> u8 {
        let mut events = VecDeque::new();
        loop {
            self.store_state();
            if let Some(code) = self.apply_actions(&mut events) {
                self.output_threads.retain(|thread| !thread.is_finished());
                join_timeout(&self.output_threads, DRAIN_TIMEOUT);
                self.logger.close(DRAIN_TIMEOUT);
                return code;
            }
            if events.is_empty() {
                signals.wait(self.wait_timeout());
                events.extend(signals.take().into_iter().map(|action| match action {
                    SignalAction::Stop => Event::Stop,
                    SignalAction::Forward(signal) => Event::Signal(signal),
                }));
                for (role, outcome) in self.children.reap() {
                    events.push_back(Event::Exited(role, self.with_exec_error(role, outcome)));
                }
                events.extend(self.poll());
            }
            while let Some(event) = events.pop_front() {
                self.report(&event);
                self.pending_actions.extend(self.machine.handle_event(event, self.start.elapsed()));
            }
        }
    }

    fn wait_timeout(&self) -> Option<Duration> {
        if self.children.more {
            return Some(Duration::ZERO);
        }
        let timeout = self.machine.next_wakeup(self.start.elapsed());
        match &self.pre_stop_claim {
            // The script is not a child of this process, so its exit has to be polled.
            Some(Claim::HeldByOther(_) | Claim::PreviousStillRunning(_)) => {
                timeout.map(|timeout| timeout.min(POLL_INTERVAL))
            }
            Some(Claim::Acquired(_)) | None => timeout,
        }
    }

    /// Replaces the outcome by the reason if the process could not execute its script.
    fn with_exec_error(&mut self, role: Role, outcome: Outcome) -> Outcome {
        match self.exec_errors.iter().position(|(other, _)| *other == role) {
            Some(index) => self.exec_errors.swap_remove(index).1.outcome(outcome),
            None => outcome,
        }
    }

    /// Returns the events that no signal announces.
    fn poll(&self) -> impl Iterator<Item = Event> + use<> {
        let synced = self.sync.is_done().then_some(Event::Synced);
        let all_exited = (self.machine.is_terminating() && children::all_exited()).then_some(Event::AllExited);
        let pre_stop = match &self.pre_stop_claim {
            Some(Claim::HeldByOther(run)) => match run.state() {
                RunState::Finished(outcome) => Some(Event::Exited(Role::PreStop, outcome)),
                RunState::Abandoned => Some(Event::PreStopUnclaimed),
                RunState::Running => None,
            },
            Some(Claim::PreviousStillRunning(run)) => {
                (run.state() != RunState::Running).then_some(Event::PreStopUnclaimed)
            }
            Some(Claim::Acquired(_)) | None => None,
        };
        pre_stop.into_iter().chain(all_exited).chain(synced).chain([Event::Tick])
    }

    /// Executes the pending actions. Returns the exit code if one of them is to exit.
    fn apply_actions(&mut self, events: &mut VecDeque<Event>) -> Option<u8> {
        for action in std::mem::take(&mut self.pending_actions) {
            match action {
                Action::Start(role) => {
                    if let Err(outcome) = self.start(role) {
                        events.push_back(Event::Exited(role, outcome));
                    }
                }
                Action::Kill(role) => {
                    self.logger.log(format!("{} timed out, sending SIGKILL", name(role)));
                    self.children.kill(role);
                }
                Action::Signal(role, signal) => self.children.signal(role, signal),
                Action::TerminateAll => children::terminate_all(),
                Action::KillAll => {
                    self.logger.log("grace period exceeded, sending SIGKILL to all processes");
                    children::kill_all();
                }
                Action::Sync => {
                    if let Err(error) = self.sync.start() {
                        self.logger.log(format!("cannot sync all file systems: {error}"));
                    }
                }
                Action::Exit(code) => {
                    for failure in self.sync.failures() {
                        self.logger.log(format!("sync failed: {failure}"));
                    }
                    return Some(code);
                }
            }
        }
        None
    }

    fn start(&mut self, role: Role) -> Result<(), Outcome> {
        if role == Role::PreStop {
            self.pre_stop_claim = self.storage.pre_stop_runs.as_ref().and_then(|runs| runs.try_claim().ok());
            if let Some(Claim::HeldByOther(_) | Claim::PreviousStillRunning(_)) = &self.pre_stop_claim {
                return Ok(());
            }
        }
        let (script, command) = match role {
            Role::Setup => (self.commands.setup.as_deref(), None),
            Role::PreStop => (self.commands.pre_stop.as_deref(), None),
            Role::StartupFiles => (None, self.commands.startup_files.as_mut()),
            Role::Entrypoint => (None, self.commands.entrypoint.as_mut()),
            Role::Serve => (None, self.commands.serve.as_mut()),
        };
        if let Some(script) = script {
            let log = self.storage.create_log(name(role));
            let Script { mut command, output_thread, exec_error } = script::prepare(script, name(role), log)?;
            self.children.start(role, &mut command).map_err(|error| Outcome::failed_to_start("the agent", &error))?;
            self.output_threads.push(output_thread);
            self.exec_errors.push((role, exec_error));
        } else if let Some(command) = command {
            let program = command.get_program().display().to_string();
            self.children.start(role, command).map_err(|error| Outcome::failed_to_start(&program, &error))?;
        }
        Ok(())
    }

    fn store_state(&mut self) {
        if let Err(error) = self.storage.store(self.machine.state()) {
            self.logger.log(format!("cannot write the state: {error}"));
        }
    }

    fn report(&self, event: &Event) {
        if let (Event::Exited(Role::PreStop, outcome), Some(Claim::Acquired(run))) = (event, &self.pre_stop_claim) {
            // `serve` may wait for the outcome.
            let _ = run.finish(outcome);
        }
        match event {
            Event::Exited(Role::Setup, outcome) if !outcome.is_success() => {
                self.logger.log(format!("setup failed ({outcome}); continuing"));
            }
            Event::Exited(Role::StartupFiles, outcome) if outcome.is_success() => {}
            Event::Exited(role, outcome) => self.logger.log(format!("{} {outcome}", name(*role))),
            Event::PreStopUnclaimed => self.logger.log("pre-stop: claim abandoned, running it"),
            Event::Stop => self.logger.log("stop requested"),
            _ => {}
        }
    }
}

impl Commands {
    fn new(args: args::Init) -> Self {
        let args::Init {
            startup_files,
            setup,
            pre_stop,
            serve,
            keys,
            server_uid,
            control_cas,
            persist_dir,
            listen,
            state,
            entrypoint,
            ..
        } = args;
        // clap ensures that both are given, also below.
        let startup_files = startup_files.zip(server_uid.as_ref());
        let startup_files = startup_files.map(|(action, server_uid)| startup_files_command(action, server_uid));
        let serve = keys.zip(server_uid).filter(|_| serve).map(|(keys, server_uid)| {
            let state_dir = state.state_dir.as_deref();
            serve_command(&keys, &server_uid, &control_cas, persist_dir.as_deref(), listen, state_dir)
        });
        Self { startup_files, setup, pre_stop, serve, entrypoint: entrypoint_command(&entrypoint) }
    }
}

fn startup_files_command(action: StartupFilesAction, server_uid: &ServerUid) -> Command {
    let mut command = Command::new(SELF_EXE);
    command.args(["create-startup-files", "--server-uid", server_uid.as_str()]).stdin(Stdio::null());
    if action == StartupFilesAction::Recreate {
        command.arg("--recreate");
    }
    command
}

fn serve_command(
    keys: &Path,
    server_uid: &ServerUid,
    control_cas: &[String],
    persist_dir: Option<&Path>,
    listen: SocketAddr,
    state_dir: Option<&Path>,
) -> Command {
    let mut command = Command::new(SELF_EXE);
    command.arg("serve").arg("--keys").arg(keys).args(["--server-uid", server_uid.as_str()]);
    command.args(control_cas.iter().flat_map(|key| ["--control-ca", key]));
    if let Some(directory) = persist_dir {
        command.arg("--persist-dir").arg(directory);
    }
    command.args(["--listen", &listen.to_string()]).stdin(Stdio::null());
    if let Some(directory) = state_dir {
        command.arg("--state-dir").arg(directory);
    }
    command
}

fn entrypoint_command(words: &[OsString]) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments);
    Some(command)
}

impl Storage {
    fn new(state: &State, configured: Option<&Path>, logger: &Logger) -> Self {
        let directory = StateDirectory::create(state, configured)
            .inspect_err(|error| logger.log(format!("cannot write the state; readiness probes will fail: {error}")))
            .ok();
        let pre_stop_runs = directory.as_ref().map(|directory| PreStopRuns::new(directory.path()));
        Self { directory, pre_stop_runs, stored_state: state.clone() }
    }

    /// Writes the state if it has changed.
    fn store(&mut self, state: &State) -> std::io::Result<()> {
        if *state == self.stored_state {
            return Ok(());
        }
        self.stored_state = state.clone();
        self.directory.as_ref().map_or(Ok(()), |directory| directory.store(state))
    }

    fn create_log(&self, name: &str) -> Option<File> {
        self.directory.as_ref().and_then(|directory| File::create(directory.log_file(name)).ok())
    }
}

/// Returns the name of a role in messages and of its log file.
fn name(role: Role) -> &'static str {
    match role {
        Role::StartupFiles => "startup-files",
        Role::Setup => "setup",
        Role::Entrypoint => "entrypoint",
        Role::PreStop => "pre-stop",
        Role::Serve => "serve",
    }
}
