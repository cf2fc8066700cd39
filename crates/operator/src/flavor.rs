//! The flavor loop: writes the status of all flavors, at most once a second. It is the only writer of that status; the
//! scheduler hands over its histories in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use odc_api::name::FlavorName;
use odc_api::v1alpha1::{DevServerFlavor, DevServerFlavorStatus, FlavorHistory};
use odc_core::flavor::{self, FlavorCapacities};
use parking_lot::Mutex;

use crate::context::Context;
use crate::error::Error;
use crate::error_policy::run_rate_limited;
use crate::scheduler::snapshot::{AssumedAdmissions, OwnedSnapshot};
use crate::status_writer::{FieldManager, write_status};

const NAME: &str = "flavor";

/// Histories that changed and are not stored yet, by flavor.
#[derive(Default)]
pub struct PendingHistories(Mutex<BTreeMap<String, FlavorHistory>>);

impl PendingHistories {
    pub fn insert(&self, flavor: String, history: FlavorHistory) {
        self.0.lock().insert(flavor, history);
    }

    fn get(&self, flavor: &str) -> Option<FlavorHistory> {
        self.0.lock().get(flavor).cloned()
    }

    /// Removes a history that was stored, unless a newer one arrived during the write.
    fn remove_stored(&self, flavor: &str, stored: Option<&FlavorHistory>) {
        let mut histories = self.0.lock();
        if histories.get(flavor) == stored {
            histories.remove(flavor);
        }
    }

    /// Drops the histories of deleted flavors.
    fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.0.lock().retain(|flavor, _| exists(flavor));
    }
}

pub async fn run(ctx: Arc<Context>) {
    run_rate_limited(&ctx, NAME, &ctx.work_queues.flavors, reconcile_all).await;
}

async fn reconcile_all(ctx: &Arc<Context>) -> Result<(), Error> {
    let shared = ctx.clone();
    // A snapshot of a large cluster takes a while.
    let statuses = tokio::task::spawn_blocking(move || statuses(&shared)).await;
    let statuses = statuses.map_err(|panic| Error::Panicked(panic.to_string()))?;
    ctx.pending_histories.retain(|name| ctx.cluster.flavors.objects.get("", name).is_some());
    let mut result = Ok(());
    for (name, flavor, mut status) in statuses {
        if let Some(history) = ctx.pending_histories.get(name.as_str()) {
            status.history = Some(history);
        }
        let history = status.history.clone();
        let written = if flavor.status.as_ref() == Some(&status) {
            Ok(())
        } else {
            let status = serde_json::to_value(status).unwrap_or_default();
            write_status(ctx, &*flavor, status, FieldManager::Operator).await.map(drop)
        };
        if written.is_ok() {
            ctx.pending_histories.remove_stored(name.as_str(), history.as_ref());
        }
        // A failed write does not keep the other flavors from being written.
        result = result.and(written);
    }
    result
}

/// Returns the flavors with their statuses, except for pending histories.
fn statuses(ctx: &Context) -> Vec<(FlavorName, Arc<DevServerFlavor>, DevServerFlavorStatus)> {
    let owned = OwnedSnapshot::take(ctx, &AssumedAdmissions::new(), &mut |_, _| None);
    let snapshot = owned.as_snapshot();
    let flavors = ctx.cluster.flavors.objects.all();
    let defaults = flavors.iter().filter(|flavor| flavor.spec.default).count();
    let capacities = FlavorCapacities::new(&snapshot);
    let statuses = flavors.into_iter().filter_map(|flavor| {
        let name: FlavorName = flavor.metadata.name.as_ref()?.parse().ok()?;
        let capacity = capacities.of(&flavor);
        let status = flavor::status(&flavor, &capacity, snapshot.queue_length(&name), defaults, ctx.now());
        Some((name, flavor, status))
    });
    statuses.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fake::{self, FakeApiServer, RecordedRequest};

    fn history(estimates: u32) -> FlavorHistory {
        let calibration = json!({"estimates": estimates, "withinP50": 0, "withinP90": 0, "waits": [], "levels": []});
        serde_json::from_value(json!({"etaCalibration": calibration})).unwrap()
    }

    /// An API server that stores the flavor `cpu`, and responds to each write with the next code.
    fn cluster(codes: &'static [u16]) -> FakeApiServer {
        let mut codes = codes.iter();
        fake::api_server(move |request| {
            let code = codes.next().copied().unwrap_or(200);
            (code, flavor(request.body["status"].clone()))
        })
    }

    fn flavor(status: Value) -> Value {
        let mut flavor = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor",
            "metadata": {"name": "cpu", "uid": "f", "resourceVersion": "9"},
            "spec": {"resources": {"per": "Server", "cpu": "1", "memory": "1Gi"}}});
        flavor["status"] = status;
        flavor
    }

    fn writes(cluster: &FakeApiServer) -> Vec<Value> {
        let requests = cluster.requests().into_iter().filter(RecordedRequest::is_write);
        requests.map(|request| request.body["status"]["history"]["etaCalibration"]["estimates"].clone()).collect()
    }

    #[tokio::test]
    async fn history_is_stored_with_the_status_and_retried_after_an_error() {
        let cluster = cluster(&[503, 200]);
        let ctx = fake::context(cluster.client.clone());
        let object = serde_json::from_value(flavor(Value::Null)).unwrap();
        ctx.cluster.flavors.objects.insert_listed((String::new(), "cpu".into()), object, 1);
        ctx.pending_histories.insert("cpu".into(), history(1));
        ctx.pending_histories.insert("deleted".into(), history(1));
        assert!(reconcile_all(&ctx).await.is_err());
        ctx.pending_histories.insert("cpu".into(), history(2));
        reconcile_all(&ctx).await.unwrap();
        assert_eq!(writes(&cluster), [json!(1), json!(2)]);
        assert!(ctx.pending_histories.0.lock().is_empty());
        // The stored history is kept, and nothing is written without a change.
        reconcile_all(&ctx).await.unwrap();
        assert_eq!(writes(&cluster).len(), 2);
    }

    #[test]
    fn history_replaced_during_a_write_is_kept() {
        let histories = PendingHistories::default();
        histories.insert("gpu".into(), history(2));
        histories.remove_stored("gpu", Some(&history(1)));
        assert_eq!(histories.get("gpu"), Some(history(2)));
        histories.remove_stored("gpu", Some(&history(2)));
        assert_eq!(histories.get("gpu"), None);
    }
}
