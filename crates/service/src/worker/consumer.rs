//! Reads messages, executes their requests and stores the results.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::Timestamp;
use kube::Client;
use odc_store::Store;
use odc_store::queue::{Delay, Delivery, Finish, Message as QueueMessage, Queue};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use super::answer::{Outcome, timed_out};
use super::decision::{Attempts, Decision, Next, conclude, decide, is_suspect};
use super::execute::execute;
use super::health::Health;
use super::in_progress::{InProgress, ObjectKey, Task};
use super::listener::Notifications;
use super::metrics::Metrics;
use super::options::Settings;
use super::results::{Ended, Results};

/// How often the queues are read while new messages are notified, in case a notification was lost.
const SAFETY_READ_INTERVAL: Duration = Duration::from_secs(30);
/// How long requests may run after a shutdown was requested. The grace period of a pod is 30 seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_DRAIN_WRITES: usize = 3;
/// After a panic the message is invisible for this time.
const PANIC_DELAY_SECONDS: u32 = 5;
/// How long the queues are not read while a message that may crash the worker is executed.
const SUSPECT_INTERVAL: Duration = Duration::from_secs(1);
/// A message is visible again when it is read this much later than its delay.
const DELAY_MARGIN: Duration = Duration::from_millis(50);

/// Consumes messages. Consists of the only loop that reads and finishes them; requests are executed by tasks.
pub struct Consumer {
    store: Store,
    client: Client,
    settings: Settings,
    notifications: Notifications,
    health: Health,
    in_progress: InProgress,
    results: Results,
    handlers: JoinSet<Executed>,
    /// When the queues are read next.
    read_at: Instant,
    /// When delayed messages become visible.
    retries: BTreeSet<Instant>,
    /// Not before this time is the visibility timeout extended.
    extend_after: Instant,
}

/// An executed request.
struct Executed {
    delivery: Delivery,
    request_id: Uuid,
    key: ObjectKey,
    attempts: Attempts,
    /// Absent after a panic.
    outcome: Option<Outcome>,
}

impl Consumer {
    pub fn new(store: Store, client: Client, settings: Settings, notifications: Notifications, health: Health) -> Self {
        let results = Results::new(settings.batch_size);
        Self {
            store,
            client,
            settings,
            notifications,
            health,
            in_progress: InProgress::default(),
            results,
            handlers: JoinSet::new(),
            read_at: Instant::now(),
            retries: BTreeSet::new(),
            extend_after: Instant::now(),
        }
    }

