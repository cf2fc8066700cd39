//! Stores what the scheduler needs after a restart: the usage of users and teams, and the histories of flavors.
//!
//! Usage is written before the plan that ends a run is written. Until then it follows from the stored admission, so it
//! is exact at any restart. Histories are handed to the flavor loop, which writes them with the flavor's status; a
//! restart in between loses a few runs of the statistics.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use futures_util::{StreamExt as _, stream};
use odc_api::v1alpha1::FlavorHistory;
use odc_core::admission::{AccountRef, Policy};
use odc_core::plan::Requeue;
use serde_json::json;

use super::{ERROR_DELAY, MAX_CONCURRENT_WRITES, NAME};
use crate::context::Context;
use crate::error::Error;
use crate::error_policy::handle_error;
use crate::metrics::{EtaLabels, EtaQuantileLabels};
use crate::status_writer::{FieldManager, write_status};

#[derive(Default)]
pub struct PendingPersist {
    /// Accounts whose usage is to be written.
    accounts: BTreeSet<AccountRef>,
}

impl PendingPersist {
    pub fn add_accounts(&mut self, accounts: BTreeSet<AccountRef>) {
        self.accounts.extend(accounts);
    }

    /// Writes usage and hands over histories. Returns when to retry failed writes.
    pub async fn persist(&mut self, ctx: &Context, policy: &Policy) -> Requeue {
        let mut next = Requeue::AwaitChange;
        let accounts = std::mem::take(&mut self.accounts);
        let writes = accounts.into_iter().map(async |account| (write_usage(ctx, &account, policy).await, account));
        let results: Vec<_> = stream::iter(writes).buffered(MAX_CONCURRENT_WRITES).collect().await;
        for (result, account) in results {
            if let Err(error) = result {
                // Retried in a later cycle. The planner has the usage, so nothing depends on the write.
                let name = match &account {
                    AccountRef::User(name) => name.as_str(),
                    AccountRef::Team(name) => name.as_str(),
                };
                handle_error(ctx, NAME, name, &error, 1);
                next = next.earlier(Requeue::After(ERROR_DELAY));
                self.accounts.insert(account);
            }
        }
        hand_over_histories(ctx).await;
        next
    }
}

/// An account whose object was deleted has no usage to store.
async fn write_usage(ctx: &Context, account: &AccountRef, policy: &Policy) -> Result<(), Error> {
    let usage = ctx.planner.lock().await.planner.usage(account, policy, ctx.now());
    let status = json!({"usage": usage});
    match account {
        AccountRef::User(name) => {
            let Some(user) = ctx.cluster.user(name.as_str()) else { return Ok(()) };
            write_status(ctx, &*user, status, FieldManager::Scheduler).await?;
        }
        AccountRef::Team(name) => {
            let Some(team) = ctx.cluster.teams.get("", name.as_str()) else { return Ok(()) };
            write_status(ctx, &*team, status, FieldManager::Scheduler).await?;
        }
    }
    Ok(())
}

async fn hand_over_histories(ctx: &Context) {
    let histories = ctx.planner.lock().await.planner.take_dirty_histories();
    if histories.is_empty() {
        return;
    }
    for (flavor, history) in histories {
        update_metrics(ctx, &flavor, &history);
        ctx.pending_histories.insert(flavor, history);
    }
    ctx.work_queues.flavors.notify_one();
}

fn update_metrics(ctx: &Context, flavor: &str, history: &FlavorHistory) {
    let Some(calibration) = &history.eta_calibration else { return };
    // The counts are stored with the flavor, so the counters continue after a restart.
    let estimates = ctx.metrics.eta_estimates.get_or_create(&EtaLabels { flavor: flavor.to_owned() });
    estimates.inner().store(calibration.estimates.into(), Ordering::Relaxed);
    for (quantile, count) in [("p50", calibration.within_p50), ("p90", calibration.within_p90)] {
        let labels = EtaQuantileLabels { flavor: flavor.to_owned(), quantile };
        ctx.metrics.eta_within.get_or_create(&labels).inner().store(count.into(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::fake;

    #[tokio::test]
    async fn locked_planner_does_not_block_the_runtime() {
        let ctx = fake::context(fake::api_server(|_| (404, Value::Null)).client);
        let (locked, is_locked) = tokio::sync::oneshot::channel();
        let (done, is_done) = std::sync::mpsc::channel();
        let query = tokio::task::spawn_blocking({
            let ctx = ctx.clone();
            move || {
                let _planner = ctx.planner.blocking_lock();
                locked.send(()).unwrap();
                is_done.recv().unwrap();
            }
        });
        is_locked.await.unwrap();
        let mut pending = PendingPersist::default();
        pending.add_accounts([AccountRef::User("ada".parse().unwrap())].into());
        // Both run on the one thread of this test: the second is polled only if the first does not block it.
        let policy = Policy::default();
        let (next, ()) = tokio::join!(pending.persist(&ctx, &policy), async { done.send(()).unwrap() });
        assert_eq!(next, Requeue::AwaitChange);
        query.await.unwrap();
    }
}
