//! The input of a scheduling cycle, taken from the caches.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use jiff::Timestamp;
use odc_api::namespace;
use odc_api::v1alpha1::{Admission, DevServer, DevServerFlavor, Phase};
use odc_core::admission::volume_limits::{AttachedVolumes, VolumeLimits};
use odc_core::admission::{self, Account, Accounts, NodeRejections, Request, Server, hold_time};
use odc_core::cluster::{CsiVolume, Node, Pod, RuntimeClass};
use odc_core::devserver::validate::{Valid, effective_priority, validate};
use odc_core::devserver::{active_admission, build, pods, queue_intent};
use odc_core::flavor::NodeConstraints;
use odc_core::plan::Requeue;
use odc_core::time::until;

use crate::cache::{key, version};
use crate::context::Context;
use crate::devserver::validation_inputs::ValidationInputs;
use crate::error::Class;
use crate::metrics::ReconcileError;

/// Owns what [`admission::Snapshot`] borrows.
pub struct OwnedSnapshot {
    nodes: Vec<Arc<Node>>,
    pods: Vec<Arc<Pod>>,
    attached: Arc<AttachedVolumes>,
    runtimes: Vec<Arc<RuntimeClass>>,
    servers: Vec<Server>,
    accounts: Accounts,
    flavors: Vec<Arc<DevServerFlavor>>,
    /// The servers, by uid.
    pub objects: HashMap<String, Arc<DevServer>>,
    /// Servers whose cached version is older than the assumed one.
    pub stale: HashSet<String>,
    /// When the next booking starts.
    pub next_booking: Requeue,
}

/// Servers as the scheduler wrote them and that may not be in the cache yet, with their version, by uid.
pub type AssumedAdmissions = HashMap<String, (Arc<DevServer>, u64)>;

impl OwnedSnapshot {
    /// Takes a snapshot of the caches. `queued_since` returns since when a server is in the queue, if its status does
    /// not say.
    pub fn take(
        ctx: &Context,
        assumed: &AssumedAdmissions,
        mut queued_since: impl FnMut(&DevServer, Timestamp) -> Timestamp,
    ) -> Self {
        let now = ctx.now();
        let (limits, pods) = (limits(ctx), ctx.cluster.pods.all());
        let mounted = pods.iter().map(|pod| &**pod);
        let attached =
            AttachedVolumes::new(limits.clone(), mounted, |namespace, claim| attachment(ctx, namespace, claim));
        let mut snapshot = Self {
            nodes: nodes(ctx, &pods),
            attached: Arc::new(attached),
            pods,
            runtimes: ctx.cluster.runtime_classes.all(),
            servers: Vec::new(),
            accounts: accounts(ctx),
            flavors: ctx.cluster.flavors.objects.all(),
            objects: HashMap::new(),
            stale: HashSet::new(),
            next_booking: Requeue::AwaitChange,
        };
        for server in ctx.cluster.servers.state() {
            let uid = server.metadata.uid.clone().unwrap_or_default();
            let server = match assumed.get(&uid) {
                Some((newer, assumed_version)) if *assumed_version > version(&*server) => {
                    snapshot.stale.insert(uid.clone());
                    newer.clone()
                }
                _ => server,
            };
            // A panic excludes only this server; its pods still count as usage.
            let entry = catch_unwind(AssertUnwindSafe(|| queue_entry(ctx, &server, &limits, now, &mut queued_since)));
            let entry = entry.unwrap_or_else(|_| {
                let (namespace, name) = key(&*server);
                tracing::error!(namespace, name, "panic while preparing a server for scheduling, excluding it");
                let labels = ReconcileError { controller: super::NAME, class: Class::Bug.as_str() };
                ctx.metrics.reconcile_errors.get_or_create(&labels).inc();
                None
            });
            if let Some((entry, booking)) = entry {
                snapshot.next_booking = snapshot.next_booking.earlier(booking);
                snapshot.servers.push(entry);
                snapshot.objects.insert(uid, server);
            }
        }
        snapshot
    }

