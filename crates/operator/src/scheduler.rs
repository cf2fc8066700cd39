//! The scheduler loop: plans the whole cluster with `odc_core::admission` and writes the decisions.
//!
//! It writes only `status.admission` and `status.flavor` of servers, in the version it planned from, and what it needs
//! after a restart ([`persist`]). An admission is stored before the next cycle starts.

mod persist_usage;
mod rejected_servers;
pub mod snapshot;
mod trace;
mod uncertain_writes;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use odc_api::v1alpha1::DevServer;
use odc_core::admission::queue_view::QueueView;
use odc_core::admission::{
    self, Action, Decision, NodeRejections, Plan, Planner, Policy, StatusThrottle, WriteBackoff, drop_dependents,
};
use odc_core::plan::Requeue;
use parking_lot::Mutex;
use serde_json::json;

use crate::cache::version;
use crate::context::Context;
use crate::error::{Class, Error};
use crate::error_policy::{backoff, handle_error};
use crate::metrics::DelayLabels;
use crate::status_writer::{FieldManager, write_status};
use persist_usage::PendingPersist;
use rejected_servers::RejectedServers;
use snapshot::{AssumedAdmissions, OwnedSnapshot};
use trace::Trace;
use uncertain_writes::UncertainWrites;

const NAME: &str = "scheduler";
/// The minimum time between two cycles; see also [`PAUSE_PER_PLAN_TIME`]. Changes in between are planned together.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The pause after a cycle is at least this multiple of the planning time, so that planning a large cluster uses at
/// most a third of the time.
const PAUSE_PER_PLAN_TIME: u32 = 2;
const MAX_CONCURRENT_WRITES: usize = 32;
/// More writes would be stored long after they were planned.
const MAX_WRITES_PER_CYCLE: usize = 128;
const CONFLICT_DELAY: Duration = Duration::from_millis(20);
const ERROR_DELAY: Duration = Duration::from_secs(1);
/// How long to wait after the planner panicked.
const PANIC_DELAY: Duration = Duration::from_secs(10);

/// The planner, and the queue after its last plan for queries.
#[derive(Default)]
pub struct PlannerState {
    planner: Planner,
    /// Cloned from the planner on the first query after a plan.
    queue_view: Option<Arc<QueueView>>,
}

impl PlannerState {
    pub fn queue_view(&mut self) -> Arc<QueueView> {
        let Self { planner, queue_view } = self;
        queue_view.get_or_insert_with(|| Arc::new(planner.queue_view().clone())).clone()
    }
}

struct SchedulerLoop {
    started: Instant,
    node_rejections: NodeRejections,
    /// Admissions that are stored but not in the cache yet.
    assumed: AssumedAdmissions,
    /// Since when servers are in the queue, if their status does not say, by the API server's time.
    queued_since: Arc<Mutex<HashMap<String, Timestamp>>>,
    status_throttle: StatusThrottle,
    uncertain: UncertainWrites,
    write_backoff: WriteBackoff,
    rejected: RejectedServers,
    pending_persist: PendingPersist,
    trace: Trace,
    last_plan_duration: Duration,
}

impl SchedulerLoop {
    fn new(trace: Trace) -> Self {
        Self {
            started: Instant::now(),
            node_rejections: NodeRejections::default(),
            assumed: AssumedAdmissions::default(),
            queued_since: Arc::default(),
            status_throttle: StatusThrottle::default(),
            uncertain: UncertainWrites::default(),
            write_backoff: WriteBackoff::default(),
            rejected: RejectedServers::default(),
            pending_persist: PendingPersist::default(),
            trace,
            last_plan_duration: Duration::ZERO,
        }
    }

    /// Records a failed write. Returns when to run the next cycle.
    fn record_failure(&mut self, ctx: &Context, decision: &Decision, server: &DevServer, error: &Error) -> Duration {
        if error.may_have_been_stored() {
            self.uncertain.insert(&decision.uid, (decision.namespace.clone(), decision.name.clone()));
        }
        let failures = self.write_backoff.failures(&decision.uid).saturating_add(1);
        handle_error(ctx, NAME, &format!("{}/{}", decision.namespace, decision.name), error, failures);
        if error.class() == Class::Conflict {
            return CONFLICT_DELAY;
        }
        let (rejection, generation) = (error.rejection(), server.metadata.generation);
        let delay = backoff(failures);
        // One event for each generation, however often the write is retried.
        let is_new = !self.write_backoff.is_rejected(&decision.uid, generation);
        self.write_backoff.record_failure(decision, generation, rejection.is_some(), self.started.elapsed() + delay);
        let Some(message) = rejection else { return delay };
        self.rejected.insert(ctx, server, message, is_new);
        // Other servers can use the capacity at once.
        Duration::ZERO
    }
}

