//! The disk controller: reads the caches, gets a plan from `odc_core::disk`, and executes it.

pub mod listings;
mod observe;
pub mod operations;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Resource as _;
use kube::runtime::controller::Action;
use odc_api::v1alpha1::Disk;
use odc_core::disk::{self, RefusedWrite};
use odc_core::plan::{Requeue, Write};

use crate::agents;
use crate::apply::apply;
use crate::context::Context;
use crate::devserver::uncached_reads;
use crate::error::{Class, Error};
use crate::error_policy;
use crate::status_writer::{FieldManager, write_status};
use observe::ObservedDisk;

const NAME: &str = "disk";
/// When an object could not be created.
const WRITE_RETRY_DELAY: Duration = Duration::from_secs(10);

pub async fn reconcile(disk: Arc<Disk>, ctx: Arc<Context>) -> Result<Action, Error> {
    let started = Instant::now();
    let result = reconcile_once(&disk, &ctx).await;
    ctx.metrics.record_reconcile(NAME, started.elapsed());
    if result.is_ok() {
        ctx.soft_states.record_object_success(disk.metadata.uid.as_deref().unwrap_or_default());
    }
    result
}

async fn reconcile_once(object: &Disk, ctx: &Arc<Context>) -> Result<Action, Error> {
    let observed = ObservedDisk::new(ctx, object);
    let plan = disk::reconcile(object, &observed.observed(), &ctx.config.server, ctx.now());
    for write in &plan.writes {
        apply(ctx, write).await?;
    }
    if object.status.as_ref() != Some(&plan.status) {
        let status = serde_json::to_value(&plan.status).unwrap_or_default();
        write_status(ctx, object, status, FieldManager::Operator).await?;
    }
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    for (name, status) in plan.operations {
        if let Some(operation) = ctx.cluster.disk_operations.get(namespace, &name) {
            let status = serde_json::to_value(status).unwrap_or_default();
            write_status(ctx, &*operation, status, FieldManager::Operator).await?;
        }
    }
    if ctx.cluster.owner(namespace).is_some() {
        ctx.events.publish(&object.object_ref(&()), &plan.events);
    }
    let mut requeue = plan.requeue;
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let mut refused = None;
    for write in &plan.disk_writes {
        match apply(ctx, write).await {
            Ok(_) => {}
            Err(error) if error.rejection().is_some() => {
                tracing::info!(error = &error as &dyn std::error::Error, uid, "failed to write an object of a disk");
                requeue = Requeue::After(WRITE_RETRY_DELAY);
                refused = Some(RefusedWrite { kind: write.kind(), message: error.user_message() });
            }
            Err(error) => return Err(error),
        }
    }
    ctx.soft_states.update_disk(uid, |state| state.refused = refused);
    for (uid, write) in &plan.operation_writes {
        if !write_for_operation(ctx, uid, write).await? {
            // Not earlier, because a plan that expects the object asks for an immediate reconciliation.
            requeue = Requeue::After(WRITE_RETRY_DELAY);
        }
    }
    if !listings::execute(ctx, object, plan.listings).await? {
        requeue = requeue.earlier(Requeue::After(WRITE_RETRY_DELAY));
    }
    for (uid, call) in plan.agent_calls {
        agents::start_for_disk(ctx, object, uid, call);
    }
    Ok(match requeue {
        Requeue::AwaitChange => Action::await_change(),
        Requeue::After(time) => Action::requeue(time),
    })
}

/// Creates an object for an operation. An error, such as an exceeded quota, is recorded for the message of the operation,
/// and does not fail the reconciliation of the disk. Returns whether the object was created.
async fn write_for_operation(ctx: &Context, uid: &str, write: &Write) -> Result<bool, Error> {
    let error = match apply(ctx, write).await {
        Ok(stored) => {
            if let (Write::CreateWithKeys { .. }, Some(stored)) = (write, stored) {
                uncached_reads::record_secret(ctx, uid, &stored);
            }
            None
        }
        Err(error) if error.class() == Class::Conflict || matches!(error, Error::NotLeader) => return Err(error),
        Err(error) => Some(error),
    };
    if let Some(error) = &error {
        tracing::info!(error = error as &dyn std::error::Error, uid, "failed to create an object of a disk operation");
    }
    let is_created = error.is_none();
    ctx.soft_states.update(uid, |entry| entry.recurring_error = error.map(|error| error.user_message()));
    Ok(is_created)
}