    pub fn generation(&self, uid: &str) -> Option<i64> {
        self.objects.get(uid)?.metadata.generation
    }

    /// Returns the planner's input, without the state of the scheduler loop.
    pub fn as_snapshot(&self) -> admission::Snapshot<'_> {
        admission::Snapshot {
            nodes: self.nodes.iter().map(|node| &**node).collect(),
            pods: self.pods.iter().map(|pod| &**pod).collect(),
            attached_volumes: self.attached.clone(),
            runtimes: self.runtimes.iter().map(|runtime| &**runtime).collect(),
            servers: self.servers.iter().collect(),
            accounts: self.accounts.clone(),
            node_rejections: NodeRejections::default(),
            inadmissible: BTreeSet::new(),
            flavors: self.flavors.iter().map(|flavor| &**flavor).collect(),
        }
    }
}

/// Returns the cached nodes, and placeholders for missing ones that pods of servers are bound to.
fn nodes(ctx: &Context, pods: &[Arc<Pod>]) -> Vec<Arc<Node>> {
    let mut nodes = ctx.cluster.nodes.all();
    let known: HashSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let servers = pods.iter().filter(|pod| pod.server.is_some());
    let missing: HashSet<&str> =
        servers.filter_map(|pod| pod.node.as_deref()).filter(|node| !known.contains(node)).collect();
    ctx.cluster.missing_nodes.retain(&missing);
    nodes.extend(missing.into_iter().map(|node| ctx.cluster.node_of_pod(node, ctx.now())));
    nodes
}

fn limits(ctx: &Context) -> VolumeLimits {
    let nodes = ctx.cluster.attach_limits.all();
    VolumeLimits::new(nodes.iter().map(|node| &**node))
}

/// Returns the attachment of a claim's volume.
fn attachment(ctx: &Context, namespace: &str, claim: &str) -> Option<CsiVolume> {
    let claim = ctx.cluster.claims.get(namespace, claim)?;
    ctx.cluster.volumes.get("", claim.volume.as_deref()?)?.csi.clone()
}

fn accounts(ctx: &Context) -> Accounts {
    let text = |name: &Option<String>| name.clone().unwrap_or_default();
    let users = ctx.cluster.users.state();
    let users = users.iter().filter_map(|user| {
        let usage = user.status.as_ref().and_then(|status| status.usage.clone());
        Some((
            text(&user.metadata.name).parse().ok()?,
            Account { weight: user.spec.weight, ..Account::new(user.spec.quota.clone(), usage) },
        ))
    });
    let teams = ctx.cluster.teams.all();
    let teams = teams.iter().filter_map(|team| {
        let usage = team.status.as_ref().and_then(|status| status.usage.clone());
        let (weight, borrowing_limit) = (team.spec.weight, team.spec.borrowing_limit);
        let account = Account { weight, borrowing_limit, ..Account::new(team.spec.quota.clone(), usage) };
        Some((text(&team.metadata.name).parse().ok()?, account))
    });
    Accounts { users: users.collect(), teams: teams.collect() }
}

/// Prepares a server that does not exist for a dry run. Returns a message if the request is invalid.
pub fn hypothetical_server(ctx: &Context, server: &DevServer) -> Result<Server, String> {
    let inputs = ValidationInputs::new(&ctx.cluster, server);
    match validate(server, &inputs.inputs(&ctx.config.server.default_image)) {
        Ok(valid) if !valid.disk.ready => return Err(valid.disk.message),
        Ok(_) => {}
        Err(violations) => {
            return Err(violations.into_iter().map(|violation| violation.message).collect::<Vec<_>>().join(" "));
        }
    }
    let now = ctx.now();
    let entry = queue_entry(ctx, server, &limits(ctx), now, &mut |_, now| now);
    entry.map(|(server, _)| server).ok_or_else(|| "The namespace does not belong to a DevServerUser.".to_owned())
}

