//! Process 1 of a server. It reaps, passes signals on, runs the scripts and the entrypoint it was given, and ends
//! everything in order and in time. It keeps its [`crate::state`] in a file.
//!
//! What is due is decided in [`life`]; here it is done. One thread does everything that could race: only it starts
//! processes, reaps them and looks at signals. It never waits for anything but those, because a process 1 that hangs can
//! only be killed; what may block (the log, the scripts' output, file systems) has a thread of its own.

pub mod children;
pub mod comeback;
pub mod flush;
pub mod grace;
pub mod journal;
pub mod life;
pub mod once;
pub mod script;
pub mod signals;

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use odc_control::Outcome;

use crate::args;
use crate::init::children::Children;
use crate::init::flush::Flush;
use crate::init::journal::{Journal, finished_within};
use crate::init::life::{Action, Event, GLANCE, Life, Role, Terms};
use crate::init::once::{Claim, Look, Once};
use crate::init::script::{Report, Script};
use crate::init::signals::{Meaning, Signals};
use crate::prepare;
use crate::state::State;
use crate::state::directory::Directory;
use crate::state::process::Process;

/// How long the last output may take on its way to the container's log.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// This one, even if its file was replaced meanwhile.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// Returns when the server has ended, with the exit code for the container.
pub fn run(args: args::Init) -> anyhow::Result<ExitCode> {
    let signals = Signals::catch().context("catching signals")?;
    // It ends every process it can reach, which is right only where all of them are the server's.
    anyhow::ensure!(
        std::process::id() == 1,
        "init must be process 1; make it the command of a container, without a shared process namespace"
    );
    Ok(ExitCode::from(Init::new(args).live(signals)))
}

struct Init {
    setup: Option<PathBuf>,
    pre_stop: Option<PathBuf>,
    serve: Option<Command>,
    entrypoint: Option<Command>,
    clock: Instant,
    life: Life,
    due: Vec<Action>,
    children: Children,
    journal: Journal,
    directory: Option<Directory>,
    written: State,
    carriers: Vec<JoinHandle<()>>,
    reports: Vec<(Role, Report)>,
    flush: Flush,
    once: Option<Once>,
    /// Who runs the preStop script, or ran it.
    pre_stop_run: Option<Claim>,
}

impl Init {
    fn new(args: args::Init) -> Self {
        let args::Init {
            setup,
            pre_stop,
            grace,
            entrypoint_exit,
            account_home,
            serve,
            keys,
            server_uid,
            control_cas,
            keep,
            listen,
            state,
            entrypoint,
        } = args;
        let clock = Instant::now();
        let journal = Journal::open();
        if let Some(home) = account_home
            && let Err(error) = prepare::in_place(home)
        {
            journal.say(format!("the image's passwd file stays as it is: {error:#}"));
        }
        let terms = Terms {
            setup: setup.is_some(),
            entrypoint: (!entrypoint.is_empty()).then_some(entrypoint_exit),
            pre_stop: pre_stop.is_some(),
            serve,
            grace: Duration::from_secs(grace.into()),
        };
        let (life, due) = Life::begin(terms, Process::own(), clock.elapsed());
        let directory = Directory::with(life.state(), state.state_dir.as_deref())
            .inspect_err(|error| journal.say(format!("no state can be written, so no probe will pass: {error}")));
        let entrypoint = entrypoint.split_first().map(|(program, arguments)| {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        });
        // The flags of both go together.
        let serve = keys.zip(server_uid).filter(|_| serve).map(|(keys, uid)| {
            let mut command = Command::new(OWN_EXECUTABLE);
            command.arg("serve").arg("--keys").arg(keys).args(["--server-uid", uid.as_str()]);
            command.args(control_cas.iter().flat_map(|key| ["--control-ca", key]));
            if let Some(keep) = &keep {
                command.arg("--keep").arg(keep);
            }
            command.args(["--listen", &listen.to_string()]).stdin(Stdio::null());
            if let Some(directory) = &state.state_dir {
                command.arg("--state-dir").arg(directory);
            }
            command
        });
        Self {
            setup,
            pre_stop,
            serve,
            entrypoint,
            clock,
            written: life.state().clone(),
            life,
            due,
            children: Children::default(),
            journal,
            once: directory.as_ref().ok().map(|directory| Once::new(directory.path())),
            pre_stop_run: None,
            directory: directory.ok(),
            carriers: Vec::new(),
            reports: Vec::new(),
            flush: Flush::default(),
        }
    }

    fn live(mut self, mut signals: Signals) -> u8 {
        let mut events = VecDeque::new();
        loop {
            self.store();
            if let Some(code) = self.act(&mut events) {
                self.carriers.retain(|carrier| !carrier.is_finished());
                finished_within(LAST_WORDS, &self.carriers);
                self.journal.close(LAST_WORDS);
                return code;
            }
            if events.is_empty() {
                let patience =
                    if self.children.more { Some(Duration::ZERO) } else { self.life.patience(self.clock.elapsed()) };
                // Nobody tells us of the end of what is not our child.
                let patience = match &self.pre_stop_run {
                    Some(Claim::Theirs(_) | Claim::Busy(_)) => patience.map(|longest| longest.min(GLANCE)),
                    Some(Claim::Ours(_)) | None => patience,
                };
                signals.wait(patience);
                events.extend(signals.take().into_iter().map(|meaning| match meaning {
                    Meaning::Stop => Event::Stop,
                    Meaning::Forward(signal) => Event::Signal(signal),
                }));
                for (role, outcome) in self.children.reap() {
                    events.push_back(Event::Ended(role, self.in_full(role, outcome)));
                }
                events.extend(self.glance());
            }
            while let Some(event) = events.pop_front() {
                self.report(&event);
                self.due.extend(self.life.on(event, self.clock.elapsed()));
            }
        }
    }

