//! The life of a server from the first script to the last process, as decisions: what happened goes in, what to do comes
//! out. No process, signal or clock is touched here.
//!
//! ```text
//! Setup ─► Running ─► PreStop ─► Ending ─► Killing ─► Flushing ─► Gone
//!   └─────────┴── request to stop ─┴─ or, without preStop, the end of an entrypoint that takes the server along
//! ```
//!
//! From `PreStop` on, every stage has a time at which the next one begins whatever happens.
//!
//! Beside all that, `serve` runs from the beginning, and again whenever it ends, until everything does.

use std::time::Duration;

use odc_control::Outcome;
use rustix::process::Signal;

use crate::args::EntrypointExit;
use crate::init::comeback::Comeback;
use crate::init::grace::Timetable;
use crate::state::process::Process;
use crate::state::{Ended, Phase, Run, State, VERSION};

/// How often a stopping server looks whether anything still runs. Processes that were brought in from outside are not our
/// children, so nobody tells us of their end.
pub const GLANCE: Duration = Duration::from_millis(20);

/// A process of our own: everything else in the server is only reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Setup,
    Entrypoint,
    PreStop,
    /// Lets people in, also while setup runs.
    Serve,
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub setup: bool,
    /// And what its end means.
    pub entrypoint: Option<EntrypointExit>,
    pub pre_stop: bool,
    pub serve: bool,
    pub grace: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Ended(Role, Outcome),
    /// The server is asked to stop.
    Stop,
    /// Nobody runs the preStop script for this stop any more: whoever wanted to died before it began, or what ran was for
    /// a stop that was called off.
    PreStopOpen,
    /// A signal that is the entrypoint's business.
    Signal(Signal),
    /// Nothing is left in the server but us.
    AllEnded,
    /// The file systems are written.
    Flushed,
    /// Time has passed.
    Glance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Start(Role),
    /// With all that it started in its process group.
    Kill(Role),
    Signal(Role, Signal),
    TerminateAll,
    KillAll,
    Flush,
    Leave(u8),
}

#[derive(Debug)]
pub struct Life {
    terms: Terms,
    stage: Stage,
    state: State,
    serve: Comeback,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Setup,
    Running,
    PreStop(Timetable),
    Ending(Timetable),
    Killing(Timetable),
    Flushing(Timetable),
    Gone,
}

