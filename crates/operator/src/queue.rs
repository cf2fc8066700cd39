//! The queue: a loop over the whole cluster, because it compares everybody who waits with everything there is.
//!
//! It writes only `status.admission` and the flavor that was granted, in the version of the server it decided from, and
//! what it has to know after a restart ([`keep`]). A grant is stored before the next pass decides anything.

mod keep;
mod recording;
mod refused;
mod unsure;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use odc_api::v1alpha1::DevServer;
use odc_core::grants::outlook::Outlook;
use odc_core::grants::{Decision, Facts, Plan, Planner, Policy, Refusals, Setbacks, Telling, What, independent};
use odc_core::plan::Again;
use serde_json::json;

use crate::context::Context;
use crate::error::{Class, Error};
use crate::metrics::{Failure, Moved};
use crate::report::{self, Manager};
use crate::requeue::back_off;
use crate::snapshot::{Decided, Snapshot};
use keep::Unkept;
use recording::Recording;
use unsure::Unsure;

const NAME: &str = "queue";
/// Passes are at least so far apart, and twice as long as it takes to decide: what changes meanwhile is decided together,
/// and a large cluster spends no more than a third of the time with it. Who comes after a quiet moment waits for
/// nothing; where many come at once each pass looks at all of them.
const PACE: Duration = Duration::from_millis(100);
/// Writes under way at once.
const TOGETHER: usize = 32;
/// Writes of one pass: more would be decided long before they are written.
const BATCH: usize = 128;

/// The planner, and how the queue stood after its last plan, for whoever asks.
#[derive(Default)]
pub struct Plans {
    planner: Planner,
    /// Made when somebody asks.
    outlook: Option<Arc<Outlook>>,
}

impl Plans {
    pub fn outlook(&mut self) -> Arc<Outlook> {
        let Self { planner, outlook } = self;
        outlook.get_or_insert_with(|| Arc::new(planner.outlook().clone())).clone()
    }
}

struct Memory {
    began: Instant,
    unfit: Refusals,
    decided: Decided,
    /// Since when servers compete that nothing stored says it of, by the API server's time.
    competing: HashMap<String, Timestamp>,
    telling: Telling,
    unsure: Unsure,
    /// Servers whose writes failed.
    setbacks: Setbacks,
    refused: refused::Told,
    unkept: Unkept,
    recording: Recording,
    /// How long the last plan took to make.
    thought: Duration,
}

impl Memory {
    fn new(recording: Recording) -> Self {
        Self {
            began: Instant::now(),
            unfit: Refusals::default(),
            decided: Decided::default(),
            competing: HashMap::new(),
            telling: Telling::default(),
            unsure: Unsure::default(),
            setbacks: Setbacks::default(),
            refused: refused::Told::default(),
            unkept: Unkept::default(),
            recording,
            thought: Duration::ZERO,
        }
    }

    /// Takes note of a write that failed. Gives when to look again.
    fn note_failure(&mut self, ctx: &Context, decision: &Decision, server: &DevServer, error: &Error) -> Duration {
        if error.may_have_been_stored() {
            self.unsure.note(&decision.uid, (decision.namespace.clone(), decision.name.clone()));
        }
        let soon = failed(ctx, error);
        if error.class() == Class::Conflict {
            return soon;
        }
        let (refusal, generation) = (error.refusal(), server.metadata.generation);
        let patience = back_off(self.setbacks.failures(&decision.uid).saturating_add(1));
        // Said once of a request, however often it is tried.
        let news = !self.setbacks.was_refused_in(&decision.uid, generation);
        self.setbacks.note(decision, generation, refusal.is_some(), self.began.elapsed() + patience);
        let Some(said) = refusal else { return patience };
        self.refused.tell(ctx, server, said, news);
        // Others get at once what was planned for it.
        Duration::ZERO
    }
}

/// Runs as long as this process leads. Nothing is decided before everything was seen once.
pub async fn run(ctx: Arc<Context>) {
    let mut memory = Memory::new(Recording::new(&ctx));
    loop {
        let started = Instant::now();
        let again = pass(&ctx, &mut memory).await;
        ctx.metrics.pass_seconds.observe(started.elapsed().as_secs_f64());
        tokio::time::sleep(PACE.max(memory.thought * 2)).await;
        let changed = ctx.triggers.queue.notified();
        match again {
            Again::OnChange => changed.await,
            Again::After(time) => {
                // A change and the time to look again are equally good reasons.
                let _ = tokio::time::timeout(time, changed).await;
            }
        }
    }
}

