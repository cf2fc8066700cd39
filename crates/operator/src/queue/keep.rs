//! What the queue has to know after a restart: what users and teams used lately, how long people stay, and how promises
//! were kept.
//!
//! Use is stored before a server is seen to leave, and until then follows from its grant: so it is known exactly, whenever
//! this process ends. What is learned about flavors is stored afterwards, at most once a second; a restart in between
//! forgets a few stays.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use odc_api::v1alpha1::Record;
use odc_core::grants::{Holder, Policy};
use odc_core::plan::Again;
use serde_json::json;

use super::{TOGETHER, failed};
use crate::context::Context;
use crate::error::Error;
use crate::metrics::Promised;
use crate::report::{self, Manager};

/// Records are written at most so often.
const PACE: Duration = Duration::from_secs(1);

/// What is not stored yet.
#[derive(Default)]
pub struct Unkept {
    leaving: BTreeSet<Holder>,
    /// When records were last written.
    recorded: Option<Instant>,
}

impl Unkept {
    /// Somebody of theirs leaves.
    pub fn leave(&mut self, whose: BTreeSet<Holder>) {
        self.leaving.extend(whose);
    }

    pub async fn keep(&mut self, ctx: &Context, policy: &Policy) -> Again {
        let mut again = Again::OnChange;
        let whose = std::mem::take(&mut self.leaving);
        let writes = whose.into_iter().map(async |holder| (write_use(ctx, &holder, policy).await, holder));
        let written: Vec<_> = stream::iter(writes).buffered(TOGETHER).collect().await;
        for (result, holder) in written {
            if let Err(error) = result {
                // It is known here, and stored when it can be. Nobody waits for it.
                again = again.or(Again::After(failed(ctx, &error)));
                self.leaving.insert(holder);
            }
        }
        again.or(self.keep_records(ctx).await)
    }

    async fn keep_records(&mut self, ctx: &Context) -> Again {
        let left = self.recorded.map_or(Duration::ZERO, |at| PACE.saturating_sub(at.elapsed()));
        if !left.is_zero() {
            return if ctx.plans.lock().await.planner.has_learned() { Again::After(left) } else { Again::OnChange };
        }
        let mut again = Again::OnChange;
        let learned = ctx.plans.lock().await.planner.learned();
        for (flavor, record) in learned {
            if let Err(left) = ctx.cluster.flavors.turns.take(&flavor, Manager::Queue) {
                again = again.or(Again::After(left));
                ctx.plans.lock().await.planner.keep_learned(flavor);
                continue;
            }
            self.recorded = Some(Instant::now());
            tell_metrics(ctx, &flavor, &record);
            if let Err(error) = write_record(ctx, &flavor, &record).await {
                again = again.or(Again::After(failed(ctx, &error).max(PACE)));
                ctx.plans.lock().await.planner.keep_learned(flavor);
            }
        }
        again
    }
}

/// One who is gone uses nothing.
async fn write_use(ctx: &Context, holder: &Holder, policy: &Policy) -> Result<(), Error> {
    let usage = ctx.plans.lock().await.planner.usage(holder, policy, ctx.now());
    let usage = json!({"usage": usage});
    match holder {
        Holder::User(name) => {
            let Some(user) = ctx.user(name.as_str()) else { return Ok(()) };
            report::status(ctx, &*user, usage, Manager::Queue).await?;
        }
        Holder::Team(name) => {
            let Some(team) = ctx.cluster.teams.get("", name.as_str()) else { return Ok(()) };
            report::status(ctx, &*team, usage, Manager::Queue).await?;
        }
    }
    Ok(())
}

async fn write_record(ctx: &Context, flavor: &str, record: &Record) -> Result<(), Error> {
    let Some(flavor) = ctx.cluster.flavors.kept.get("", flavor) else { return Ok(()) };
    report::status(ctx, &*flavor, json!({"record": record}), Manager::Queue).await.map(drop)
}

fn tell_metrics(ctx: &Context, flavor: &str, record: &Record) {
    let Some(promises) = &record.promises else { return };
    for (promise, count) in [("given", promises.given), ("kept50", promises.kept50), ("kept90", promises.kept90)] {
        let label = Promised { flavor: flavor.to_owned(), promises: promise };
        ctx.metrics.promises.get_or_create(&label).set(i64::from(count));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::fake;

    #[tokio::test]
    async fn who_copies_the_queue_to_answer_a_question_holds_up_nothing_else() {
        let ctx = fake::context(fake::answering(|_| (404, Value::Null)).client);
        let (taken, is_taken) = tokio::sync::oneshot::channel();
        let (done, is_done) = std::sync::mpsc::channel();
        let copying = tokio::task::spawn_blocking({
            let ctx = ctx.clone();
            move || {
                let _plans = ctx.plans.blocking_lock();
                taken.send(()).unwrap();
                is_done.recv().unwrap();
            }
        });
        is_taken.await.unwrap();
        let mut unkept = Unkept::default();
        unkept.leave([Holder::User("ada".parse().unwrap())].into());
        // All on the one thread of this test: the second has its turn only if the first does not block it.
        let policy = Policy::default();
        let (again, ()) = tokio::join!(unkept.keep(&ctx, &policy), async { done.send(()).unwrap() });
        assert_eq!(again, Again::OnChange);
        copying.await.unwrap();
    }
}