impl Life {
    /// Gives the first things to do too.
    pub fn begin(terms: Terms, init: Process, now: Duration) -> (Self, Vec<Action>) {
        let mut life = Self {
            terms,
            stage: Stage::Setup,
            serve: Comeback::default(),
            state: State {
                version: VERSION,
                init,
                phase: Phase::Setup,
                phase_since: now.into(),
                setup: None,
                entrypoint: None,
                pre_stop: None,
                serve: None,
            },
        };
        let mut actions = if terms.serve { life.start(Role::Serve, now) } else { Vec::new() };
        actions.extend(if terms.setup { life.start(Role::Setup, now) } else { life.run(now) });
        (life, actions)
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether it matters that everything has ended.
    pub fn is_ending(&self) -> bool {
        matches!(self.stage, Stage::Ending(_) | Stage::Killing(_))
    }

    /// How long nothing needs to be done unless something happens; for ever if absent.
    pub fn patience(&self, now: Duration) -> Option<Duration> {
        let comeback = self.serve.due();
        let until = match self.stage {
            Stage::Setup | Stage::Running => return comeback.map(|at| at.saturating_sub(now)),
            Stage::PreStop(times) => {
                let until = comeback.map_or(times.pre_stop_until, |at| at.min(times.pre_stop_until));
                return Some(until.saturating_sub(now));
            }
            Stage::Ending(times) => times.kill_at,
            Stage::Killing(times) => times.flush_at,
            Stage::Flushing(times) => times.leave_at,
            Stage::Gone => now,
        };
        Some(until.saturating_sub(now).min(GLANCE))
    }

    pub fn on(&mut self, event: Event, now: Duration) -> Vec<Action> {
        match event {
            Event::Ended(role, outcome) => self.on_ended(role, outcome, now),
            Event::Stop => self.on_stop(now),
            Event::PreStopOpen => match self.stage {
                Stage::PreStop(_) => vec![Action::Start(Role::PreStop)],
                _ => Vec::new(),
            },
            Event::Signal(signal) if self.runs(Role::Entrypoint) => vec![Action::Signal(Role::Entrypoint, signal)],
            Event::Signal(_) => Vec::new(),
            Event::AllEnded => match self.stage {
                Stage::Ending(times) | Stage::Killing(times) => self.flush(times),
                _ => Vec::new(),
            },
            Event::Flushed => match self.stage {
                Stage::Flushing(_) => self.leave(),
                _ => Vec::new(),
            },
            Event::Glance => self.on_time(now),
        }
    }

    fn on_ended(&mut self, role: Role, outcome: Outcome, now: Duration) -> Vec<Action> {
        match self.record(role) {
            // The end of a process that was given up is no news.
            Some(Run { ended: ended @ None, .. }) => *ended = Some(Ended { at: now.into(), outcome }),
            _ => return Vec::new(),
        }
        match (role, self.stage) {
            (Role::Setup, Stage::Setup) => self.run(now),
            (Role::Entrypoint, Stage::Running) if self.ends_with_entrypoint() => {
                // Nobody asked the server to stop, so preStop is not due, as in Kubernetes. Its output would also push the
                // entrypoint's last words out of the container's log.
                self.enter(Phase::Stopping, now);
                self.end(Timetable::new(now, self.terms.grace))
            }
            (Role::PreStop, Stage::PreStop(times)) => self.end(times),
            (Role::Serve, Stage::Setup | Stage::Running | Stage::PreStop(_)) => {
                let started = self.state.serve.as_ref().map_or(0.0, |run| run.started.as_f64());
                self.serve.ended(now, now.saturating_sub(Duration::try_from_secs_f64(started).unwrap_or_default()));
                self.come_back(now)
            }
            _ => Vec::new(),
        }
    }

    /// A new `serve`, if one is due.
    fn come_back(&mut self, now: Duration) -> Vec<Action> {
        if self.serve.due().is_some_and(|at| now >= at) {
            self.serve.started();
            return self.start(Role::Serve, now);
        }
        Vec::new()
    }

    fn on_stop(&mut self, now: Duration) -> Vec<Action> {
        if !matches!(self.stage, Stage::Setup | Stage::Running) {
            return Vec::new();
        }
        self.enter(Phase::Stopping, now);
        let times = Timetable::new(now, self.terms.grace);
        if self.terms.pre_stop {
            // Everything still runs, so that the script can save what is being worked on.
            self.stage = Stage::PreStop(times);
            self.start(Role::PreStop, now)
        } else {
            self.end(times)
        }
    }

    fn on_time(&mut self, now: Duration) -> Vec<Action> {
        match self.stage {
            Stage::PreStop(times) if now >= times.pre_stop_until => {
                if let Some(run) = &mut self.state.pre_stop {
                    run.ended = Some(Ended { at: now.into(), outcome: Outcome::TimedOut });
                }
                let mut actions = vec![Action::Kill(Role::PreStop)];
                actions.extend(self.end(times));
                actions
            }
            Stage::Ending(times) if now >= times.kill_at => {
                self.stage = Stage::Killing(times);
                vec![Action::KillAll]
            }
            Stage::Killing(times) if now >= times.flush_at => self.flush(times),
            Stage::Flushing(times) if now >= times.leave_at => self.leave(),
            Stage::Setup | Stage::Running | Stage::PreStop(_) => self.come_back(now),
            _ => Vec::new(),
        }
    }

    fn run(&mut self, now: Duration) -> Vec<Action> {
        self.stage = Stage::Running;
        self.enter(Phase::Running, now);
        if self.terms.entrypoint.is_some() { self.start(Role::Entrypoint, now) } else { Vec::new() }
    }

    fn start(&mut self, role: Role, now: Duration) -> Vec<Action> {
        *self.record(role) = Some(Run::starting(now));
        vec![Action::Start(role)]
    }

    fn end(&mut self, times: Timetable) -> Vec<Action> {
        self.stage = Stage::Ending(times);
        vec![Action::TerminateAll]
    }

    fn flush(&mut self, times: Timetable) -> Vec<Action> {
        self.stage = Stage::Flushing(times);
        vec![Action::Flush]
    }

    fn leave(&mut self) -> Vec<Action> {
        self.stage = Stage::Gone;
        let entrypoint = self.state.entrypoint.as_ref().and_then(Run::outcome);
        let code = entrypoint.filter(|_| self.ends_with_entrypoint()).map_or(0, Outcome::exit_code);
        vec![Action::Leave(code)]
    }

    fn ends_with_entrypoint(&self) -> bool {
        self.terms.entrypoint == Some(EntrypointExit::End)
    }

    fn enter(&mut self, phase: Phase, now: Duration) {
        self.state.phase = phase;
        self.state.phase_since = now.into();
    }

    fn runs(&mut self, role: Role) -> bool {
        self.record(role).as_ref().is_some_and(|run| run.ended.is_none())
    }

    fn record(&mut self, role: Role) -> &mut Option<Run> {
        match role {
            Role::Setup => &mut self.state.setup,
            Role::Entrypoint => &mut self.state.entrypoint,
            Role::PreStop => &mut self.state.pre_stop,
            Role::Serve => &mut self.state.serve,
        }
    }
}

#[cfg(test)]
mod tests;