    /// Consumes messages until a shutdown is requested, then finishes what is running.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            self.start_handlers();
            let wake_at = self.wake_at(Instant::now());
            tokio::select! {
                () = &mut shutdown => break,
                Some(executed) = self.handlers.join_next(), if !self.handlers.is_empty() => self.conclude(executed),
                () = self.notifications.changed() => self.read_at = Instant::now(),
                () = sleep_until(wake_at) => {}
            }
            while let Some(executed) = self.handlers.try_join_next() {
                self.conclude(executed);
            }
            self.store_results_if_due().await;
            self.extend_visibility_if_due().await;
            self.read_if_due().await;
            self.update_metrics();
        }
        self.drain().await;
    }

    fn metrics(&self) -> &Arc<Metrics> {
        &self.health.metrics
    }

    fn update_metrics(&self) {
        self.metrics().messages_in_progress.set(i64::try_from(self.in_progress.len()).unwrap_or(i64::MAX));
    }

    /// Returns when there is something to do without an event.
    fn wake_at(&self, now: Instant) -> Instant {
        let read_at = self.may_read(now).then_some(self.read_at);
        let extend_at = self.in_progress.next_invisible_for(self.extension_interval());
        let extend_at = extend_at.map(|at| at.max(self.extend_after));
        let store_at = self.results.due_at(self.in_progress.is_idle(), now);
        let times = [read_at, extend_at, store_at, self.pause_until().filter(|until| *until > now)];
        times.into_iter().flatten().min().unwrap_or(now + SAFETY_READ_INTERVAL)
    }

    fn may_read(&self, now: Instant) -> bool {
        let has_room = Queue::ALL.into_iter().any(|queue| self.settings.read_limit(queue, self.in_progress.len()) > 0);
        has_room && self.pause_until().is_none_or(|until| until <= now)
    }

    /// Returns the end of the pause after a message that may crash the worker was read.
    fn pause_until(&self) -> Option<Instant> {
        self.in_progress.suspect_since().map(|since| since + SUSPECT_INTERVAL)
    }

    fn start_handlers(&mut self) {
        while let Some(task) = self.in_progress.start_next(self.settings.concurrency) {
            let (client, metrics) = (self.client.clone(), self.metrics().clone());
            self.handlers.spawn(handle(client, metrics, task, self.settings.deadline));
        }
    }

    /// Records how a delivery ended.
    fn conclude(&mut self, executed: Result<Executed, tokio::task::JoinError>) {
        // A handler does not panic, because it catches panics, and is aborted only after the loop.
        let Ok(Executed { delivery, request_id, key, attempts, outcome }) = executed else { return };
        let now = Instant::now();
        self.in_progress.stop(&key);
        let Some(outcome) = outcome else {
            // Without a result, so that the delivery counts.
            self.in_progress.remove(delivery);
            self.expose_after_panic(delivery);
            return;
        };
        match conclude(outcome, attempts, self.settings.max_reads, self.settings.deadline) {
            Next::Finish(result) => self.results.finish(Finish { delivery, request_id: Some(request_id), result }, now),
            Next::Delay(seconds) => self.results.delay(Delay { delivery, seconds, has_failed: true }, now),
        }
    }

    /// Makes a message visible soon, because it would otherwise wait for the visibility timeout.
    fn expose_after_panic(&mut self, delivery: Delivery) {
        let store = self.store.clone();
        let seconds = PANIC_DELAY_SECONDS.min(self.settings.visibility_seconds);
        self.retry_at(Instant::now() + Duration::from_secs(seconds.into()));
        tokio::spawn(async move { store.extend_visibility(&[delivery], seconds).await.map(drop) });
    }

    fn retry_at(&mut self, at: Instant) {
        let at = at + DELAY_MARGIN;
        self.retries.insert(at);
        self.read_at = self.read_at.min(at);
    }

    async fn store_results_if_due(&mut self) {
        let now = Instant::now();
        if self.results.due_at(self.in_progress.is_idle(), now).is_some_and(|due_at| due_at <= now) {
            self.store_results().await;
        }
    }

    async fn store_results(&mut self) {
        let metrics = self.metrics().clone();
        for Ended { delivery, visible_at } in self.results.store(&self.store, &metrics, Instant::now()).await {
            self.in_progress.remove(delivery);
            if let Some(at) = visible_at {
                self.retry_at(at);
            }
        }
    }

    /// Messages are kept invisible while they are in progress. A third of the timeout leaves time for two more attempts.
    fn extension_interval(&self) -> Duration {
        Duration::from_secs(self.settings.visibility_seconds.into()) / 3
    }

    async fn extend_visibility_if_due(&mut self) {
        let now = Instant::now();
        let due = self.in_progress.invisible_for(self.extension_interval(), now);
        if due.is_empty() || now < self.extend_after {
            return;
        }
        match self.store.extend_visibility(&due, self.settings.visibility_seconds).await {
            Ok(current) => self.in_progress.extended(&due, &current, now),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot extend the visibility of messages");
                self.extend_after = now + Duration::from_secs(1);
            }
        }
    }

    async fn read_if_due(&mut self) {
        let started = Instant::now();
        if started < self.read_at || !self.may_read(started) {
            return;
        }
        let (settings, used) = (&self.settings, self.in_progress.len());
        let limit = |queue| settings.read_limit(queue, used);
        let read = self.store.read_messages(limit, settings.visibility_seconds).await;
        let now = Instant::now();
        self.health.set_ready(read.is_ok());
        match read {
            Ok(messages) => {
                let count = |queue| messages.iter().filter(|message| message.delivery.queue == queue).count();
                let more = Queue::ALL.into_iter().any(|queue| {
                    let limit = usize::try_from(limit(queue)).unwrap_or(usize::MAX);
                    limit > 0 && count(queue) >= limit
                });
                self.schedule_read(more, started, now);
                for message in messages {
                    self.accept(message, now);
                }
                if self.in_progress.suspect_since() == Some(now) {
                    // The others have to be returned before this one is executed.
                    self.store_results().await;
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot read messages");
                self.read_at = now + self.settings.poll_interval;
            }
        }
    }

    fn schedule_read(&mut self, more: bool, started: Instant, now: Instant) {
        // A message that became visible during the read was not read.
        self.retries = self.retries.split_off(&started);
        let listening = self.notifications.is_listening();
        let interval = if listening { SAFETY_READ_INTERVAL } else { self.settings.poll_interval };
        let next = self.retries.first().copied().unwrap_or(now + interval).min(now + interval);
        self.read_at = if more { now } else { next };
    }

    /// Messages that may crash the worker are executed one at a time, so that a crash counts for the one that caused it. The
    /// others are returned to the queue.
    fn accept(&mut self, message: QueueMessage, now: Instant) {
        let (delivery, delays, is_suspect) = (message.delivery, message.delays, is_suspect(&message));
        match decide(message, self.settings.max_reads) {
            Decision::Execute(..) if is_suspect && self.in_progress.suspect_since().is_some() => {
                // It is read again when the other one has ended, or after a while.
                let seconds = u32::from(self.in_progress.suspect_since() != Some(now));
                self.in_progress.add(delivery, now);
                self.results.delay(Delay { delivery, seconds, has_failed: false }, now);
            }
            Decision::Execute(work, message) => {
                if is_suspect {
                    self.in_progress.set_suspect(delivery, now);
                }
                self.in_progress.push(Task { delivery, delays, work, message }, now);
            }
            Decision::Delay(seconds) => {
                tracing::info!(?delivery, seconds, "delayed a message that cannot be executed yet");
                self.in_progress.add(delivery, now);
                self.results.delay(Delay { delivery, seconds, has_failed: true }, now);
            }
            Decision::Finish(finish) => {
                tracing::warn!(?finish, "archiving a message that cannot be executed");
                self.in_progress.add(delivery, now);
                self.results.finish(finish, now);
            }
        }
    }

    /// Returns messages that are not running to the queue, and waits for those that are.
    async fn drain(mut self) {
        tracing::info!(messages = self.in_progress.len(), "shutting down");
        let now = Instant::now();
        let returned = |delivery| Delay { delivery, seconds: 0, has_failed: false };
        for delivery in self.in_progress.take_waiting() {
            self.results.delay(returned(delivery), now);
        }
        let deadline = now + DRAIN_TIMEOUT;
        while !self.handlers.is_empty() {
            tokio::select! {
                Some(executed) = self.handlers.join_next() => self.conclude(executed),
                () = sleep_until(deadline) => break,
            }
            self.store_results_if_due().await;
        }
        self.handlers.abort_all();
        for _ in 0..MAX_DRAIN_WRITES {
            self.store_results().await;
        }
        // What was aborted is executed by another worker.
        let rest: Vec<Delay> = self.in_progress.deliveries().into_iter().map(returned).collect();
        if !rest.is_empty()
            && let Err(error) = self.store.delay_messages(&rest).await
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(messages = rest.len(), error, "messages wait for the visibility timeout");
        }
    }
}

