//! The watches of all kinds, and what a change of each kind enqueues.

mod snapshots;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::api::{Api, DynamicObject};
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use odc_api::v1alpha1::{
    DevServer, DevServerFlavor, DevServerUser, Disk, DiskOperation, DiskOperationPhase, Home, Phase, Team,
};
use odc_api::{label, namespace};
use odc_core::manifest::Kind;
use odc_core::{cluster, volume_in_use};

use crate::agents::ssh_control_ca::{self, CaState};
use crate::cache::assumed::{AssumedReceiver, assumed_channel};
use crate::cache::cluster::ManagedObjects;
use crate::cache::projected::{self, Change};
use crate::cache::reflector::{self, WatchEvent};
use crate::cache::{MaybeInvalid, key};
use crate::context::Context;
use crate::devserver::validation_inputs;
use crate::dynamic_api::api;
use crate::invalid_objects;
use crate::leader_tasks::{Task, task};

/// The number of objects per page of a list. A page is held as JSON and as objects at the same time, so its size
/// determines the peak memory of a start.
pub const LIST_PAGE_SIZE: u32 = 100;

/// The writing ends of the stores.
pub struct Writers {
    pub servers: Writer<DevServer>,
    pub assumed_servers: AssumedReceiver<DevServer>,
    pub users: Writer<DevServerUser>,
    pub disks: Writer<Disk>,
    pub assumed_disks: AssumedReceiver<Disk>,
}

/// Returns one task for each watch.
pub fn all(ctx: &Arc<Context>, writers: Writers) -> Vec<Task> {
    let mut all = vec![
        task("watch of servers", servers(ctx.clone(), writers.servers, writers.assumed_servers)),
        task("watch of users", users(ctx.clone(), writers.users)),
        task("watch of disks", disks(ctx.clone(), writers.disks, writers.assumed_disks)),
        task("watch of disk operations", disk_operations(ctx.clone())),
        task("watch of snapshots", snapshots::watch(ctx.clone())),
        task("watch of snapshot contents", snapshots::watch_contents(ctx.clone())),
        task("watch of flavors", flavors(ctx.clone())),
        task("watch of teams", teams(ctx.clone())),
        task("watch of pods", pods(ctx.clone())),
        task("watch of nodes", nodes(ctx.clone())),
        task("watch of claims", claims(ctx.clone())),
        task("watch of volumes", volumes(ctx.clone())),
        task("watch of storage classes", storage_classes(ctx.clone())),
        task("watch of attach limits", attach_limits(ctx.clone())),
        task("watch of runtime classes", runtime_classes(ctx.clone())),
        task("watch of namespaces", namespaces(ctx.clone())),
        task("watch of the control CA", ssh_control_ca::watch(ctx.clone())),
    ];
    let managed = ManagedObjects::KINDS.into_iter();
    all.extend(managed.map(|kind| task("watch of managed objects", managed_objects(ctx.clone(), kind))));
    all
}

/// Waits until the first list of every kind is complete.
pub async fn wait_for_sync(ctx: &Context) -> anyhow::Result<()> {
    let cluster = &ctx.cluster;
    ctx.control_ca.subscribe().wait_for(CaState::is_known).await?;
    cluster.servers.wait_until_ready().await?;
    cluster.users.wait_until_ready().await?;
    cluster.disks.wait_until_ready().await?;
    cluster.disk_operations.wait_for_sync().await;
    cluster.snapshots.wait_for_sync().await;
    cluster.snapshot_contents.wait_for_sync().await;
    cluster.flavors.objects.wait_for_sync().await;
    cluster.teams.wait_for_sync().await;
    cluster.pods.wait_for_sync().await;
    cluster.nodes.wait_for_sync().await;
    cluster.claims.wait_for_sync().await;
    cluster.volumes.wait_for_sync().await;
    cluster.storage_classes.wait_for_sync().await;
    cluster.attach_limits.wait_for_sync().await;
    cluster.runtime_classes.wait_for_sync().await;
    cluster.namespaces.wait_for_sync().await;
    for kind in ManagedObjects::KINDS {
        if let Some(cache) = cluster.managed_objects.kind(kind) {
            cache.wait_for_sync().await;
        }
    }
    Ok(())
}

