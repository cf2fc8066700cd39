//! Waits for a server and shows its progress. Ctrl-C and Ctrl-\ stop waiting.
//!
//! `steps` computes what to show from the state of the cluster; `progress` draws it.

mod operation;
mod progress;
mod queue_poll;
mod result;
mod status;
mod steps;

use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::StreamExt as _;
use odc_api::queue::QueueEntry;
use odc_api::v1alpha1::Phase;

pub use operation::{OperationGoal, until_operation};
pub use status::{until_deleted, until_status};
pub use steps::{format_booking, format_queue};

use crate::client::{Event, QueueResult, Scope, WatchEvent};
use crate::clock;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::queue::{merge_live, unavailable_message};
use crate::model::server::ServerSummary;
use crate::signals::{Signal, Signals};
use progress::ProgressView;
use result::InterruptChoice;
use steps::StepKey;

/// How often elapsed times and spinners are redrawn.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// The effect of Ctrl-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInterrupt {
    /// This command created the server: prompt whether to delete it, or delete it without a terminal.
    Delete,
    /// Only stop waiting.
    Detach,
}

/// Waits until the server is ready.
pub async fn until_ready(
    ctx: &ClusterContext,
    name: &str,
    on_interrupt: OnInterrupt,
    timeout: Option<Duration>,
) -> Result<ServerSummary> {
    Waiter { ctx, name, on_interrupt, goal: Goal::Ready }.run(timeout).await
}

/// Waits until the server is hibernated.
pub async fn until_hibernated(ctx: &ClusterContext, name: &str, timeout: Duration) -> Result<ServerSummary> {
    Waiter { ctx, name, on_interrupt: OnInterrupt::Detach, goal: Goal::Hibernated }.run(Some(timeout)).await
}

/// Waits until the server has finished or is deleted.
pub async fn until_finished(ctx: &ClusterContext, name: &str, timeout: Duration) -> Result<ServerSummary> {
    Waiter { ctx, name, on_interrupt: OnInterrupt::Detach, goal: Goal::Finished }.run(Some(timeout)).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Ready,
    Hibernated,
    Finished,
}

impl Goal {
    /// Reports whether a step is shown: while a server stops, the steps of its start are not.
    fn is_relevant(self, step: &steps::Step) -> bool {
        match self {
            Self::Ready => true,
            Self::Hibernated | Self::Finished => matches!(step.key, StepKey::Hibernate | StepKey::Stop),
        }
    }
}

struct Waiter<'a> {
    ctx: &'a ClusterContext,
    name: &'a str,
    on_interrupt: OnInterrupt,
    goal: Goal,
}

/// What is known while waiting.
#[derive(Default)]
struct WaitState {
    server: Option<ServerSummary>,
    /// Whether the server was applied since the last list began. If not, it was deleted.
    listed: bool,
    events: Vec<Event>,
    queue_entries: Vec<QueueEntry>,
}

/// The result of waiting.
type Outcome = Result<ServerSummary>;

