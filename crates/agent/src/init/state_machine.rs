//! The life cycle of a server as a state machine: events go in, actions come out. No process, signal or clock is accessed
//! here.
//!
//! ```text
//! StartupFiles ─► Setup ─► Running ─► PreStop ─► Terminating ─► Killing ─► Syncing ─► Exited
//!   └───────────────┴─────────┴─ stop request ─┴─ or, without preStop, exit of the entrypoint (`--entrypoint-exit=stop`)
//! ```
//!
//! `StartupFiles`, and every stage from `PreStop` on, has a deadline at which the next one begins.
//!
//! Independently, `serve` runs from the start and is restarted whenever it exits, until the server terminates.

use std::time::Duration;

use odc_control::Outcome;
use rustix::process::Signal;

use crate::args::EntrypointExit;
use crate::backoff::Backoff;
use crate::init::shutdown_schedule::ShutdownSchedule;
use crate::init_state::{Exit, Phase, Run, State, VERSION};
use crate::process_id::ProcessId;

/// How often a terminating server checks whether processes remain. Processes started from outside the container are not
/// children of PID 1, so their exit causes no SIGCHLD.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

const SERVE_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(10)).with_immediate_first_retry();

/// The home may hang. The server starts nevertheless, so that its user has access.
const STARTUP_FILES_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that `init` started itself. All others are only reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Copies startup files into the home.
    StartupFiles,
    Setup,
    Entrypoint,
    PreStop,
    /// The SSH server; runs during setup too.
    Serve,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each process is configured or not")]
pub struct InitConfig {
    pub startup_files: bool,
    pub setup: bool,
    /// Whether there is an entrypoint, and the effect of its exit.
    pub entrypoint: Option<EntrypointExit>,
    pub pre_stop: bool,
    pub serve: bool,
    pub grace_period: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Exited(Role, Outcome),
    /// A stop was requested.
    Stop,
    /// No process runs the preStop script for this stop: the claimant died before it started the script, or the script
    /// ran for a cancelled stop.
    PreStopUnclaimed,
    /// A signal for the entrypoint.
    Signal(Signal),
    /// No process is left except `init`.
    AllExited,
    /// The file systems are synced.
    Synced,
    /// Time has passed.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Start(Role),
    /// Kill the process group.
    Kill(Role),
    Signal(Role, Signal),
    TerminateAll,
    KillAll,
    Sync,
    Exit(u8),
}

#[derive(Debug)]
pub struct InitMachine {
    config: InitConfig,
    stage: Stage,
    state: State,
    serve_backoff: Backoff,
    /// When `serve` is to be restarted; absent while it runs.
    serve_restart_at: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// With its deadline.
    StartupFiles(Duration),
    Setup,
    Running,
    PreStop(ShutdownSchedule),
    Terminating(ShutdownSchedule),
    Killing(ShutdownSchedule),
    Syncing(ShutdownSchedule),
    Exited,
}