fn config() -> watcher::Config {
    watcher::Config::default().page_size(LIST_PAGE_SIZE)
}

/// Selects the objects that the operator created.
fn managed_by_us() -> watcher::Config {
    config().labels(&format!("{}=odc-operator", label::MANAGED_BY))
}

async fn servers(ctx: Arc<Context>, writer: Writer<DevServer>, assumed: AssumedReceiver<DevServer>) {
    let api: Api<MaybeInvalid<DevServer>> = Api::all(ctx.client.clone());
    reflector::watch(api, config(), writer, assumed, |event| match event {
        WatchEvent::Applied(server) => server_changed(&ctx, server, false),
        WatchEvent::Deleted(server) => server_changed(&ctx, server, true),
        WatchEvent::Invalid(invalid) => invalid_objects::report_server(&ctx, invalid),
        WatchEvent::InvalidDeleted((namespace, _)) => ctx.work_queues.enqueue_namespace(namespace),
    })
    .await;
}

fn server_changed(ctx: &Context, server: &DevServer, deleted: bool) {
    let key = key(server);
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    if deleted || server.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::is_terminal) {
        let claims = validation_inputs::claims(&ctx.cluster, server);
        enqueue_other_servers_mounting(ctx, &key.0, claims.iter().map(String::as_str), &key.1);
    }
    if deleted {
        ctx.soft_states.remove(uid);
        ctx.validated_servers.remove(uid);
        ctx.cluster.namespace_index.remove(&key);
        ctx.cluster.claim_index.remove_server(&key);
    } else {
        ctx.soft_states.insert(uid);
        ctx.validated_servers.insert(uid);
        ctx.cluster.namespace_index.insert(key.clone());
        ctx.cluster.index_server(server);
    }
    let (namespace, name) = key;
    if let Home::Disk(disk) = &server.spec.home {
        ctx.work_queues.enqueue_disk(&namespace, disk.as_str());
    }
    if deleted {
        ctx.work_queues.enqueue_namespace(&namespace);
    } else {
        ctx.work_queues.enqueue_server(&namespace, &name);
    }
    ctx.work_queues.wake_scheduler();
}

/// Enqueues the servers that may wait for claims which `released_by`, or a pod of it, has released.
fn enqueue_other_servers_mounting<'a>(
    ctx: &Context,
    namespace: &str,
    claims: impl IntoIterator<Item = &'a str>,
    released_by: &str,
) {
    let index = &ctx.cluster.claim_index;
    let servers: BTreeSet<String> =
        claims.into_iter().flat_map(|claim| index.servers_mounting(namespace, claim)).collect();
    for name in servers.iter().filter(|name| *name != released_by) {
        ctx.work_queues.enqueue_server(namespace, name);
    }
}

async fn disks(ctx: Arc<Context>, writer: Writer<Disk>, assumed: AssumedReceiver<Disk>) {
    let api: Api<MaybeInvalid<Disk>> = Api::all(ctx.client.clone());
    reflector::watch(api, config(), writer, assumed, |event| match event {
        WatchEvent::Applied(disk) => disk_changed(&ctx, disk, false),
        WatchEvent::Deleted(disk) => disk_changed(&ctx, disk, true),
        WatchEvent::Invalid(invalid) => invalid_objects::report(&ctx, "Disk", invalid),
        WatchEvent::InvalidDeleted((namespace, _)) => ctx.work_queues.enqueue_namespace(namespace),
    })
    .await;
}