/// Converts a server to the planner's input. Returns `None` if its namespace belongs to no user. Also returns when its
/// booking starts.
fn queue_entry(
    ctx: &Context,
    server: &DevServer,
    limits: &VolumeLimits,
    now: Timestamp,
    queued_since: &mut impl FnMut(&DevServer, Timestamp) -> Timestamp,
) -> Option<(Server, Requeue)> {
    let settings = &ctx.config.server;
    let namespace = server.metadata.namespace.clone()?;
    let name = server.metadata.name.clone()?;
    let status = server.status.as_ref();
    let inputs = ValidationInputs::new(&ctx.cluster, server);
    let validation_inputs = inputs.inputs(&settings.default_image);
    let validated = validate(server, &validation_inputs);
    let has_pods = pods_of(ctx, server).next().is_some();
    let (intent, changes_at) = queue_intent(server, &validated, has_pods, settings, now);
    let booking = changes_at.map_or(Requeue::AwaitChange, |time| Requeue::After(until(time, now)));
    let admission: Option<Admission> = status.and_then(|status| status.admission.clone());
    let queued_at = admission.as_ref().and_then(|admission| admission.queued_at.as_ref()).map(|time| time.0);
    let flavor = match &validated {
        Ok(valid) => valid.flavor_name.clone(),
        Err(_) => status.and_then(|status| status.flavor.clone()).or_else(|| server.spec.flavor.clone())?,
    };
    let flavor_limits = validated.as_ref().ok().map(|valid| &valid.flavor.limits);
    let entry = Server {
        priority: effective_priority(server, inputs.user(), inputs.team()),
        preemptible: server.spec.scheduling.preemptible,
        not_before: server.spec.scheduling.not_before.as_ref().map(|time| time.0),
        max_hold_time: validated.is_ok().then(|| hold_time::max_hold_time(server, flavor_limits, settings)),
        release_time: hold_time::release_time(server, flavor_limits, settings),
        owner: namespace::owner(&namespace)?,
        uid: server.metadata.uid.clone()?,
        team: server.spec.team.clone(),
        request: validated
            .as_ref()
            .map_or_else(|_| request_from_pods(ctx, server), |valid| request(valid, &inputs, limits)),
        queued_at: queued_at.unwrap_or_else(|| queued_since(server, now)),
        ended: status.and_then(|status| status.phase).is_some_and(Phase::is_terminal),
        namespace,
        name,
        flavor,
        intent,
        admission,
    };
    Some((entry, booking))
}

fn pods_of(ctx: &Context, server: &DevServer) -> impl Iterator<Item = Arc<Pod>> {
    let uid = server.metadata.uid.as_deref();
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let name = server.metadata.name.as_deref().unwrap_or_default();
    (0..server.spec.nodes as usize).filter_map(move |ordinal| {
        let pod = ctx.cluster.pods.get(namespace, &pods::pod_name(name, ordinal))?;
        let details = pod.server.as_ref()?;
        uid.is_some_and(|uid| details.belongs_to(uid)).then_some(pod)
    })
}

fn request(valid: &Valid<'_>, inputs: &ValidationInputs, limits: &VolumeLimits) -> Request {
    let node_labels = &valid.server.spec.scheduling.node_labels;
    let NodeConstraints { selector, tolerations } =
        NodeConstraints::new(valid.flavor, node_labels, valid.runtime_class);
    Request {
        nodes: valid.nodes,
        per_node: build::size::per_node(valid).saturating_add(&limits.request(inputs.attachments())),
        device: valid.flavor.device.as_ref().map(|device| device.resource.clone()),
        selector,
        tolerations,
        topology: valid.flavor.gang_topology_key.clone(),
        home_affinity: inputs.home_affinity(),
        volume_affinity: inputs.volume_affinity(),
    }
}

/// Derives the request of an invalid server from its pods, because its flavor may be deleted or changed.
fn request_from_pods(ctx: &Context, server: &DevServer) -> Request {
    let nodes =
        active_admission(server.status.as_ref()).map_or(server.spec.nodes as usize, |admission| admission.nodes.len());
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    pods_of(ctx, server)
        .next()
        .map_or_else(|| Request { nodes, ..Request::default() }, |pod| Request::from_pod(nodes, &pod))
}