/// Executes a request. A panic ends the request, not the worker.
async fn handle(client: Client, metrics: Arc<Metrics>, task: Task, deadline: Duration) -> Executed {
    let started = Instant::now();
    let key = task.object_key();
    let Task { delivery, delays, work, message } = task;
    let execution = timeout(deadline, execute(&client, &work, &message));
    let outcome = AssertUnwindSafe(execution).catch_unwind().await.ok();
    let outcome = outcome.map(|outcome| outcome.unwrap_or_else(|_| timed_out()));
    if let Some(outcome) = &outcome {
        metrics.record_handler(delivery.queue, message.action(), outcome, started.elapsed());
    }
    log(&work.id, message.action(), outcome.as_ref());
    let age = Timestamp::now().duration_since(work.created_at);
    let age = Duration::try_from(age).unwrap_or_default();
    Executed { delivery, request_id: work.id, key, attempts: Attempts { delays, age }, outcome }
}

fn log(request: &Uuid, action: &str, outcome: Option<&Outcome>) {
    match outcome {
        Some(Outcome::Finished(result)) => tracing::info!(%request, action, ?result, "executed a request"),
        Some(Outcome::Retry { message, .. }) => {
            tracing::info!(%request, action, message, "a request is executed again later");
        }
        None => tracing::error!(%request, action, "the execution of a request panicked"),
    }
}