fn disk_changed(ctx: &Context, disk: &Disk, deleted: bool) {
    let key = key(disk);
    let uid = disk.metadata.uid.as_deref().unwrap_or_default();
    let (namespace, name) = key.clone();
    if deleted {
        ctx.soft_states.remove_object(uid);
        ctx.soft_states.remove_disk(uid);
        ctx.cluster.disk_index.remove(&key);
        ctx.work_queues.enqueue_namespace(&namespace);
        ctx.work_queues.disk_operations.notify_one();
    } else {
        ctx.soft_states.insert_object(uid);
        ctx.soft_states.insert_disk(uid);
        ctx.cluster.disk_index.insert(key);
        ctx.work_queues.enqueue_disk(&namespace, &name);
    }
    for server in ctx.cluster.servers_of_disk(&namespace, &name) {
        ctx.cluster.index_server(&server);
        ctx.work_queues.enqueue_server(&namespace, server.metadata.name.as_deref().unwrap_or_default());
    }
    ctx.work_queues.wake_scheduler();
}

/// Enqueues the disks of a namespace. A user has few of them, and what they depend on rarely changes.
fn enqueue_disks(ctx: &Context, namespace: &str) {
    for name in ctx.cluster.disk_index.names(namespace) {
        ctx.work_queues.enqueue_disk(namespace, &name);
    }
}

async fn disk_operations(ctx: Arc<Context>) {
    let api: Api<MaybeInvalid<DiskOperation>> = Api::all(ctx.client.clone());
    let project = |guarded: MaybeInvalid<DiskOperation>| {
        let report = |invalid| invalid_objects::report(&ctx, "DiskOperation", &invalid);
        let mut operation = guarded.0.map_err(report).ok()?;
        operation.metadata.managed_fields = None;
        Some(operation)
    };
    projected::watch(api, config(), &ctx.cluster.disk_operations, project, |change| {
        remember_operation(&ctx, &change);
        let disk = change.new.or(change.old).map(|operation| &operation.spec.disk);
        if let Some(disk) = disk {
            ctx.work_queues.enqueue_disk(&change.key.0, disk.as_str());
        }
        ctx.work_queues.disk_operations.notify_one();
    })
    .await;
}

/// Keeps an entry in memory for each unfinished operation.
fn remember_operation(ctx: &Context, change: &Change<'_, DiskOperation>) {
    let uid = |operation: Option<&DiskOperation>| operation.and_then(|operation| operation.metadata.uid.clone());
    let is_finished = |operation: &DiskOperation| {
        let phase = operation.status.as_ref().and_then(|status| status.phase);
        phase.is_some_and(DiskOperationPhase::is_terminal)
    };
    let unfinished = uid(change.new.filter(|operation| !is_finished(operation)));
    if let Some(old) = uid(change.old).filter(|old| Some(old) != unfinished.as_ref()) {
        ctx.soft_states.remove(&old);
    }
    if let Some(unfinished) = unfinished {
        ctx.soft_states.insert(&unfinished);
    }
}

async fn users(ctx: Arc<Context>, writer: Writer<DevServerUser>) {
    let api: Api<MaybeInvalid<DevServerUser>> = Api::all(ctx.client.clone());
    // Users are never assumed.
    let (_sender, assumed) = assumed_channel();
    reflector::watch(api, config(), writer, assumed, |event| match event {
        WatchEvent::Applied(user) => user_changed(&ctx, user, false),
        WatchEvent::Deleted(user) => user_changed(&ctx, user, true),
        WatchEvent::Invalid(invalid) => invalid_objects::report(&ctx, "DevServerUser", invalid),
        WatchEvent::InvalidDeleted((_, name)) => ctx.work_queues.enqueue_namespace(&namespace::for_user(name)),
    })
    .await;
}