/// Runs scheduling cycles as long as this process is leader.
pub async fn run(ctx: Arc<Context>) {
    let mut state = SchedulerLoop::new(Trace::new(&ctx));
    loop {
        let started = Instant::now();
        let next = schedule(&ctx, &mut state).await;
        ctx.metrics.scheduling_cycle_seconds.observe(started.elapsed().as_secs_f64());
        tokio::time::sleep(MIN_INTERVAL.max(state.last_plan_duration * PAUSE_PER_PLAN_TIME)).await;
        let changed = ctx.work_queues.scheduler.notified();
        match next {
            Requeue::AwaitChange => changed.await,
            Requeue::After(delay) => {
                // A change starts the cycle early.
                let _ = tokio::time::timeout(delay, changed).await;
            }
        }
    }
}

/// Runs one scheduling cycle. Returns when to run the next one.
async fn schedule(ctx: &Arc<Context>, state: &mut SchedulerLoop) -> Requeue {
    // Nothing is planned while the result of an earlier write is unknown.
    if let Err(error) = state.uncertain.resolve(ctx, &mut state.assumed).await {
        handle_error(ctx, NAME, "all", &error, 1);
        return Requeue::After(ERROR_DELAY);
    }
    let started = Instant::now();
    let Some(owned) = take_snapshot(ctx, state).await else { return Requeue::After(PANIC_DELAY) };
    let generation = |uid: &str| owned.generation(uid);
    let (excluded, retry) = state.write_backoff.inadmissible(generation, state.started.elapsed());
    let policy = Policy {
        epoch: ctx.leadership.epoch,
        node_lost_timeout: ctx.config.server.node_lost_timeout,
        unschedulable_timeout: ctx.config.unschedulable_timeout,
        scheduler: ctx.config.scheduler_policy,
    };
    let Some(plan) = plan(ctx, state, &owned, excluded.clone(), policy).await else {
        return Requeue::After(PANIC_DELAY);
    };
    state.last_plan_duration = started.elapsed();
    state.trace.flush();
    state.node_rejections = plan.node_rejections;
    for delayed in &plan.delayed {
        ctx.metrics.delayed_starts.get_or_create(&DelayLabels { cause: delayed.cause.as_str() }).inc();
    }
    state.assumed.retain(|uid, _| owned.stale.contains(uid));
    let snapshot = owned.as_snapshot();
    let pending: HashSet<&str> =
        snapshot.servers.iter().filter(|server| server.is_pending()).map(|server| server.uid.as_str()).collect();
    ctx.metrics.pending_servers.set(i64::try_from(pending.len()).unwrap_or(i64::MAX));
    state.queued_since.lock().retain(|uid, _| pending.contains(uid.as_str()));
    state.write_backoff.retain(|uid| owned.objects.contains_key(uid));
    state.status_throttle.set_pending(&pending, state.started.elapsed());

    state.pending_persist.add_accounts(plan.released_accounts);
    let rejected_before = plan.decisions.iter().filter(|decision| state.rejected.contains(&decision.uid));
    let mut not_retried: BTreeSet<String> = rejected_before.map(|decision| decision.uid.clone()).collect();
    let (decisions, deferred, backoff_end) =
        state.write_backoff.split_due(plan.decisions, generation, state.started.elapsed());
    let (mut due, throttled) = state.status_throttle.due(decisions, state.started.elapsed());
    let mut next = plan.requeue.earlier(owned.next_booking).earlier(retry).earlier(backoff_end).earlier(throttled);
    if due.len() > MAX_WRITES_PER_CYCLE {
        // Any prefix of a plan is consistent, and the next plan is based on newer state.
        due.truncate(MAX_WRITES_PER_CYCLE);
        next = Requeue::After(Duration::ZERO);
    }
    next = next.earlier(state.pending_persist.persist(ctx, &policy).await);
    // Releases are stored before admissions that use the capacity. Admissions that depend on a failed release are
    // dropped.
    let (releases, rest): (Vec<_>, Vec<_>) = due.into_iter().partition(Decision::releases_resources);
    not_retried.retain(|uid| releases.iter().all(|decision| decision.uid != *uid));
    let (failed_releases, releases_next) = write(ctx, state, &owned.objects, &snapshot, releases).await;
    let deferred_releases = deferred.into_iter().filter(Decision::releases_resources).map(|decision| decision.uid);
    let unreleased: BTreeSet<String> = deferred_releases.chain(failed_releases.iter().cloned()).collect();
    let rest = drop_dependents(rest, &unreleased, &snapshot);
    not_retried.retain(|uid| rest.iter().all(|decision| decision.uid != *uid));
    let (failures, rest_next) = write(ctx, state, &owned.objects, &snapshot, rest).await;
    // A server stays rejected if it was excluded, or its decision was not written or failed.
    let is_rejected =
        |uid: &str| [&excluded, &not_retried, &failed_releases, &failures].iter().any(|uids| uids.contains(uid));
    state.rejected.retain(ctx, &owned.objects, is_rejected);
    next.earlier(releases_next).earlier(rest_next)
}

