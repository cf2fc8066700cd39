//! Removes servers and managed objects from the namespaces of deleted users. The namespace is deleted
//! when it contains no claims, disks and snapshots; volumes are never deleted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use odc_api::namespace;
use odc_api::v1alpha1::{DevServer, DevServerUser, Disk};
use odc_core::cluster::ManagedObject;
use odc_core::manifest::Kind;
use odc_core::plan::Target;
use odc_core::user::{self, NamespaceContents};
use tokio::sync::mpsc;

use super::NAME;
use crate::apply::apply;
use crate::context::Context;
use crate::dynamic_api::{api, with_timeout};
use crate::error::{Error, code};
use crate::error_policy;

/// How long to wait before a namespace that is not clean yet is checked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Cleans namespaces one after the other, because this is rare and lists everything from the API server.
pub async fn run(ctx: Arc<Context>, mut queue: mpsc::UnboundedReceiver<String>) {
    let mut due = BTreeSet::new();
    loop {
        tokio::select! {
            namespace = queue.recv() => match namespace {
                Some(namespace) => due.insert(namespace),
                None => return,
            },
            () = tokio::time::sleep(RETRY_INTERVAL), if !due.is_empty() => true,
        };
        // Several changes in one namespace are handled together.
        while let Ok(namespace) = queue.try_recv() {
            due.insert(namespace);
        }
        let mut unfinished = BTreeSet::new();
        for namespace in std::mem::take(&mut due) {
            if !is_orphaned(&ctx, &namespace) {
                continue;
            }
            match clean(&ctx, &namespace).await {
                Ok(true) => {}
                Ok(false) => {
                    unfinished.insert(namespace);
                }
                Err(error) => {
                    error_policy::handle_error(&ctx, NAME, &namespace, &error, 1);
                    unfinished.insert(namespace);
                }
            }
        }
        due = unfinished;
    }
}

/// Reports whether the operator created a namespace for a user that does not exist.
fn is_orphaned(ctx: &Context, name: &str) -> bool {
    let owner = namespace::owner(name);
    let is_managed = ctx.cluster.namespaces.get("", name).is_some_and(|namespace| {
        owner.as_ref().is_some_and(|owner| namespace.label(odc_api::label::OWNER) == Some(owner.as_str()))
    });
    is_managed && owner.is_some_and(|owner| ctx.cluster.user(owner.as_str()).is_none())
}

/// Returns true if nothing is left to do until an object changes.
async fn clean(ctx: &Context, name: &str) -> Result<bool, Error> {
    let Some(namespace) = ctx.cluster.namespaces.get("", name) else { return Ok(true) };
    let Some(owner) = namespace::owner(name) else { return Ok(true) };
    let failed =
        |kind: &'static str| move |source| Error::Read { kind, name: name.to_owned(), source: Box::new(source) };
    // Read from the API server: with a stale cache a namespace in use would look empty.
    let users: Api<DevServerUser> = Api::all(ctx.client.clone());
    // A user that cannot be deserialized exists; the watch reports its deletion.
    if with_timeout(users.get_metadata_opt(owner.as_str())).await.map_err(failed("DevServerUser"))?.is_some() {
        return Ok(true);
    }
    let list = ListParams::default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), name);
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), name);
    let servers: Api<DevServer> = Api::namespaced(ctx.client.clone(), name);
    let servers = with_timeout(servers.list_metadata(&list)).await.map_err(failed("DevServer"))?.items;
    let (terminating, active): (Vec<_>, Vec<_>) =
        servers.into_iter().partition(|server| server.metadata.deletion_timestamp.is_some());
    let disks: Api<Disk> = Api::namespaced(ctx.client.clone(), name);
    let contents = NamespaceContents {
        disks: with_timeout(disks.list_metadata(&list)).await.map_err(failed("Disk"))?.items.len(),
        snapshots: count_snapshots(ctx, name).await.map_err(failed("VolumeSnapshot"))?,
        claims: with_timeout(claims.list_metadata(&list)).await.map_err(failed("PersistentVolumeClaim"))?.items.len(),
        pods: with_timeout(pods.list_metadata(&list)).await.map_err(failed("Pod"))?.items.len(),
        servers: active.iter().map(|server| Target::from_metadata(Kind::DevServer, &server.metadata)).collect(),
        terminating_servers: terminating.len(),
    };
    let objects = ctx.cluster.managed_objects.in_namespace(name);
    let objects: Vec<&ManagedObject> = objects.iter().map(|object| &**object).collect();
    let writes = user::cleanup(&namespace, &contents, &objects);
    for write in &writes {
        apply(ctx, write).await?;
    }
    let in_progress = !contents.servers.is_empty() || contents.terminating_servers > 0 || contents.pods > 0;
    Ok(writes.is_empty() && !in_progress)
}

/// Returns the number of snapshots, which is zero if the API server does not have the kind.
async fn count_snapshots(ctx: &Context, namespace: &str) -> kube::Result<usize> {
    let snapshots = api(&ctx.client, Kind::VolumeSnapshot, Some(namespace));
    match with_timeout(snapshots.list_metadata(&ListParams::default())).await {
        Ok(found) => Ok(found.items.len()),
        Err(error) if code(&error) == Some(404) => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake;

    #[tokio::test]
    async fn invalid_user_is_requested_once() {
        let cluster = fake::api_server(|request| {
            let mut head = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"});
            head["metadata"] = json!({"name": "ada", "uid": "u"});
            if request.path.ends_with("/ada") { (200, head) } else { (404, json!(null)) }
        });
        let ctx = fake::context(cluster.client.clone());
        let stored = json!({"metadata": {"name": "dev-ada", "uid": "n", "labels": {odc_api::label::OWNER: "ada"}}});
        let key = (String::new(), "dev-ada".to_owned());
        ctx.cluster.namespaces.insert_listed(key, ManagedObject::from_api(Kind::Namespace, stored), 1);
        assert!(is_orphaned(&ctx, "dev-ada"));
        assert!(clean(&ctx, "dev-ada").await.unwrap());
        let paths: Vec<_> = cluster.requests().into_iter().map(|request| request.path).collect();
        assert_eq!(paths, ["/apis/odc.dev/v1alpha1/devserverusers/ada"]);
    }
}