fn user_changed(ctx: &Context, user: &DevServerUser, deleted: bool) {
    let name = user.metadata.name.clone().unwrap_or_default();
    let namespace = namespace::for_user(&name);
    let uid = user.metadata.uid.as_deref().unwrap_or_default();
    if deleted {
        ctx.soft_states.remove_object(uid);
        ctx.work_queues.enqueue_namespace(&namespace);
    } else {
        ctx.soft_states.insert_object(uid);
        ctx.work_queues.enqueue_user(&name);
    }
    ctx.cluster.index_namespace(&namespace);
    enqueue_disks(ctx, &namespace);
    enqueue_servers(ctx, |server| {
        let is_guest = server.spec.access.users.iter().any(|guest| guest.as_str() == name);
        is_guest || server.metadata.namespace.as_deref() == Some(&namespace)
    });
    ctx.work_queues.teams.notify_one();
    ctx.work_queues.wake_scheduler();
}

async fn flavors(ctx: Arc<Context>) {
    let api: Api<MaybeInvalid<DevServerFlavor>> = Api::all(ctx.client.clone());
    let project = |guarded: MaybeInvalid<DevServerFlavor>| {
        let report = |invalid| invalid_objects::report(&ctx, "DevServerFlavor", &invalid);
        let mut flavor = guarded.0.map_err(report).ok()?;
        flavor.metadata.managed_fields = None;
        Some(flavor)
    };
    projected::watch(api, config(), &ctx.cluster.flavors.objects, project, |change| {
        if change.old.map(|old| &old.spec) == change.new.map(|new| &new.spec) && change.old.is_some() {
            return;
        }
        ctx.cluster.flavors.rebuild();
        ctx.cluster.index_servers();
        let name = &change.key.1;
        // Servers without a flavor use the default flavor, which may have changed.
        enqueue_servers(&ctx, |server| server.spec.flavor.as_ref().is_none_or(|flavor| flavor.as_str() == name));
        for user in ctx.cluster.users.state() {
            ctx.work_queues.enqueue_user(user.metadata.name.as_deref().unwrap_or_default());
        }
        ctx.work_queues.wake_scheduler();
    })
    .await;
}

async fn teams(ctx: Arc<Context>) {
    let api: Api<MaybeInvalid<Team>> = Api::all(ctx.client.clone());
    let project = |guarded: MaybeInvalid<Team>| {
        let mut team = guarded.0.map_err(|invalid| invalid_objects::report(&ctx, "Team", &invalid)).ok()?;
        team.metadata.managed_fields = None;
        Some(team)
    };
    projected::watch(api, config(), &ctx.cluster.teams, project, |change| {
        ctx.work_queues.teams.notify_one();
        if change.old.map(|old| &old.spec) == change.new.map(|new| &new.spec) && change.old.is_some() {
            return;
        }
        let team = &change.key.1;
        enqueue_servers(&ctx, |server| server.spec.team.as_ref().is_some_and(|name| name.as_str() == team));
        let members = change.old.iter().chain(&change.new).flat_map(|team| &team.spec.members);
        for member in members {
            ctx.work_queues.enqueue_user(member.as_str());
        }
        ctx.work_queues.wake_scheduler();
    })
    .await;
}