/// Takes a snapshot on a blocking thread, so that validating many servers does not delay watches, probes and queries.
/// Returns `None` after a panic.
async fn take_snapshot(ctx: &Arc<Context>, state: &SchedulerLoop) -> Option<Arc<OwnedSnapshot>> {
    let (shared, assumed, queued) = (ctx.clone(), state.assumed.clone(), state.queued_since.clone());
    let taking = tokio::task::spawn_blocking(move || {
        let mut queued = queued.lock();
        OwnedSnapshot::take(&shared, &assumed, &mut |server, now| Some(queued_since(&mut queued, server, now)))
    });
    match taking.await {
        Ok(snapshot) => Some(Arc::new(snapshot)),
        Err(panic) => {
            handle_error(ctx, NAME, "all", &Error::Panicked(panic.to_string()), 1);
            None
        }
    }
}

/// Plans on a blocking thread, because a plan for a long queue takes a while. Returns `None` if the planner panicked.
async fn plan(
    ctx: &Arc<Context>,
    state: &mut SchedulerLoop,
    owned: &Arc<OwnedSnapshot>,
    excluded: BTreeSet<String>,
    policy: Policy,
) -> Option<Plan> {
    let (shared, owned) = (ctx.clone(), owned.clone());
    let (node_rejections, mut trace) = (state.node_rejections.clone(), std::mem::take(&mut state.trace));
    let planning = tokio::task::spawn_blocking(move || {
        let started = thread_cpu_time();
        let mut planner = shared.planner.blocking_lock();
        planner.queue_view = None;
        let snapshot = admission::Snapshot { node_rejections, inadmissible: excluded, ..owned.as_snapshot() };
        let plan = planner.planner.plan(&snapshot, &policy, shared.now(), &mut |record| trace.record(record));
        shared.metrics.scheduler_cpu.inc_by(thread_cpu_time().saturating_sub(started).as_secs_f64());
        (plan, trace)
    });
    match planning.await {
        Ok((plan, trace)) => {
            state.trace = trace;
            Some(plan)
        }
        Err(panic) => {
            handle_error(ctx, NAME, "all", &Error::Panicked(panic.to_string()), 1);
            // The planner's state may be inconsistent, so the next cycle starts with a new one.
            *ctx.planner.lock().await = PlannerState::default();
            None
        }
    }
}

pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns since when a server is in the queue: a new one since its creation, a waking one since its first cycle.
fn queued_since(queued: &mut HashMap<String, Timestamp>, server: &DevServer, now: Timestamp) -> Timestamp {
    let uid = server.metadata.uid.clone().unwrap_or_default();
    let admission = server.status.as_ref().and_then(|status| status.admission.as_ref());
    let has_run = admission.is_some_and(|admission| admission.run > 0);
    let created = server.metadata.creation_timestamp.as_ref().map(|time| time.0);
    *queued.entry(uid).or_insert_with(|| if has_run { now } else { created.unwrap_or(now) })
}

/// Writes decisions. Returns the uids of those that failed, and when to retry.
async fn write(
    ctx: &Context,
    state: &mut SchedulerLoop,
    objects: &HashMap<String, Arc<DevServer>>,
    snapshot: &admission::Snapshot<'_>,
    decisions: Vec<Decision>,
) -> (BTreeSet<String>, Requeue) {
    if decisions.is_empty() {
        return (BTreeSet::new(), Requeue::AwaitChange);
    }
    let flavors: HashMap<&str, &str> =
        snapshot.servers.iter().map(|server| (server.uid.as_str(), server.flavor.as_str())).collect();
    let writes = decisions.into_iter().filter_map(|decision| {
        let server = objects.get(&decision.uid)?.clone();
        let status = json!({"admission": decision.admission, "flavor": flavors.get(decision.uid.as_str())});
        Some(async move {
            let result = write_status(ctx, &*server, status, FieldManager::Scheduler).await;
            (decision, server, result)
        })
    });
    let (mut failures, mut next) = (BTreeSet::new(), Requeue::AwaitChange);
    let results: Vec<_> = stream::iter(writes).buffered(MAX_CONCURRENT_WRITES).collect().await;
    for (decision, server, result) in results {
        match result {
            Ok(server) => {
                if decision.action == Action::UpdatePending {
                    state.status_throttle.record_write(&decision.uid, state.started.elapsed());
                }
                state.write_backoff.record_success(&decision);
                let version = version(&server);
                state.assumed.insert(decision.uid, (Arc::new(server), version));
            }
            Err(error) => {
                next = next.earlier(Requeue::After(state.record_failure(ctx, &decision, &server, &error)));
                failures.insert(decision.uid);
            }
        }
    }
    (failures, next)
}
