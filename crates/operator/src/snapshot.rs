//! The world as the queue sees it, from our copies of the cluster.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use jiff::Timestamp;
use odc_api::namespace;
use odc_api::v1alpha1::{Admission, DevServer, DevServerFlavor, Phase};
use odc_core::devserver::validate::{Valid, validate};
use odc_core::devserver::{Wish, build, granted, parts, wish};
use odc_core::grants::attach::{Attached, Limits};
use odc_core::grants::{Account, Accounts, Facts, Refusals, Request, Server, Want, term};
use odc_core::plan::Again;
use odc_core::seen::{Attachment, Node, Pod, Runtime};

use crate::context::Context;
use crate::error::Class;
use crate::facts::Known;
use crate::metrics::Failure;

/// Held while a plan is made.
pub struct Snapshot {
    nodes: Vec<Arc<Node>>,
    pods: Vec<Arc<Pod>>,
    attached: Arc<Attached>,
    runtimes: Vec<Arc<Runtime>>,
    servers: Vec<Server>,
    accounts: Accounts,
    flavors: Vec<Arc<DevServerFlavor>>,
    /// Each server as it was read, by its uid.
    pub read: HashMap<String, Arc<DevServer>>,
    /// Servers of which our copies are older than what the queue decided last.
    pub behind: HashSet<String>,
    /// When the next booking begins.
    pub again: Again,
}

/// What the queue decided that our copies do not show yet: by uid, the admission and the version it was stored in.
pub type Decided = HashMap<String, (Arc<DevServer>, u64)>;

impl Snapshot {
    /// `first_seen` gives since when a server competes for devices, if nothing stored says so.
    pub fn take(
        ctx: &Context,
        decided: &Decided,
        mut first_seen: impl FnMut(&DevServer, Timestamp) -> Timestamp,
    ) -> Self {
        let now = ctx.now();
        let (limits, pods) = (limits(ctx), ctx.cluster.pods.all());
        let mounting = pods.iter().map(|pod| &**pod);
        let attached = Attached::of(limits.clone(), mounting, |namespace, claim| attachment(ctx, namespace, claim));
        let mut taken = Self {
            nodes: nodes(ctx, &pods),
            attached: Arc::new(attached),
            pods,
            runtimes: ctx.cluster.runtimes.all(),
            servers: Vec::new(),
            accounts: accounts(ctx),
            flavors: ctx.cluster.flavors.kept.all(),
            read: HashMap::new(),
            behind: HashSet::new(),
            again: Again::OnChange,
        };
        for server in ctx.cluster.servers.state() {
            let uid = server.metadata.uid.clone().unwrap_or_default();
            let server = match decided.get(&uid) {
                Some((newer, version)) if *version > crate::follow::version(&*server) => {
                    taken.behind.insert(uid.clone());
                    newer.clone()
                }
                _ => server,
            };
            // One that nobody can judge harms only itself: its pods count as pods.
            let judged = catch_unwind(AssertUnwindSafe(|| entry(ctx, &server, &limits, now, &mut first_seen)));
            let judged = judged.unwrap_or_else(|_| {
                let (namespace, name) = crate::follow::key(&*server);
                tracing::error!(namespace, name, "the queue cannot judge a server");
                ctx.metrics.failures.get_or_create(&Failure { controller: "queue", class: Class::Bug.as_str() }).inc();
                None
            });
            if let Some((entry, again)) = judged {
                taken.again = taken.again.or(again);
                taken.servers.push(entry);
                taken.read.insert(uid, server);
            }
        }
        taken
    }

    /// Which generation of a server was read.
    pub fn generation(&self, uid: &str) -> Option<i64> {
        self.read.get(uid)?.metadata.generation
    }

    /// Everything but what only the queue remembers.
    pub fn world(&self) -> Facts<'_> {
        Facts {
            nodes: self.nodes.iter().map(|node| &**node).collect(),
            pods: self.pods.iter().map(|pod| &**pod).collect(),
            attached: self.attached.clone(),
            runtimes: self.runtimes.iter().map(|runtime| &**runtime).collect(),
            servers: self.servers.iter().collect(),
            accounts: self.accounts.clone(),
            unfit: Refusals::default(),
            aside: BTreeSet::new(),
            flavors: self.flavors.iter().map(|flavor| &**flavor).collect(),
        }
    }
}

/// Those there are, and those that are missing although pods of servers are on them.
fn nodes(ctx: &Context, pods: &[Arc<Pod>]) -> Vec<Arc<Node>> {
    let mut nodes = ctx.cluster.nodes.all();
    let known: HashSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let servers = pods.iter().filter(|pod| pod.server.is_some());
    let missing: HashSet<&str> =
        servers.filter_map(|pod| pod.node.as_deref()).filter(|node| !known.contains(node)).collect();
    ctx.cluster.missing.retain(&missing);
    nodes.extend(missing.into_iter().map(|node| ctx.node_of_pod(node)));
    nodes
}

fn limits(ctx: &Context) -> Limits {
    let nodes = ctx.cluster.attach_limits.all();
    Limits::of(nodes.iter().map(|node| &**node))
}

/// What is attached for a claim.
fn attachment(ctx: &Context, namespace: &str, claim: &str) -> Option<Attachment> {
    let claim = ctx.cluster.claims.get(namespace, claim)?;
    ctx.cluster.volumes.get("", claim.volume.as_deref()?)?.attachment.clone()
}

