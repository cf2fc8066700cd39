//! Waiting for a server, pleasantly: what happens is shown as it happens, and there are two ways to stop waiting.
//!
//! What to show is decided in `story` from what the cluster says; `stage` draws it.

mod answer;
mod outcome;
mod place;
mod stage;
mod story;

use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use odc_api::queue::QueueEntry;
use odc_api::v1alpha1::Phase;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub use answer::{answered, until_gone};
pub use story::{booked_words, queue_words};

use crate::app::App;
use crate::backend::{Change, Happening, Scope};
use crate::failure::{Failure, Result};
use crate::glance::Glance;
use crate::prospect::{freshen, unasked};
use stage::Stage;

/// What Ctrl-C means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// This command made the server: it asks whether to end it, or ends it where nobody can be asked.
    Cancels,
    /// It only stops waiting.
    Leaves,
}

/// Waits until the server can be used, showing what happens meanwhile.
pub async fn until_ready(app: &App, name: &str, interrupt: Interrupt, limit: Option<Duration>) -> Result<Glance> {
    let waiting = Waiting { app, name, interrupt, goal: Goal::Ready };
    waiting.run(limit).await
}

/// Waits until the server sleeps.
pub async fn until_asleep(app: &App, name: &str, limit: Duration) -> Result<Glance> {
    Waiting { app, name, interrupt: Interrupt::Leaves, goal: Goal::Asleep }.run(Some(limit)).await
}

/// Waits until the server has ended or is gone.
pub async fn until_ended(app: &App, name: &str, limit: Duration) -> Result<Glance> {
    Waiting { app, name, interrupt: Interrupt::Leaves, goal: Goal::Ended }.run(Some(limit)).await
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Ready,
    Asleep,
    Ended,
}

impl Goal {
    /// Whoever waits for an end does not want to hear how it began.
    fn concerns(self, step: &story::Step) -> bool {
        match self {
            Self::Ready => true,
            Self::Asleep | Self::Ended => matches!(step.key.as_str(), "sleep" | "stop"),
        }
    }
}

struct Waiting<'a> {
    app: &'a App,
    name: &'a str,
    interrupt: Interrupt,
    goal: Goal,
}

/// What people can do while they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-\, or a polite request to end.
    Leave,
}

impl Waiting<'_> {
    async fn run(&self, limit: Option<Duration>) -> Result<Glance> {
        let mut signals = Signals::new()?;
        let mut changes = self.app.backend.watch(Scope::Own, Some(self.name));
        let mut happenings = self.app.backend.watch_happenings(self.name).fuse();
        let mut happened: Vec<Happening> = Vec::new();
        let mut places = place::follow(&*self.app.backend);
        let mut place: Vec<QueueEntry> = Vec::new();
        let (mut server, mut told): (Option<Glance>, bool) = (None, false);
        let mut stage = Stage::new(self.app, self.name, self.goal);
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        let deadline = async { tokio::time::sleep(limit.unwrap_or(Duration::MAX / 4)).await };
        tokio::pin!(deadline);
        loop {
            let queued = server.as_ref().is_some_and(|server| server.phase() == Some(Phase::Queued));
            let word = tokio::select! {
                change = changes.next() => {
                    match change {
                        Some(Ok(Change::Put(new))) => (server, told) = (Some(*new), true),
                        Some(Ok(Change::Gone(old))) => return self.gone(stage, &old),
                        // It may have gone while nobody could be asked.
                        Some(Ok(Change::Relisted)) => told = false,
                        Some(Ok(Change::Listed)) if !told => match &server {
                            Some(old) => return self.gone(stage, old),
                            None => return Err(self.vanished()),
                        },
                        Some(Ok(Change::Interrupted(why))) => stage.trouble(&why),
                        Some(Ok(Change::Listed)) => {}
                        Some(Err(failure)) => return Err(failure),
                        None => return Err(self.vanished()),
                    }
                    None
                }
                Some(happening) = happenings.next() => {
                    // Whoever may not read events still gets the server.
                    happened.extend(happening);
                    None
                }
                Some(said) = places.next(), if queued => {
                    match said {
                        Ok(Ok(entries)) => place = entries,
                        Ok(Err(silence)) => stage.remark(&unasked(&silence)),
                        Err(failure) => stage.trouble(&failure.message),
                    }
                    None
                }
                word = signals.next() => Some(word),
                _ = tick.tick() => None,
                () = &mut deadline => return Err(outcome::late(self.name, self.goal, server.as_ref())),
            };
            if let Some(word) = word {
                match self.heed(&mut stage, &word, server.as_ref()).await? {
                    Heeded::GoOn => continue,
                    Heeded::Stop(failure) => return Err(failure),
                }
            }
            let Some(mut server) = server.clone() else { continue };
            if server.phase() == Some(Phase::Queued) {
                freshen(&mut server, &place);
            }
            let now = Timestamp::now();
            let mut steps = story::story(&server, &happened, now);
            steps.retain(|step| self.goal.concerns(step));
            stage.show(&steps, now);
            match outcome::of(&server, self.goal) {
                None => {}
                Some(Ok(())) => {
                    stage.end();
                    return Ok(server);
                }
                Some(Err(failure)) => {
                    stage.end();
                    return Err(failure);
                }
            }
        }
    }

    async fn heed(&self, stage: &mut Stage<'_>, word: &Word, server: Option<&Glance>) -> Result<Heeded> {
        let left = outcome::left(self.name, self.goal);
        if matches!(word, Word::Leave) || self.interrupt == Interrupt::Leaves {
            stage.end();
            return Ok(Heeded::Stop(left));
        }
        let choice = if self.app.talk.can_ask() && !self.app.talk.yes() {
            stage.pause(|| outcome::ask(self.name))
        } else {
            outcome::Choice::End
        };
        match choice {
            outcome::Choice::Wait => Ok(Heeded::GoOn),
            outcome::Choice::Leave => {
                stage.end();
                Ok(Heeded::Stop(left))
            }
            outcome::Choice::End => {
                stage.end();
                let failure = outcome::end(self.app, self.name, server).await?;
                Ok(Heeded::Stop(failure))
            }
        }
    }

    fn gone(&self, mut stage: Stage<'_>, old: &Glance) -> Result<Glance> {
        stage.end();
        if self.goal == Goal::Ended { Ok(old.clone()) } else { Err(self.vanished()) }
    }

    fn vanished(&self) -> Failure {
        Failure::not_found(format!("{} was deleted meanwhile", self.name))
            .advise(format!("devctl create {} makes a new one.", self.name))
    }
}

enum Heeded {
    GoOn,
    Stop(Failure),
}

/// What people can do while something is under way. From the first one on, Ctrl-C ends nothing by itself.
pub struct Signals {
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub fn new() -> Result<Self> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::failed(format!("signals cannot be received: {error}")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            quit: listen(SignalKind::quit())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    pub async fn next(&mut self) -> Word {
        tokio::select! {
            _ = self.interrupt.recv() => Word::Interrupt,
            _ = self.quit.recv() => Word::Leave,
            _ = self.terminate.recv() => Word::Leave,
            _ = self.hangup.recv() => Word::Leave,
        }
    }
}