async fn pods(ctx: Arc<Context>) {
    let api: Api<k8s::Pod> = Api::all(ctx.client.clone());
    let project = |pod: k8s::Pod| Some(cluster::Pod::from_api(&pod));
    projected::watch(api, config(), &ctx.cluster.pods, project, |change| {
        ctx.cluster.index_pod(change.key);
        // What the scheduler uses of a pod.
        let scheduling_state = |pod: Option<&cluster::Pod>| {
            pod.map(|pod| {
                let unschedulable = pod.server.as_ref().and_then(|server| server.unschedulable_since);
                (
                    pod.uid.clone(),
                    pod.node.clone(),
                    pod.is_terminated(),
                    pod.deletion_timestamp.is_some(),
                    unschedulable,
                )
            })
        };
        if let Some(server) = server_name(&change) {
            ctx.work_queues.enqueue_server(&change.key.0, server);
        }
        let mounts_claim = change.new.or(change.old).is_some_and(|pod| !pod.claims.is_empty());
        let is_of_operation = change.new.or(change.old).is_some_and(|pod| pod.operation.is_some());
        let is_ready =
            |pod: Option<&cluster::Pod>| pod.and_then(|pod| pod.server.as_ref()).is_some_and(|details| details.ready);
        let disk_state = |pod: Option<&cluster::Pod>| (scheduling_state(pod), is_ready(pod));
        if is_of_operation || mounts_claim && disk_state(change.old) != disk_state(change.new) {
            enqueue_disks(&ctx, &change.key.0);
        }
        let released = volume_in_use::released_claims(change.old, change.new);
        enqueue_other_servers_mounting(&ctx, &change.key.0, released, server_name(&change).unwrap_or_default());
        if let Some(old) = change.old
            && change.new.is_none_or(|new| new.uid != old.uid)
        {
            let server = old.server.as_ref().and_then(|details| details.server_uid());
            let operation = old.operation.as_ref().map(|details| details.operation_uid.as_str());
            if let Some(creator) = server.or(operation) {
                ctx.soft_states.remove_pod(creator, &old.uid);
            }
        }
        if scheduling_state(change.old) != scheduling_state(change.new) || change.new.is_none() {
            ctx.work_queues.wake_scheduler();
        }
    })
    .await;
}

/// Returns the server of a pod by its label, or by the pod's name if the label was removed.
fn server_name<'a>(change: &'a Change<'_, cluster::Pod>) -> Option<&'a str> {
    let labelled = change.new.or(change.old).and_then(|pod| pod.server.as_ref()).and_then(|pod| pod.server.as_deref());
    labelled.or_else(|| change.key.1.rsplit_once('-').map(|(server, _)| server))
}

async fn nodes(ctx: Arc<Context>) {
    let api: Api<k8s::Node> = Api::all(ctx.client.clone());
    let project = |node: k8s::Node| Some(cluster::Node::from_api(&node));
    projected::watch(api, config(), &ctx.cluster.nodes, project, |change| {
        // Heartbeats do not change the projection.
        if change.old == change.new && change.old.is_some() {
            return;
        }
        if change.new.is_some() {
            ctx.cluster.missing_nodes.remove(&change.key.1);
        }
        let readiness = |node: Option<&cluster::Node>| node.map(|node| node.readiness);
        if readiness(change.old) != readiness(change.new) || change.new.is_none() {
            node_readiness_changed(&ctx, &change.key.1);
        }
        ctx.work_queues.wake_scheduler();
    })
    .await;
}

/// Enqueues the servers and disks of the pods on a node.
fn node_readiness_changed(ctx: &Context, node: &str) {
    for pod in ctx.cluster.pods.all().iter().filter(|pod| pod.node.as_deref() == Some(node)) {
        if let Some(server) = pod.server.as_ref().and_then(|pod| pod.server.as_deref()) {
            ctx.work_queues.enqueue_server(&pod.namespace, server);
        }
        if !pod.claims.is_empty() {
            enqueue_disks(ctx, &pod.namespace);
        }
    }
}

async fn claims(ctx: Arc<Context>) {
    let api: Api<k8s::PersistentVolumeClaim> = Api::all(ctx.client.clone());
    let project = |claim: k8s::PersistentVolumeClaim| Some(cluster::Claim::from_api(&claim));
    projected::watch(api, config(), &ctx.cluster.claims, project, |change| {
        if change.old == change.new && change.old.is_some() {
            return;
        }
        let (namespace, name) = change.key;
        for server in ctx.cluster.claim_index.servers_mounting(namespace, name) {
            ctx.work_queues.enqueue_server(namespace, &server);
        }
        if change.new.is_none() {
            ctx.work_queues.enqueue_namespace(&change.key.0);
        }
        enqueue_disks(&ctx, namespace);
        ctx.work_queues.wake_scheduler();
    })
    .await;
}

