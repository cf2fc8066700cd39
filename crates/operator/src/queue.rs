//! The queue: a loop over the whole cluster, because it compares everybody who waits with everything there is.
//!
//! It writes only `status.admission` and the flavor that was granted, in the version of the server it decided from, and
//! what it has to know after a restart ([`keep`]). A grant is stored before the next pass decides anything.

mod keep;
mod recording;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use odc_api::v1alpha1::DevServer;
use odc_core::grants::outlook::Outlook;
use odc_core::grants::{self, Decision, Planner, Policy, Refusals, What};
use odc_core::plan::Again;
use serde_json::json;

use crate::context::Context;
use crate::error::{Class, Error};
use crate::metrics::{Failure, Moved};
use crate::report::{self, Manager};
use crate::snapshot::{Decided, Snapshot};
use keep::Unkept;
use recording::Recording;

const NAME: &str = "queue";
/// Passes are at least so far apart, and twice as long as it takes to decide: what changes meanwhile is decided together,
/// and a large cluster spends no more than a third of the time with it.
const PACE: Duration = Duration::from_millis(10);
/// Writes under way at once.
const TOGETHER: usize = 32;
/// Writes of one pass: more would be decided long before they are written.
const BATCH: usize = 128;
/// Who waits only a moment is not told where they stand.
const PATIENCE: Duration = Duration::from_secs(1);
/// Who was told where they stand is not told again for so long.
const CALM: Duration = Duration::from_secs(30);
/// How many of those who wait are told within a second, the first ones first.
const TOLD_PER_SECOND: usize = 20;

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

#[derive(Default)]
struct Memory {
    unfit: Refusals,
    decided: Decided,
    /// Servers that compete.
    waiting: HashMap<String, Competing>,
    told: Told,
    unkept: Unkept,
    recording: Recording,
    /// How long the last plan took to make.
    thought: Duration,
}

struct Competing {
    /// Since when, by the API server's time.
    since: Timestamp,
    /// The same by our own.
    seen: Instant,
    /// When it was last told where it stands.
    told: Option<Instant>,
}

impl Competing {
    /// How long it is not told anything yet. Times are those of passes, so that whoever was seen in the same one is told
    /// in the same one, and then the first ones are told first.
    fn left(&self, now: Instant) -> Duration {
        let first = PATIENCE.saturating_sub(now.duration_since(self.seen));
        first.max(self.told.map_or(Duration::ZERO, |told| CALM.saturating_sub(now.duration_since(told))))
    }
}

/// How many were told in the second that runs.
struct Told {
    since: Instant,
    count: usize,
}

impl Default for Told {
    fn default() -> Self {
        Self { since: Instant::now(), count: 0 }
    }
}

impl Told {
    fn may_tell(&mut self) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            *self = Self::default();
        }
        self.count += 1;
        self.count <= TOLD_PER_SECOND
    }
}