fn accounts(ctx: &Context) -> Accounts {
    let named = |name: &Option<String>| name.clone().unwrap_or_default();
    let users = ctx.cluster.users.state();
    let users = users.iter().filter_map(|user| {
        let usage = user.status.as_ref().and_then(|status| status.usage.clone());
        Some((
            named(&user.metadata.name).parse().ok()?,
            Account { weight: user.spec.weight, ..Account::of(user.spec.quota.clone(), usage) },
        ))
    });
    let teams = ctx.cluster.teams.all();
    let teams = teams.iter().filter_map(|team| {
        let usage = team.status.as_ref().and_then(|status| status.usage.clone());
        let (weight, borrow) = (team.spec.weight, team.spec.borrow_limit);
        let account = Account { weight, borrow, ..Account::of(team.spec.quota.clone(), usage) };
        Some((named(&team.metadata.name).parse().ok()?, account))
    });
    Accounts { users: users.collect(), teams: teams.collect() }
}

/// A server that nobody has asked for yet, or in words why it cannot be had.
pub fn asked(ctx: &Context, server: &DevServer) -> Result<Server, String> {
    let known = Known::of(ctx, server);
    match validate(server, &known.facts(&ctx.config.server.default_image)) {
        Ok(valid) if !valid.disk.ready => return Err(valid.disk.message),
        Ok(_) => {}
        Err(violations) => {
            return Err(violations.into_iter().map(|violation| violation.message).collect::<Vec<_>>().join(" "));
        }
    }
    let now = ctx.now();
    let found = entry(ctx, server, &limits(ctx), now, &mut |_, now| now);
    found.map(|(server, _)| server).ok_or_else(|| "The namespace belongs to no user of ODC.".to_owned())
}

/// Nothing for a server in a namespace that is nobody's: it gets nothing, and has nothing.
fn entry(
    ctx: &Context,
    server: &DevServer,
    limits: &Limits,
    now: Timestamp,
    first_seen: &mut impl FnMut(&DevServer, Timestamp) -> Timestamp,
) -> Option<(Server, Again)> {
    let settings = &ctx.config.server;
    let namespace = server.metadata.namespace.clone()?;
    let name = server.metadata.name.clone()?;
    let status = server.status.as_ref();
    let known = Known::of(ctx, server);
    let facts = known.facts(&settings.default_image);
    let checked = validate(server, &facts);
    let (want, again) = match wish(server, &checked, pods_of(ctx, server).next().is_some(), settings, now) {
        Wish::Run => (Want::Run, Again::OnChange),
        Wish::Rest => (Want::Rest, Again::OnChange),
        Wish::Later(None) => (Want::Later, Again::OnChange),
        Wish::Later(Some(at)) => {
            let left = std::time::Duration::try_from(now.duration_until(at)).unwrap_or_default();
            (Want::Later, Again::After(left))
        }
    };
    let admission: Option<Admission> = status.and_then(|status| status.admission.clone());
    let queued = admission.as_ref().and_then(|admission| admission.queued_at.as_ref()).map(|time| time.0);
    let flavor = match &checked {
        Ok(valid) => valid.flavor_name.clone(),
        Err(_) => status.and_then(|status| status.flavor.clone()).or_else(|| server.spec.flavor.clone())?,
    };
    let flavor_limits = checked.as_ref().ok().map(|valid| &valid.flavor.limits);
    let entry = Server {
        priority: term::priority(server, known.user(), known.team()),
        preemptible: server.spec.scheduling.preemptible,
        not_before: server.spec.scheduling.not_before.as_ref().map(|time| time.0),
        lifetime: checked.is_ok().then(|| term::span(server, flavor_limits, settings)),
        ends: term::ends(server, flavor_limits, settings),
        owner: namespace::owner(&namespace)?,
        uid: server.metadata.uid.clone()?,
        team: server.spec.team.clone(),
        request: checked.as_ref().map_or_else(|_| unknown(ctx, server), |valid| request(valid, &known, limits)),
        since: queued.unwrap_or_else(|| first_seen(server, now)),
        ended: status.and_then(|status| status.phase).is_some_and(Phase::terminal),
        namespace,
        name,
        flavor,
        want,
        admission,
    };
    Some((entry, again))
}

fn pods_of(ctx: &Context, server: &DevServer) -> impl Iterator<Item = Arc<Pod>> {
    let uid = server.metadata.uid.as_deref();
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let name = server.metadata.name.as_deref().unwrap_or_default();
    (0..server.spec.nodes as usize).filter_map(move |ordinal| {
        let pod = ctx.cluster.pods.get(namespace, &parts::name(name, ordinal))?;
        let details = pod.server.as_ref()?;
        (details.owner.as_deref() == uid || details.made_for.as_deref() == uid).then_some(pod)
    })
}

fn request(valid: &Valid<'_>, known: &Known, limits: &Limits) -> Request {
    let mut selector = valid.flavor.node_selector.clone();
    selector.extend(valid.server.spec.scheduling.node_labels.clone());
    let mut tolerations = valid.flavor.tolerations.clone();
    if let Some(runtime) = valid.runtime {
        selector.extend(runtime.selector.clone());
        tolerations.extend(runtime.tolerations.iter().cloned());
    }
    Request {
        nodes: valid.nodes,
        each: build::size::each(valid).plus(&limits.need(known.attachments())),
        device: valid.flavor.device.as_ref().map(|device| device.resource.clone()),
        selector,
        tolerations,
        topology: valid.flavor.gang_topology_key.clone(),
        reach: known.reach(),
    }
}

/// Its flavor is gone or another one, so nobody knows what it asks for. It has what its pods have, and that counts.
fn unknown(ctx: &Context, server: &DevServer) -> Request {
    let nodes = granted(server.status.as_ref()).map_or(server.spec.nodes as usize, |grant| grant.nodes.len());
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    pods_of(ctx, server)
        .next()
        .map_or_else(|| Request { nodes, ..Request::default() }, |pod| Request::held(nodes, &pod))
}