async fn volumes(ctx: Arc<Context>) {
    let api: Api<k8s::PersistentVolume> = Api::all(ctx.client.clone());
    let project = |volume: k8s::PersistentVolume| Some(cluster::Volume::from_api(&volume));
    projected::watch(api, config(), &ctx.cluster.volumes, project, |change| {
        if let Some(namespace) = change.new.and_then(|volume| volume.claim_namespace.as_deref()) {
            enqueue_disks(&ctx, namespace);
        }
        ctx.work_queues.wake_scheduler();
    })
    .await;
}

async fn storage_classes(ctx: Arc<Context>) {
    let api: Api<StorageClass> = Api::all(ctx.client.clone());
    let project = |class: StorageClass| Some(cluster::StorageClass::from_api(&class));
    projected::watch(api, config(), &ctx.cluster.storage_classes, project, |change| {
        enqueue_servers(&ctx, |_| true);
        if change.old != change.new {
            ctx.cluster.disk_index.namespaces().iter().for_each(|namespace| enqueue_disks(&ctx, namespace));
        }
        ctx.work_queues.wake_scheduler();
    })
    .await;
}

async fn attach_limits(ctx: Arc<Context>) {
    let api: Api<CSINode> = Api::all(ctx.client.clone());
    let project = |node: CSINode| cluster::NodeVolumeLimits::from_api(&node);
    projected::watch(api, config(), &ctx.cluster.attach_limits, project, |change| {
        if change.old != change.new {
            ctx.work_queues.wake_scheduler();
        }
    })
    .await;
}

async fn runtime_classes(ctx: Arc<Context>) {
    let api: Api<RuntimeClass> = Api::all(ctx.client.clone());
    let project = |class: RuntimeClass| Some(cluster::RuntimeClass::from_api(&class));
    projected::watch(api, config(), &ctx.cluster.runtime_classes, project, |change| {
        if change.old != change.new {
            enqueue_servers(&ctx, |_| true);
            ctx.work_queues.wake_scheduler();
        }
    })
    .await;
}

async fn namespaces(ctx: Arc<Context>) {
    let api = api(&ctx.client, Kind::Namespace, None);
    let project = |object: DynamicObject| {
        // Namespaces that cannot belong to a user are not cached.
        namespace::owner(object.metadata.name.as_deref()?)?;
        Some(cluster::ManagedObject::from_api(Kind::Namespace, serde_json::to_value(object).unwrap_or_default()))
    };
    let on_change = |change: Change<'_, cluster::ManagedObject>| {
        if let Some(owner) = namespace::owner(&change.key.1) {
            ctx.work_queues.enqueue_user(owner.as_str());
            ctx.work_queues.enqueue_namespace(&change.key.1);
            enqueue_disks(&ctx, &change.key.1);
            // The label decides who owns the servers in the namespace.
            let owner_label = |object: Option<&cluster::ManagedObject>| {
                object.and_then(|object| object.label(label::OWNER).map(str::to_owned))
            };
            if owner_label(change.old) != owner_label(change.new) {
                ctx.cluster.index_namespace(&change.key.1);
                enqueue_servers(&ctx, |server| server.metadata.namespace.as_ref() == Some(&change.key.1));
                ctx.work_queues.wake_scheduler();
            }
        }
    };
    projected::watch(api, config(), &ctx.cluster.namespaces, project, on_change).await;
}

async fn managed_objects(ctx: Arc<Context>, kind: Kind) {
    let api = api(&ctx.client, kind, None);
    let Some(cache) = ctx.cluster.managed_objects.kind(kind) else { return };
    let project = |object: DynamicObject| {
        Some(cluster::ManagedObject::from_api(kind, serde_json::to_value(object).unwrap_or_default()))
    };
    let on_change = |change: Change<'_, cluster::ManagedObject>| {
        if change.old == change.new && change.old.is_some() {
            return;
        }
        let server_label = change.new.or(change.old).and_then(|object| object.label(label::SERVER));
        if kind == Kind::Service {
            ctx.work_queues.enqueue_server(&change.key.0, server_label.unwrap_or(&change.key.1));
        } else if let Some(owner) = namespace::owner(&change.key.0) {
            ctx.work_queues.enqueue_user(owner.as_str());
        }
        ctx.work_queues.enqueue_namespace(&change.key.0);
    };
    projected::watch(api, managed_by_us(), cache, project, on_change).await;
}