async fn pass(ctx: &Arc<Context>, memory: &mut Memory) -> Again {
    // Nothing is decided while it is not known what became of an earlier decision.
    if let Err(error) = memory.unsure.ask(ctx, &mut memory.decided).await {
        return Again::After(failed(ctx, &error));
    }
    let began = Instant::now();
    let competing = &mut memory.competing;
    let snapshot = Arc::new(Snapshot::take(ctx, &memory.decided, |server, now| place(competing, server, now)));
    let generation = |uid: &str| snapshot.generation(uid);
    let (aside, tried_again) = memory.setbacks.aside(generation, memory.began.elapsed());
    let policy = Policy {
        epoch: ctx.lead.epoch,
        lost_after: ctx.config.server.lost_after,
        refused_after: ctx.config.unplaced_after,
        queue: ctx.config.queue,
        ..Policy::default()
    };
    let Some(plan) = decide(ctx, memory, &snapshot, aside.clone(), policy).await else {
        return Again::After(Duration::from_secs(10));
    };
    memory.thought = began.elapsed();
    memory.recording.flush();
    memory.unfit = plan.unfit;
    for moved in &plan.moved {
        ctx.metrics.moved.get_or_create(&Moved { cause: moved.why.as_str() }).inc();
    }
    memory.decided.retain(|uid, _| snapshot.behind.contains(uid));
    let world = snapshot.world();
    let waiting: HashSet<&str> =
        world.servers.iter().filter(|server| server.waits()).map(|server| server.uid.as_str()).collect();
    ctx.metrics.waiting.set(i64::try_from(waiting.len()).unwrap_or(i64::MAX));
    memory.competing.retain(|uid, _| waiting.contains(uid.as_str()));
    memory.setbacks.retain(|uid| snapshot.read.contains_key(uid));
    memory.telling.compete(&waiting, memory.began.elapsed());

    memory.unkept.leave(plan.leaving);
    note_admitting(ctx, &snapshot, &waiting, &plan.decisions);
    let refused_before = plan.decisions.iter().filter(|decision| memory.refused.contains(&decision.uid));
    let mut untried: BTreeSet<String> = refused_before.map(|decision| decision.uid.clone()).collect();
    let (decisions, held, later) = memory.setbacks.part(plan.decisions, generation, memory.began.elapsed());
    let (mut due, untold) = memory.telling.due(decisions, memory.began.elapsed());
    let mut again = plan.again.or(snapshot.again).or(tried_again).or(later).or(untold);
    if due.len() > BATCH {
        // Any prefix of a plan is a fine place to go on from, and a new plan knows what happened meanwhile.
        due.truncate(BATCH);
        again = Again::After(Duration::ZERO);
    }
    again = again.or(memory.unkept.keep(ctx, &policy).await);
    // What is given back is stored before anything is granted from it, and what could not be is granted to nobody.
    let (back, rest): (Vec<_>, Vec<_>) = due.into_iter().partition(Decision::gives_back);
    untried.retain(|uid| back.iter().all(|decision| decision.uid != *uid));
    let (kept, soon) = write(ctx, memory, &snapshot, &world, back).await;
    let held = held.into_iter().filter(Decision::gives_back).map(|decision| decision.uid);
    let stuck: BTreeSet<String> = held.chain(kept.iter().cloned()).collect();
    let rest = independent(rest, &stuck, &world);
    untried.retain(|uid| rest.iter().all(|decision| decision.uid != *uid));
    let (failures, late) = write(ctx, memory, &snapshot, &world, rest).await;
    // Who was left out, or about whom something is decided that was not tried, is refused as before.
    let refused = |uid: &str| [&aside, &untried, &kept, &failures].iter().any(|uids| uids.contains(uid));
    memory.refused.retain(ctx, &snapshot, refused);
    again.or(soon).or(late)
}

