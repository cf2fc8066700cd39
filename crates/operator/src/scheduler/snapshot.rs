//! The input of a scheduling cycle, taken from the caches.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use odc_api::v1alpha1::{DevServer, DevServerFlavor};
use odc_core::admission::volume_limits::{AttachedVolumes, VolumeLimits};
use odc_core::admission::{self, Account, Accounts, NodeRejections, Server};
use odc_core::cluster::{CsiVolume, Node, Pod, RuntimeClass};
use odc_core::plan::Requeue;

use crate::cache::{key, version};
use crate::context::Context;
use crate::error::Class;
use crate::metrics::ReconcileError;
use crate::validated_servers::{QueuedSince, ValidatedServer};

/// Owns what [`admission::Snapshot`] borrows.
pub struct OwnedSnapshot {
    nodes: Vec<Arc<Node>>,
    pods: Vec<Arc<Pod>>,
    attached: Arc<AttachedVolumes>,
    runtimes: Vec<Arc<RuntimeClass>>,
    servers: Vec<Arc<Server>>,
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
    /// Takes a snapshot of the caches.
    pub fn take(ctx: &Context, assumed: &AssumedAdmissions, queued_since: QueuedSince<'_>) -> Self {
        let now = ctx.now();
        let (limits, pods) = (limits(ctx), ctx.cluster.pods.all());
        let mounted = pods.iter().map(|pod| &**pod);
        let attached = AttachedVolumes::new(limits, mounted, |namespace, claim| attachment(ctx, namespace, claim));
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
            let entry = catch_unwind(AssertUnwindSafe(|| {
                let settings = &ctx.config.server;
                let validated = ctx.validated_servers.get(&ctx.cluster, &server, settings);
                validated.queue_entry(&ctx.cluster, &server, settings, now, queued_since)
            }));
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
            servers: self.servers.iter().map(|server| &**server).collect(),
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
    let settings = &ctx.config.server;
    let validated = ValidatedServer::new(&ctx.cluster, server, settings);
    validated.with_request(server, settings, |request| match request {
        Ok(valid) if !valid.disk.ready => Err(valid.disk.message.clone()),
        Ok(_) => Ok(()),
        Err(violations) => Err(violations.iter().map(|violation| &*violation.message).collect::<Vec<_>>().join(" ")),
    })?;
    let now = ctx.now();
    let entry = validated.queue_entry(&ctx.cluster, server, settings, now, &mut |_, now| Some(now));
    let entry = entry.ok_or_else(|| "The namespace does not belong to a DevServerUser.".to_owned())?;
    Ok(Arc::unwrap_or_clone(entry.0))
}