impl Waiter<'_> {
    async fn run(&self, timeout: Option<Duration>) -> Outcome {
        let mut signals = Signals::new()?;
        let mut watch = self.ctx.client.watch(Scope::Own, Some(self.name));
        let mut events = self.ctx.client.watch_events(self.name).fuse();
        let mut queue = queue_poll::poll_queue(&*self.ctx.client);
        let mut progress = ProgressView::new(&self.ctx.ui, self.name);
        if self.goal == Goal::Ready && self.ctx.ui.can_redraw() && self.ctx.ui.is_interactive() {
            self.ctx.ui.info(format!("Waiting for server {} (Ctrl-\\ to detach, Ctrl-C to cancel)", self.name));
        }
        let mut tick = tokio::time::interval(REDRAW_INTERVAL);
        let deadline = tokio::time::sleep(timeout.unwrap_or(Duration::MAX / 4));
        tokio::pin!(deadline);
        let mut state = WaitState::default();
        loop {
            let flow = tokio::select! {
                event = watch.next() => self.on_watch(&mut state, &mut progress, event),
                // Without permission to read events, only their steps are missing.
                Some(event) = events.next() => {
                    state.events.extend(event);
                    ControlFlow::Continue(())
                }
                Some(response) = queue.next(), if state.is_queued() => {
                    state.on_queue(&mut progress, response);
                    ControlFlow::Continue(())
                }
                signal = signals.recv() => self.on_signal(&mut progress, signal, state.server.as_ref()).await,
                _ = tick.tick() => ControlFlow::Continue(()),
                () = &mut deadline => {
                    ControlFlow::Break(Err(result::timed_out(self.name, self.goal, state.server.as_ref())))
                }
            };
            let flow = match flow {
                ControlFlow::Continue(()) => self.render(&state, &mut progress),
                stop @ ControlFlow::Break(_) => stop,
            };
            if let ControlFlow::Break(outcome) = flow {
                progress.finish();
                return outcome;
            }
        }
    }

    fn on_watch(
        &self,
        state: &mut WaitState,
        progress: &mut ProgressView<'_>,
        event: Option<Result<WatchEvent>>,
    ) -> ControlFlow<Outcome> {
        match event {
            Some(Ok(WatchEvent::Apply(server))) => (state.server, state.listed) = (Some(*server), true),
            Some(Ok(WatchEvent::Delete(server))) => return ControlFlow::Break(self.deleted(Some(*server))),
            Some(Ok(WatchEvent::Init)) => state.listed = false,
            Some(Ok(WatchEvent::InitDone)) if !state.listed => {
                return ControlFlow::Break(self.deleted(state.server.take()));
            }
            Some(Ok(WatchEvent::InitDone)) => {}
            Some(Ok(WatchEvent::Interrupted(cause))) => progress.connection_lost(&cause),
            Some(Err(error)) => return ControlFlow::Break(Err(error)),
            None => return ControlFlow::Break(self.deleted(None)),
        }
        ControlFlow::Continue(())
    }

    async fn on_signal(
        &self,
        progress: &mut ProgressView<'_>,
        signal: Signal,
        server: Option<&ServerSummary>,
    ) -> ControlFlow<Outcome> {
        let detached = ControlFlow::Break(Err(result::detached(self.name, self.goal)));
        if signal != Signal::Interrupt || self.on_interrupt == OnInterrupt::Detach {
            return detached;
        }
        let choice = if self.ctx.ui.is_interactive() && !self.ctx.ui.yes() {
            progress.suspend(|| result::prompt(self.name))
        } else {
            InterruptChoice::Delete
        };
        match choice {
            InterruptChoice::Wait => ControlFlow::Continue(()),
            InterruptChoice::Detach => detached,
            InterruptChoice::Delete => {
                progress.finish();
                ControlFlow::Break(Err(result::delete(self.ctx, self.name, server).await))
            }
        }
    }

    fn render(&self, state: &WaitState, progress: &mut ProgressView<'_>) -> ControlFlow<Outcome> {
        let Some(mut server) = state.server.clone() else { return ControlFlow::Continue(()) };
        if state.is_queued() {
            merge_live(&mut server, &state.queue_entries);
        }
        let now = clock::now();
        let mut steps = steps::progress_steps(&server, &state.events, now);
        steps.retain(|step| self.goal.is_relevant(step));
        progress.show(&steps, now);
        match result::evaluate(&server, self.goal) {
            None => ControlFlow::Continue(()),
            Some(result) => ControlFlow::Break(result.map(|()| server)),
        }
    }

    fn deleted(&self, server: Option<ServerSummary>) -> Outcome {
        match server {
            Some(server) if self.goal == Goal::Finished => Ok(server),
            _ => Err(deleted_error(self.name)),
        }
    }
}

impl WaitState {
    fn is_queued(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.phase() == Some(Phase::Queued))
    }

    fn on_queue(&mut self, progress: &mut ProgressView<'_>, response: Result<QueueResult<Vec<QueueEntry>>>) {
        match response {
            Ok(Ok(entries)) => self.queue_entries = entries,
            Ok(Err(reason)) => progress.note(&unavailable_message(&reason)),
            Err(error) => progress.connection_lost(&error.message),
        }
    }
}

fn deleted_error(name: &str) -> Error {
    Error::not_found(format!("server {name} was deleted"))
        .with_hint(format!("run `devctl create {name}` to create a new one"))
}