/// Runs as long as this process leads. Nothing is decided before everything was seen once.
pub async fn run(ctx: Arc<Context>) {
    let mut memory = Memory { recording: Recording::new(&ctx), ..Memory::default() };
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

async fn pass(ctx: &Context, memory: &mut Memory) -> Again {
    let began = Instant::now();
    let waiting = &mut memory.waiting;
    let snapshot = Snapshot::take(ctx, &memory.decided, |server, now| place(waiting, server, now, began));
    let world = snapshot.world(memory.unfit.clone());
    let policy = Policy {
        epoch: ctx.lead.epoch,
        lost_after: ctx.config.server.lost_after,
        queue: ctx.config.queue,
        ..Policy::default()
    };
    let plan = {
        let mut plans = ctx.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.outlook = None;
        plans.planner.plan(&world, &policy, ctx.now(), &mut |step| memory.recording.take(step))
    };
    memory.thought = began.elapsed();
    memory.recording.flush();
    memory.unfit = plan.unfit;
    for moved in &plan.moved {
        ctx.metrics.moved.get_or_create(&Moved { cause: moved.why.as_str() }).inc();
    }
    forget(memory, &snapshot);
    let competing: HashSet<&str> =
        world.servers.iter().filter(|server| server.waits()).map(|server| server.uid.as_str()).collect();
    ctx.metrics.waiting.set(i64::try_from(competing.len()).unwrap_or(i64::MAX));
    memory.waiting.retain(|uid, _| competing.contains(uid.as_str()));

    let mut again = plan.again.or(snapshot.again);
    memory.unkept.leave(plan.leaving);
    note_admitting(ctx, &snapshot, memory, &plan.decisions);
    let mut due = Vec::new();
    for decision in plan.decisions {
        if decision.what == What::Wait {
            let competing = memory.waiting.get_mut(&decision.uid);
            let left = competing.as_ref().map_or(Duration::ZERO, |competing| competing.left(began));
            if !left.is_zero() {
                again = again.or(Again::After(left));
                continue;
            }
            if !memory.told.may_tell() {
                again = again.or(Again::After(Duration::from_secs(1)));
                continue;
            }
            if let Some(competing) = competing {
                competing.told = Some(began);
            }
        }
        due.push(decision);
    }
    if due.len() > BATCH {
        // Any prefix of a plan is a fine place to go on from, and a new plan knows what happened meanwhile.
        due.truncate(BATCH);
        again = Again::After(Duration::ZERO);
    }
    again = again.or(memory.unkept.keep(ctx, &policy).await);
    // What is given back is stored before anything is granted from it.
    let (back, rest): (Vec<_>, Vec<_>) =
        due.into_iter().partition(|decision| matches!(decision.what, What::Release | What::Revoke(_)));
    for batch in [back, rest] {
        for (uid, written) in write(ctx, &snapshot, &world, batch).await {
            match written {
                Ok(server) => {
                    let version = crate::follow::version(&server);
                    let server = Arc::new(server);
                    let _ = ctx.triggers.own.send((*server).clone());
                    memory.decided.insert(uid, (server, version));
                }
                Err(error) => {
                    again = again.or(Again::After(failed(ctx, &error)));
                }
            }
        }
    }
    again
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
fn place(waiting: &mut HashMap<String, Competing>, server: &DevServer, now: Timestamp, seen: Instant) -> Timestamp {
    let uid = server.metadata.uid.clone().unwrap_or_default();
    let ran = server.status.as_ref().and_then(|status| status.admission.as_ref()).is_some_and(|before| before.run > 0);
    let created = server.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let competing = waiting.entry(uid).or_insert_with(|| {
        let since = if ran { now } else { created.unwrap_or(now) };
        Competing { since, seen, told: None }
    });
    competing.since
}

/// Who was to be admitted, is not by this plan and still waits, has been told nothing for a while and is told now.
fn note_admitting(ctx: &Context, snapshot: &Snapshot, memory: &Memory, decisions: &[Decision]) {
    let grants = decisions.iter().filter(|decision| decision.what == What::Grant);
    let no_more = ctx.admitting.replace(grants.map(|decision| decision.uid.clone()).collect());
    let waiting = no_more.iter().filter(|uid| memory.waiting.contains_key(uid.as_str()));
    for server in waiting.filter_map(|uid| snapshot.read.get(uid)) {
        let (namespace, name) = crate::follow::key(&**server);
        ctx.look_at_server(&namespace, &name);
    }
}

/// Only what our copies do not show yet is remembered.
fn forget(memory: &mut Memory, snapshot: &Snapshot) {
    memory.decided.retain(|uid, _| snapshot.behind.contains(uid));
}

async fn write(
    ctx: &Context,
    snapshot: &Snapshot,
    world: &grants::Facts<'_>,
    batch: Vec<Decision>,
) -> Vec<(String, Result<DevServer, Error>)> {
    let flavors: HashMap<&str, &str> =
        world.servers.iter().map(|server| (server.uid.as_str(), server.flavor.as_str())).collect();
    let writes = batch.into_iter().filter_map(|decision| {
        let server = snapshot.read.get(&decision.uid)?.clone();
        let status = json!({"admission": decision.admission, "flavor": flavors.get(decision.uid.as_str())});
        Some(async move { (decision.uid, report::status(ctx, &*server, status, Manager::Queue).await) })
    });
    stream::iter(writes).buffered(TOGETHER).collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_seen_in_the_same_pass_is_told_in_the_same_pass() {
        let mut waiting = HashMap::new();
        let began = Instant::now();
        for name in ["first", "second"] {
            let mut server = DevServer::test();
            server.metadata.uid = Some(name.into());
            place(&mut waiting, &server, Timestamp::UNIX_EPOCH, began);
        }
        let left = |at: Instant| waiting.values().map(|competing| competing.left(at)).collect::<Vec<_>>();
        assert_eq!(left(began), [PATIENCE; 2]);
        assert_eq!(left(began + PATIENCE), [Duration::ZERO; 2]);
    }

    #[test]
    fn who_was_told_is_left_alone_for_a_while() {
        let now = Instant::now();
        let told = Competing { since: Timestamp::UNIX_EPOCH, seen: now, told: Some(now + PATIENCE) };
        assert_eq!(told.left(now + PATIENCE), CALM);
        assert_eq!(told.left(now + PATIENCE + CALM), Duration::ZERO);
    }
}