    /// With the reason, if it is a script that could not be started.
    fn in_full(&mut self, role: Role, outcome: Outcome) -> Outcome {
        match self.reports.iter().position(|(of, _)| *of == role) {
            Some(place) => self.reports.swap_remove(place).1.outcome(outcome),
            None => outcome,
        }
    }

    /// What nobody tells us and a look shows.
    fn glance(&self) -> impl Iterator<Item = Event> + use<> {
        let flushed = self.flush.is_done().then_some(Event::Flushed);
        let ended = (self.life.is_ending() && children::all_ended()).then_some(Event::AllEnded);
        let pre_stop = match &self.pre_stop_run {
            Some(Claim::Theirs(run)) => match run.look() {
                Look::Ended(outcome) => Some(Event::Ended(Role::PreStop, outcome)),
                Look::Abandoned => Some(Event::PreStopOpen),
                Look::Running => None,
            },
            Some(Claim::Busy(run)) => (run.look() != Look::Running).then_some(Event::PreStopOpen),
            Some(Claim::Ours(_)) | None => None,
        };
        pre_stop.into_iter().chain(ended).chain(flushed).chain([Event::Glance])
    }

    /// Does what is due. Gives the exit code once that is to leave.
    fn act(&mut self, events: &mut VecDeque<Event>) -> Option<u8> {
        for action in std::mem::take(&mut self.due) {
            match action {
                Action::Start(role) => {
                    if let Err(outcome) = self.start(role) {
                        events.push_back(Event::Ended(role, outcome));
                    }
                }
                Action::Kill(role) => {
                    self.journal.say(format!("{} takes too long and is killed", name(role)));
                    self.children.kill(role);
                }
                Action::Signal(role, signal) => self.children.signal(role, signal),
                Action::TerminateAll => children::terminate_all(),
                Action::KillAll => {
                    self.journal.say("some processes did not end in time and are killed");
                    children::kill_all();
                }
                Action::Flush => {
                    if let Err(error) = self.flush.begin() {
                        self.journal.say(format!("writing file systems is left to the kernel: {error}"));
                    }
                }
                Action::Leave(code) => {
                    for failure in self.flush.failures() {
                        self.journal.say(format!("not everything is on disk: {failure}"));
                    }
                    return Some(code);
                }
            }
        }
        None
    }

    fn start(&mut self, role: Role) -> Result<(), Outcome> {
        if role == Role::PreStop {
            self.pre_stop_run = self.once.as_ref().and_then(|once| once.claim().ok());
            if let Some(Claim::Theirs(_) | Claim::Busy(_)) = &self.pre_stop_run {
                return Ok(());
            }
        }
        let (script, command) = match role {
            Role::Setup => (self.setup.as_deref(), None),
            Role::PreStop => (self.pre_stop.as_deref(), None),
            Role::Entrypoint => (None, self.entrypoint.as_mut()),
            Role::Serve => (None, self.serve.as_mut()),
        };
        if let Some(script) = script {
            let log = self.directory.as_ref().and_then(|directory| File::create(directory.log(name(role))).ok());
            let Script { mut command, carrier, report } = script::prepare(script, name(role), log)?;
            self.children.start(role, &mut command).map_err(|error| Outcome::failed_to_start("the agent", &error))?;
            self.carriers.push(carrier);
            self.reports.push((role, report));
        } else if let Some(command) = command {
            let program = command.get_program().display().to_string();
            self.children.start(role, command).map_err(|error| Outcome::failed_to_start(&program, &error))?;
        }
        Ok(())
    }

    fn store(&mut self) {
        if *self.life.state() == self.written {
            return;
        }
        self.written = self.life.state().clone();
        if let Some(Err(error)) = self.directory.as_ref().map(|directory| directory.store(&self.written)) {
            self.journal.say(format!("writing the state: {error}"));
        }
    }

    fn report(&self, event: &Event) {
        if let (Event::Ended(Role::PreStop, outcome), Some(Claim::Ours(run))) = (event, &self.pre_stop_run) {
            // Whoever asks for it now waits for our word.
            let _ = run.finish(outcome);
        }
        match event {
            Event::Ended(Role::Setup, outcome) if !outcome.is_success() => {
                self.journal.say(format!("setup {outcome}; the server goes on without it"));
            }
            Event::Ended(role, outcome) => self.journal.say(format!("{} {outcome}", name(*role))),
            Event::PreStopOpen => self.journal.say("nobody runs pre-stop for this stop; we do"),
            Event::Stop => self.journal.say("asked to stop"),
            _ => {}
        }
    }
}

/// In messages, and of the log.
fn name(role: Role) -> &'static str {
    match role {
        Role::Setup => "setup",
        Role::Entrypoint => "entrypoint",
        Role::PreStop => "pre-stop",
        Role::Serve => "serve",
    }
}