fn enqueue_servers(ctx: &Context, filter: impl Fn(&DevServer) -> bool) {
    for server in ctx.cluster.servers.state() {
        if filter(&server) {
            let (namespace, name) = key(&*server);
            ctx.work_queues.enqueue_server(&namespace, &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use kube::runtime::reflector::ObjectRef;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake;
    use crate::work_queues::WorkQueues;

    #[tokio::test]
    async fn changed_readiness_of_a_node_enqueues_the_disks_of_its_pods() {
        let mut ctx = fake::context(fake::api_server(|_| (404, Value::Null)).client);
        let (work_queues, mut receivers) = WorkQueues::new();
        Arc::get_mut(&mut ctx).unwrap().work_queues = work_queues;
        for (user, node) in [("ada", "n1"), ("bob", "n2")] {
            let namespace = format!("dev-{user}");
            // The server of the pod is deleted.
            let pod: k8s::Pod = serde_json::from_value(json!({
                "metadata": {"name": "box-0", "namespace": namespace},
                "spec": {"nodeName": node, "containers": [],
                    "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "disk-home"}}]}}))
            .unwrap();
            let key = (namespace, "box-0".to_owned());
            ctx.cluster.pods.insert_listed(key, cluster::Pod::from_api(&pod), 1);
            ctx.cluster.disk_index.insert((format!("dev-{user}"), "home".into()));
        }
        node_readiness_changed(&ctx, "n1");
        assert_eq!(receivers.disks.try_recv().unwrap(), ObjectRef::new("home").within("dev-ada"));
        assert!(receivers.disks.try_recv().is_err());
    }

    #[tokio::test]
    async fn deleted_objects_leave_no_memory() {
        let ctx = fake::context(fake::api_server(|_| (404, Value::Null)).client);
        for number in 0..500 {
            let uid = |kind: &str| Some(format!("{kind}-{number}"));
            let mut server: DevServer =
                serde_json::from_value(json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
                    "metadata": {}, "spec": {"home": {"ephemeral": "1Gi"}}}))
                .unwrap();
            server.metadata = ObjectMeta {
                name: uid("s"),
                namespace: Some("dev-ada".into()),
                uid: uid("s"),
                ..ObjectMeta::default()
            };
            let mut user: DevServerUser =
                serde_json::from_value(json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerUser",
                    "metadata": {}, "spec": {}}))
                .unwrap();
            user.metadata = ObjectMeta { name: uid("u"), uid: uid("u"), ..ObjectMeta::default() };
            server_changed(&ctx, &server, false);
            user_changed(&ctx, &user, false);
            assert_eq!(ctx.soft_states.record_failure(&uid("s").unwrap()), 1);
            server_changed(&ctx, &server, true);
            user_changed(&ctx, &user, true);
            // Reconciliations in progress end after the deletion, successfully or not.
            let (server, user) = (Arc::new(server), Arc::new(user));
            let error = crate::error::Error::NotLeader;
            crate::devserver::reconcile(server.clone(), ctx.clone()).await.unwrap();
            crate::devserver::on_error(server, &error, ctx.clone());
            crate::user::on_error(user, &error, ctx.clone());
        }
        assert_eq!(ctx.soft_states.len(), 0);
        assert_eq!(ctx.validated_servers.len(), 0);
        assert_eq!(ctx.cluster.namespace_index.names("dev-ada"), [""; 0]);
    }
}
