//! The disk operation loop: fails operations on disks that do not exist, and deletes finished ones. All others are
//! advanced by the disk controller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use odc_api::v1alpha1::{Disk, DiskOperation};
use odc_core::disk::{expired_operations, fail_without_disk};
use odc_core::plan::Write;

use crate::apply::apply;
use crate::context::Context;
use crate::dynamic_api::with_timeout;
use crate::error::Error;
use crate::error_policy::run_rate_limited;
use crate::status_writer::{FieldManager, write_status};

const NAME: &str = "diskoperation";
/// How often to look for expired operations.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(10 * 60);

pub async fn run(ctx: Arc<Context>) {
    let wake_regularly = async {
        loop {
            tokio::time::sleep(EXPIRY_INTERVAL).await;
            ctx.work_queues.disk_operations.notify_one();
        }
    };
    let reconcile = run_rate_limited(&ctx, NAME, &ctx.work_queues.disk_operations, reconcile_all);
    tokio::select! {
        () = reconcile => {}
        () = wake_regularly => {}
    }
}

async fn reconcile_all(ctx: &Arc<Context>) -> Result<(), Error> {
    let mut namespaces = BTreeMap::<String, Vec<Arc<DiskOperation>>>::new();
    for operation in ctx.cluster.disk_operations.all() {
        namespaces.entry(operation.metadata.namespace.clone().unwrap_or_default()).or_default().push(operation);
    }
    let mut result = Ok(());
    for (namespace, operations) in namespaces {
        if let Err(error) = reconcile_namespace(ctx, &namespace, &operations).await {
            result = Err(error);
        }
    }
    result
}

async fn reconcile_namespace(ctx: &Context, namespace: &str, operations: &[Arc<DiskOperation>]) -> Result<(), Error> {
    let now = ctx.now();
    for operation in operations {
        if ctx.cluster.disk(namespace, operation.spec.disk.as_str()).is_some() {
            continue;
        }
        let Some(status) = fail_without_disk(operation, now) else { continue };
        // The watches are independent: the disk may have been created before the operation.
        let disks: Api<Disk> = Api::namespaced(ctx.client.clone(), namespace);
        let name = operation.spec.disk.as_str();
        let stored = with_timeout(disks.get_opt(name)).await;
        let failed = |source| Error::Read { kind: "Disk", name: name.to_owned(), source: Box::new(source) };
        if stored.map_err(failed)?.is_none() {
            let status = serde_json::to_value(status).unwrap_or_default();
            write_status(ctx, &**operation, status, FieldManager::Operator).await?;
        }
    }
    let operations: Vec<&DiskOperation> = operations.iter().map(|operation| &**operation).collect();
    for target in expired_operations(&operations, now).0 {
        apply(ctx, &Write::Delete(target)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake;

    #[tokio::test]
    async fn operation_on_a_missing_disk_fails() {
        let operation = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DiskOperation",
            "metadata": {"name": "op", "namespace": "dev-ada", "uid": "u1", "resourceVersion": "7"},
            "spec": {"disk": "home", "action": "Snapshot"}});
        let stored: DiskOperation = serde_json::from_value(operation.clone()).unwrap();
        let missing = json!({"kind": "Status", "code": 404, "reason": "NotFound", "status": "Failure", "message": ""});
        let is_status = |request: &fake::RecordedRequest| request.path.ends_with("/status");
        let cluster =
            fake::api_server(
                move |request| {
                    if is_status(request) { (200, operation.clone()) } else { (404, missing.clone()) }
                },
            );
        let ctx = fake::context(cluster.client.clone());
        ctx.cluster.disk_operations.insert_listed(("dev-ada".into(), "op".into()), stored, 7);
        reconcile_all(&ctx).await.unwrap();
        let requests = cluster.requests();
        let [read, status] = requests.as_slice() else { panic!("{requests:?}") };
        assert_eq!(read.path, "/apis/odc.dev/v1alpha1/namespaces/dev-ada/disks/home");
        assert_eq!(status.path, "/apis/odc.dev/v1alpha1/namespaces/dev-ada/diskoperations/op/status");
        assert_eq!(status.body["status"]["phase"], "Failed");
        assert_eq!(status.body["status"]["conditions"][0]["reason"], "DiskNotFound");
    }
}