/// Beside everything else the leader does: in a long queue a plan takes a while. Nothing if it could not be made.
async fn decide(
    ctx: &Arc<Context>,
    memory: &mut Memory,
    snapshot: &Arc<Snapshot>,
    aside: BTreeSet<String>,
    policy: Policy,
) -> Option<Plan> {
    let (leader, facts) = (ctx.clone(), snapshot.clone());
    let (unfit, mut recording) = (memory.unfit.clone(), std::mem::take(&mut memory.recording));
    let thinking = tokio::task::spawn_blocking(move || {
        let begun = processor_time();
        let mut plans = leader.plans.blocking_lock();
        plans.outlook = None;
        let facts = Facts { unfit, aside, ..facts.world() };
        let plan = plans.planner.plan(&facts, &policy, leader.now(), &mut |step| recording.take(step));
        leader.metrics.queue_cpu.inc_by(processor_time().saturating_sub(begun).as_secs_f64());
        (plan, recording)
    });
    match thinking.await {
        Ok((plan, recording)) => {
            memory.recording = recording;
            Some(plan)
        }
        Err(panic) => {
            failed(ctx, &Error::Panicked(panic.to_string()));
            // What it was told is half done: the next plan is made from nothing.
            *ctx.plans.lock().await = Plans::default();
            None
        }
    }
}

/// How long this thread has worked.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn failed(ctx: &Context, error: &Error) -> Duration {
    let class = error.class();
    ctx.metrics.failures.get_or_create(&Failure { controller: NAME, class: class.as_str() }).inc();
    let cause = error as &dyn std::error::Error;
    if class == Class::Conflict {
        tracing::debug!(error = cause, "somebody was faster");
        Duration::from_millis(20)
    } else {
        tracing::info!(error = cause, "will try again");
        Duration::from_secs(1)
    }
}

/// A new server's place counts from its creation, that of one that wakes from the moment it is seen to want devices.
fn place(competing: &mut HashMap<String, Timestamp>, server: &DevServer, now: Timestamp) -> Timestamp {
    let uid = server.metadata.uid.clone().unwrap_or_default();
    let ran = server.status.as_ref().and_then(|status| status.admission.as_ref()).is_some_and(|before| before.run > 0);
    let created = server.metadata.creation_timestamp.as_ref().map(|time| time.0);
    *competing.entry(uid).or_insert_with(|| if ran { now } else { created.unwrap_or(now) })
}

/// Who was to be admitted, is not by this plan and still waits, has been told nothing for a while and is told now.
fn note_admitting(ctx: &Context, snapshot: &Snapshot, waiting: &HashSet<&str>, decisions: &[Decision]) {
    let grants = decisions.iter().filter(|decision| decision.what == What::Grant);
    let no_more = ctx.admitting.replace(grants.map(|decision| decision.uid.clone()).collect());
    let waiting = no_more.iter().filter(|uid| waiting.contains(uid.as_str()));
    for server in waiting.filter_map(|uid| snapshot.read.get(uid)) {
        let (namespace, name) = crate::follow::key(&**server);
        ctx.look_at_server(&namespace, &name);
    }
}

/// Gives those whose write failed, by uid, and when to try again.
async fn write(
    ctx: &Context,
    memory: &mut Memory,
    snapshot: &Snapshot,
    world: &Facts<'_>,
    batch: Vec<Decision>,
) -> (BTreeSet<String>, Again) {
    if batch.is_empty() {
        return (BTreeSet::new(), Again::OnChange);
    }
    let flavors: HashMap<&str, &str> =
        world.servers.iter().map(|server| (server.uid.as_str(), server.flavor.as_str())).collect();
    let writes = batch.into_iter().filter_map(|decision| {
        let server = snapshot.read.get(&decision.uid)?.clone();
        let status = json!({"admission": decision.admission, "flavor": flavors.get(decision.uid.as_str())});
        Some(async move {
            let written = report::status(ctx, &*server, status, Manager::Queue).await;
            (decision, server, written)
        })
    });
    let (mut failures, mut again) = (BTreeSet::new(), Again::OnChange);
    let written: Vec<_> = stream::iter(writes).buffered(TOGETHER).collect().await;
    for (decision, server, written) in written {
        match written {
            Ok(server) => {
                if decision.what == What::Wait {
                    memory.telling.told(&decision.uid, memory.began.elapsed());
                }
                memory.setbacks.stored(&decision);
                let version = crate::follow::version(&server);
                memory.decided.insert(decision.uid, (Arc::new(server), version));
            }
            Err(error) => {
                again = again.or(Again::After(memory.note_failure(ctx, &decision, &server, &error)));
                failures.insert(decision.uid);
            }
        }
    }
    (failures, again)
}