impl InitMachine {
    /// Returns the machine and its first actions.
    pub fn new(config: InitConfig, init: ProcessId, now: Duration) -> (Self, Vec<Action>) {
        let mut machine = Self {
            config,
            stage: Stage::Setup,
            serve_backoff: SERVE_BACKOFF,
            serve_restart_at: None,
            state: State {
                version: VERSION,
                init,
                phase: Phase::Setup,
                phase_since: now.into(),
                startup_files: None,
                setup: None,
                entrypoint: None,
                pre_stop: None,
                serve: None,
            },
        };
        let mut actions = if config.serve { machine.start(Role::Serve, now) } else { Vec::new() };
        actions.extend(if config.startup_files {
            machine.stage = Stage::StartupFiles(now + STARTUP_FILES_TIMEOUT);
            machine.start(Role::StartupFiles, now)
        } else {
            machine.enter_setup(now)
        });
        (machine, actions)
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Reports whether [`Event::AllExited`] has an effect.
    pub fn is_terminating(&self) -> bool {
        matches!(self.stage, Stage::Terminating(_) | Stage::Killing(_))
    }

    /// Returns the time until the next [`Event::Tick`] is needed; none if only other events have an effect.
    pub fn next_wakeup(&self, now: Duration) -> Option<Duration> {
        let restart_at = self.serve_restart_at;
        let restart_or = |deadline| restart_at.map_or(deadline, |at| at.min(deadline)).saturating_sub(now);
        let deadline = match self.stage {
            Stage::Setup | Stage::Running => return restart_at.map(|at| at.saturating_sub(now)),
            Stage::StartupFiles(deadline) => return Some(restart_or(deadline)),
            Stage::PreStop(schedule) => return Some(restart_or(schedule.pre_stop_deadline)),
            Stage::Terminating(schedule) => schedule.kill_at,
            Stage::Killing(schedule) => schedule.sync_at,
            Stage::Syncing(schedule) => schedule.exit_at,
            Stage::Exited => now,
        };
        Some(deadline.saturating_sub(now).min(POLL_INTERVAL))
    }

    pub fn handle_event(&mut self, event: Event, now: Duration) -> Vec<Action> {
        match event {
            Event::Exited(role, outcome) => self.on_exit(role, outcome, now),
            Event::Stop => self.on_stop(now),
            Event::PreStopUnclaimed => match self.stage {
                Stage::PreStop(_) => vec![Action::Start(Role::PreStop)],
                _ => Vec::new(),
            },
            Event::Signal(signal) if self.is_running(Role::Entrypoint) => {
                vec![Action::Signal(Role::Entrypoint, signal)]
            }
            Event::Signal(_) => Vec::new(),
            Event::AllExited => match self.stage {
                Stage::Terminating(schedule) | Stage::Killing(schedule) => self.sync(schedule),
                _ => Vec::new(),
            },
            Event::Synced => match self.stage {
                Stage::Syncing(_) => self.exit(),
                _ => Vec::new(),
            },
            Event::Tick => self.on_tick(now),
        }
    }

    fn on_exit(&mut self, role: Role, outcome: Outcome, now: Duration) -> Vec<Action> {
        match self.run_mut(role) {
            // Ignores the exit of a script that was already recorded as timed out.
            Some(Run { ended: ended @ None, .. }) => *ended = Some(Exit { at: now.into(), outcome }),
            _ => return Vec::new(),
        }
        match (role, self.stage) {
            (Role::StartupFiles, Stage::StartupFiles(_)) => self.enter_setup(now),
            (Role::Setup, Stage::Setup) => self.enter_running(now),
            (Role::Entrypoint, Stage::Running) if self.exits_with_entrypoint() => {
                // preStop does not run without a stop request, as in Kubernetes. Its output would also push the last
                // lines of the entrypoint out of the container's log.
                self.set_phase(Phase::Stopping, now);
                self.terminate(ShutdownSchedule::new(now, self.config.grace_period))
            }
            (Role::PreStop, Stage::PreStop(schedule)) => self.terminate(schedule),
            (Role::Serve, Stage::StartupFiles(_) | Stage::Setup | Stage::Running | Stage::PreStop(_)) => {
                let started = self.state.serve.as_ref().map_or(0.0, |run| run.started.as_f64());
                let uptime = now.saturating_sub(Duration::try_from_secs_f64(started).unwrap_or_default());
                self.serve_restart_at = Some(now + self.serve_backoff.next_delay(uptime));
                self.restart_serve_if_due(now)
            }
            _ => Vec::new(),
        }
    }

    fn restart_serve_if_due(&mut self, now: Duration) -> Vec<Action> {
        if self.serve_restart_at.is_some_and(|at| now >= at) {
            self.serve_restart_at = None;
            return self.start(Role::Serve, now);
        }
        Vec::new()
    }

    fn on_stop(&mut self, now: Duration) -> Vec<Action> {
        if !matches!(self.stage, Stage::StartupFiles(_) | Stage::Setup | Stage::Running) {
            return Vec::new();
        }
        self.set_phase(Phase::Stopping, now);
        let schedule = ShutdownSchedule::new(now, self.config.grace_period);
        if self.config.pre_stop {
            // All other processes still run, so that the script can save their work.
            self.stage = Stage::PreStop(schedule);
            self.start(Role::PreStop, now)
        } else {
            self.terminate(schedule)
        }
    }

    fn on_tick(&mut self, now: Duration) -> Vec<Action> {
        match self.stage {
            Stage::StartupFiles(deadline) if now >= deadline => {
                let mut actions = self.time_out(Role::StartupFiles, now);
                actions.extend(self.enter_setup(now));
                actions
            }
            Stage::PreStop(schedule) if now >= schedule.pre_stop_deadline => {
                let mut actions = self.time_out(Role::PreStop, now);
                actions.extend(self.terminate(schedule));
                actions
            }
            Stage::Terminating(schedule) if now >= schedule.kill_at => {
                self.stage = Stage::Killing(schedule);
                vec![Action::KillAll]
            }
            Stage::Killing(schedule) if now >= schedule.sync_at => self.sync(schedule),
            Stage::Syncing(schedule) if now >= schedule.exit_at => self.exit(),
            Stage::StartupFiles(_) | Stage::Setup | Stage::Running | Stage::PreStop(_) => {
                self.restart_serve_if_due(now)
            }
            _ => Vec::new(),
        }
    }

    fn time_out(&mut self, role: Role, now: Duration) -> Vec<Action> {
        if let Some(run) = self.run_mut(role) {
            run.ended = Some(Exit { at: now.into(), outcome: Outcome::TimedOut });
        }
        vec![Action::Kill(role)]
    }

    fn enter_setup(&mut self, now: Duration) -> Vec<Action> {
        self.stage = Stage::Setup;
        if self.config.setup { self.start(Role::Setup, now) } else { self.enter_running(now) }
    }

    fn enter_running(&mut self, now: Duration) -> Vec<Action> {
        self.stage = Stage::Running;
        self.set_phase(Phase::Running, now);
        if self.config.entrypoint.is_some() { self.start(Role::Entrypoint, now) } else { Vec::new() }
    }

    fn start(&mut self, role: Role, now: Duration) -> Vec<Action> {
        *self.run_mut(role) = Some(Run::started_at(now));
        vec![Action::Start(role)]
    }

    fn terminate(&mut self, schedule: ShutdownSchedule) -> Vec<Action> {
        self.stage = Stage::Terminating(schedule);
        vec![Action::TerminateAll]
    }

    fn sync(&mut self, schedule: ShutdownSchedule) -> Vec<Action> {
        self.stage = Stage::Syncing(schedule);
        vec![Action::Sync]
    }

    fn exit(&mut self) -> Vec<Action> {
        self.stage = Stage::Exited;
        let entrypoint = self.state.entrypoint.as_ref().and_then(Run::outcome);
        let code = entrypoint.filter(|_| self.exits_with_entrypoint()).map_or(0, Outcome::exit_code);
        vec![Action::Exit(code)]
    }

    fn exits_with_entrypoint(&self) -> bool {
        self.config.entrypoint == Some(EntrypointExit::Stop)
    }

    fn set_phase(&mut self, phase: Phase, now: Duration) {
        self.state.phase = phase;
        self.state.phase_since = now.into();
    }

    fn is_running(&mut self, role: Role) -> bool {
        self.run_mut(role).as_ref().is_some_and(|run| run.ended.is_none())
    }

    fn run_mut(&mut self, role: Role) -> &mut Option<Run> {
        match role {
            Role::StartupFiles => &mut self.state.startup_files,
            Role::Setup => &mut self.state.setup,
            Role::Entrypoint => &mut self.state.entrypoint,
            Role::PreStop => &mut self.state.pre_stop,
            Role::Serve => &mut self.state.serve,
        }
    }
}

#[cfg(test)]
mod tests;