#[expect(clippy::needless_pass_by_value, reason = "signature required by the applier")]
pub fn on_error(disk: Arc<Disk>, error: &Error, ctx: Arc<Context>) -> Action {
    let failures = ctx.soft_states.record_object_failure(disk.metadata.uid.as_deref().unwrap_or_default());
    let name = disk.metadata.name.as_deref().unwrap_or_default();
    let namespace = disk.metadata.namespace.as_deref().unwrap_or_default();
    error_policy::handle_error(&ctx, NAME, &format!("{namespace}/{name}"), error, failures)
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use odc_core::cluster::ManagedObject;
    use odc_core::manifest::{Kind, Object};
    use serde_json::{Value, json};

    use super::*;
    use crate::fake;

    fn disk() -> Disk {
        serde_json::from_value(json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Disk",
            "metadata": {"name": "home", "namespace": "dev-ada", "uid": "u1", "resourceVersion": "7", "generation": 1},
            "spec": {"size": "1Gi"}}))
        .unwrap()
    }

    #[tokio::test]
    async fn status_is_written_to_the_version_it_was_decided_from() {
        let cluster = fake::api_server(|_| (200, serde_json::to_value(disk()).unwrap()));
        let ctx = fake::context(cluster.client.clone());
        let stored = json!({"metadata": {"name": "dev-ada", "uid": "n", "labels": {odc_api::label::OWNER: "ada"}}});
        let key = (String::new(), "dev-ada".to_owned());
        ctx.cluster.namespaces.insert_listed(key, ManagedObject::from_api(Kind::Namespace, stored), 1);
        reconcile(Arc::new(disk()), ctx.clone()).await.unwrap();
        let requests = cluster.requests();
        let [status] = requests.as_slice() else { panic!("{requests:?}") };
        assert_eq!(status.path, "/apis/odc.dev/v1alpha1/namespaces/dev-ada/disks/home/status");
        assert_eq!(status.body["metadata"]["resourceVersion"], "7");
        let conditions = status.body["status"]["conditions"].as_array().unwrap();
        let reasons: Vec<&str> = conditions.iter().filter_map(|condition| condition["reason"].as_str()).collect();
        // The caches of this context were never filled, so the snapshot kinds count as absent.
        assert_eq!(reasons, ["NoOwner", "Released", "SnapshotsUnsupported"]);
    }

    #[tokio::test]
    async fn conflict_is_retried_without_a_second_write() {
        let cluster = fake::api_server(|_| (409, Value::Null));
        let ctx = fake::context(cluster.client.clone());
        let error = reconcile(Arc::new(disk()), ctx.clone()).await.unwrap_err();
        assert_eq!(error.class(), Class::Conflict);
        assert_eq!(cluster.requests().len(), 1);
    }

    fn pod_of_operation() -> Write {
        let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "home-op", "namespace": "dev-ada"}});
        Write::Create(Object { kind: Kind::Pod, namespace: Some("dev-ada".into()), name: "home-op".into(), body })
    }

    #[tokio::test]
    async fn refused_pod_of_an_operation_is_recorded_for_its_message() {
        let ctx = fake::context(fake::api_server(|_| (403, Value::Null)).client);
        ctx.soft_states.insert("op");
        assert!(!write_for_operation(&ctx, "op", &pod_of_operation()).await.unwrap());
        let error = ctx.soft_states.get("op").recurring_error.unwrap();
        assert_eq!(error, "Creating Pod home-op failed, retrying: rejected");
        // A later success removes it.
        let ctx_ok = fake::context(fake::api_server(|_| (201, json!({"metadata": {"name": "home-op"}}))).client);
        ctx_ok.soft_states.insert("op");
        ctx_ok.soft_states.update("op", |entry| entry.recurring_error = Some(error));
        assert!(write_for_operation(&ctx_ok, "op", &pod_of_operation()).await.unwrap());
        assert_eq!(ctx_ok.soft_states.get("op").recurring_error, None);
    }

    #[tokio::test]
    async fn disks_of_a_namespace_are_indexed() {
        let ctx = fake::context(fake::api_server(|_| (404, Value::Null)).client);
        let (store, mut writer) = kube::runtime::reflector::store();
        writer.apply_watcher_event(&Event::Apply(disk()));
        assert_eq!(store.state().len(), 1);
        ctx.cluster.disk_index.insert(("dev-ada".into(), "home".into()));
        assert_eq!(ctx.cluster.disk_index.names("dev-ada"), ["home"]);
        ctx.cluster.disk_index.remove(&("dev-ada".into(), "home".into()));
        assert!(ctx.cluster.disk_index.names("dev-ada").is_empty());
    }
}
