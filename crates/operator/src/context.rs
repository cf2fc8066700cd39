//! What all drivers share: a client, the clock, the copies of the cluster, and who is to be looked at next.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use odc_api::name::FlavorName;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Phase, Team};
use odc_core::devserver::SecretSeen;
use odc_core::devserver::agents::AgentSeen;
use odc_core::object::Kind;
use odc_core::seen;
use tokio::sync::{Notify, mpsc, watch};

use crate::agents::Calls;
use crate::agents::authority::Known;
use crate::cache::{Cache, Key};
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::facts::claims;
use crate::lease::Lead;
use crate::metrics::Metrics;
use crate::missing::Missing;
use crate::queue::Plans;
use crate::reflect::Own;
use crate::report::{Manager, Reporter};
use crate::unreadable::Refusals;

pub struct Context {
    pub client: Client,
    pub clock: Clock,
    pub lead: Lead,
    pub config: Config,
    pub user_settings: odc_core::user::Settings,
    pub metrics: Arc<Metrics>,
    pub reporter: Reporter,
    pub cluster: Cluster,
    pub hints: Hints,
    pub admitting: Admitting,
    pub triggers: Triggers,
    /// Since when this process leads.
    pub since: Timestamp,
    /// Whose word agents take.
    pub authority: watch::Sender<Known>,
    pub calls: Calls,
    pub refusals: Refusals,
    /// The queue's planner. Whoever asks about a long queue holds it while copying that queue, in a thread of its own; the
    /// rest of the leader's work goes on meanwhile.
    pub plans: tokio::sync::Mutex<Plans>,
}

/// Copies of the cluster.
pub struct Cluster {
    pub servers: Store<DevServer>,
    pub users: Store<DevServerUser>,
    pub flavors: Flavors,
    pub teams: Cache<Team>,
    pub pods: Cache<seen::Pod>,
    pub nodes: Cache<seen::Node>,
    /// Nodes of pods that are not among them.
    pub missing: Missing,
    pub claims: Cache<seen::Claim>,
    pub volumes: Cache<seen::VolumeSeen>,
    pub classes: Cache<seen::Class>,
    /// Of nodes that have any.
    pub attach_limits: Cache<seen::AttachLimits>,
    pub runtimes: Cache<seen::Runtime>,
    pub namespaces: Cache<seen::Child>,
    /// What we made in users' namespaces.
    pub children: Children,
    /// Who else is in a namespace.
    pub neighbours: Neighbours,
}

/// The names of the servers in each namespace: the store of servers can only be asked for one or for all.
#[derive(Default)]
pub struct Neighbours(Mutex<HashMap<String, BTreeSet<String>>>);

impl Neighbours {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, (namespace, name): Key) {
        self.lock().entry(namespace).or_default().insert(name);
    }

    pub fn remove(&self, (namespace, name): &Key) {
        let mut all = self.lock();
        if let Some(names) = all.get_mut(namespace) {
            names.remove(name);
            if names.is_empty() {
                all.remove(namespace);
            }
        }
    }

    pub fn of(&self, namespace: &str) -> Vec<String> {
        self.lock().get(namespace).into_iter().flatten().cloned().collect()
    }
}

/// Objects of ours, a cache for each kind: each kind's watch is at its own version.
pub struct Children(BTreeMap<Kind, Cache<seen::Child>>);

impl Children {
    /// The kinds that are kept as they should be.
    pub const KINDS: [Kind; 7] = [
        Kind::ServiceAccount,
        Kind::RoleBinding,
        Kind::ResourceQuota,
        Kind::LimitRange,
        Kind::NetworkPolicy,
        Kind::PodDisruptionBudget,
        Kind::Service,
    ];

    pub fn of(&self, kind: Kind) -> Option<&Cache<seen::Child>> {
        self.0.get(&kind)
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<seen::Child>> {
        self.0.values().flat_map(|cache| cache.in_namespace(namespace)).collect()
    }
}

impl Default for Children {
    fn default() -> Self {
        Self(Self::KINDS.into_iter().map(|kind| (kind, Cache::default())).collect())
    }
}

/// All flavors together, because a request may have to be compared with all of them.
#[derive(Default)]
pub struct Flavors {
    pub kept: Cache<DevServerFlavor>,
    all: RwLock<Arc<BTreeMap<FlavorName, Arc<DevServerFlavor>>>>,
    pub turns: Turns,
}

/// When the status of each flavor was last written. Two write it, and together they do so at most once a second.
#[derive(Default)]
pub struct Turns(Mutex<HashMap<String, Turn>>);

struct Turn {
    at: Instant,
    by: Manager,
    /// The other one wants to write too.
    wanted: bool,
}

impl Turns {
    const PACE: Duration = Duration::from_secs(1);
    /// So long the turn is kept for whoever was refused it; both look again within a second.
    const COURTESY: Duration = Duration::from_millis(1_500);

    /// Takes the turn to write, or tells how long it is until the next.
    pub fn take(&self, flavor: &str, who: Manager) -> Result<(), Duration> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = taken.get_mut(flavor) {
            let pause = Self::PACE + if last.by == who && last.wanted { Self::COURTESY } else { Duration::ZERO };
            let left = pause.saturating_sub(last.at.elapsed());
            if !left.is_zero() {
                last.wanted |= last.by != who;
                return Err(left);
            }
        }
        // Those of flavors that are gone are not kept for ever.
        taken.retain(|_, turn| turn.at.elapsed() < Self::PACE + Self::COURTESY);
        taken.insert(flavor.to_owned(), Turn { at: Instant::now(), by: who, wanted: false });
        Ok(())
    }
}

impl Flavors {
    pub fn all(&self) -> Arc<BTreeMap<FlavorName, Arc<DevServerFlavor>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// After a change of what they are; their statuses nobody here reads.
    pub fn renew(&self) {
        let named = |flavor: Arc<DevServerFlavor>| Some((flavor.metadata.name.as_ref()?.parse().ok()?, flavor));
        let all = self.kept.all().into_iter().filter_map(named).collect();
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
    }

    pub async fn ready(&self) {
        self.kept.ready().await;
    }
}

/// Servers by their uid that the queue has decided to admit and is about to store that of. The driver does not tell
/// them meanwhile that they wait.
#[derive(Default)]
pub struct Admitting(Mutex<HashSet<String>>);

impl Admitting {
    pub fn has(&self, uid: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(uid)
    }

    /// As the last plan says. Gives those of the plan before that are in it no more.
    pub fn replace(&self, planned: HashSet<String>) -> Vec<String> {
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), planned);
        before.into_iter().filter(|uid| !self.has(uid)).collect()
    }
}

/// What this process happens to know. Losing it costs a question or a second, never a decision.
///
/// Only of objects that are there: a look that ends after its object was deleted leaves nothing behind.
#[derive(Default)]
pub struct Hints {
    /// Apart, because a table has more room than it needs.
    of: Mutex<HashMap<String, Box<Hint>>>,
}

#[derive(Clone, Default)]
pub struct Hint {
    /// The phase decided last but not written, and since when.
    pub held: Option<(Phase, Timestamp)>,
    pub secret: SecretSeen,
    pub secret_checked: Option<Timestamp>,
    pub entrypoint: Option<Result<Vec<String>, String>>,
    /// Of its pods, by their uid. Nearly all have one, and a map would keep room for eleven.
    pub agents: Vec<(String, AgentSeen)>,
    /// How often in a row it failed, and what was said the last time.
    pub failures: u32,
    pub obstacle: Option<String>,
    /// Why the queue's decisions about it cannot be stored.
    pub refused: Option<String>,
}

impl Hint {
    pub fn agent(&mut self, pod: &str) -> &mut AgentSeen {
        let place = self.agents.iter().position(|(uid, _)| uid == pod).unwrap_or_else(|| {
            self.agents.reserve_exact(1);
            self.agents.push((pod.to_owned(), AgentSeen::default()));
            self.agents.len() - 1
        });
        &mut self.agents[place].1
    }
}

impl Hints {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Box<Hint>>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, uid: &str) -> Hint {
        self.lock().get(uid).map(|hint| Hint::clone(hint)).unwrap_or_default()
    }

    /// Of what is not there, nothing of the change is kept.
    pub fn change<T>(&self, uid: &str, change: impl FnOnce(&mut Hint) -> T) -> T {
        change(self.lock().get_mut(uid).unwrap_or(&mut Box::default()))
    }

    /// It is there.
    pub fn admit(&self, uid: &str) {
        let mut all = self.lock();
        if !all.contains_key(uid) {
            all.insert(uid.to_owned(), Box::default());
        }
    }

    pub fn knows(&self, uid: &str) -> bool {
        self.lock().contains_key(uid)
    }

    /// How often in a row, this time included.
    pub fn failed(&self, uid: &str) -> u32 {
        self.change(uid, |hint| {
            hint.failures = hint.failures.saturating_add(1);
            hint.failures
        })
    }

    pub fn forget_pod(&self, server: &str, pod: &str) {
        if let Some(hint) = self.lock().get_mut(server) {
            hint.agents.retain(|(uid, _)| uid != pod);
        }
    }

    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.lock().len()
    }
}

/// Who is to be looked at.
pub struct Triggers {
    pub servers: mpsc::UnboundedSender<ObjectRef<DevServer>>,
    pub users: mpsc::UnboundedSender<ObjectRef<DevServerUser>>,
    /// Namespaces whose user may be gone.
    pub namespaces: mpsc::UnboundedSender<String>,
    pub teams: Notify,
    pub queue: Notify,
    pub flavors: Notify,
    /// Servers as we wrote them, before the watch tells us.
    pub own: Own<DevServer>,
}

impl Context {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Asked before every write.
    pub fn may_write(&self) -> Result<(), Error> {
        self.lead.may_write()
    }

    /// For what is no write: nobody waits for it when the lead ends.
    pub fn leads(&self) -> bool {
        !self.lead.is_over()
    }

    pub fn user(&self, name: &str) -> Option<Arc<DevServerUser>> {
        self.cluster.users.get(&ObjectRef::new(name))
    }

    /// Whose a namespace is: it needs the user's name and our label. One that has only the name is somebody else's, and
    /// so is what is in it.
    pub fn owner(&self, namespace: &str) -> Option<Arc<DevServerUser>> {
        let owner = odc_api::namespace::owner(namespace)?;
        let place = self.cluster.namespaces.get("", namespace)?;
        self.user(owner.as_str()).filter(|_| place.label(odc_api::label::OWNER) == Some(owner.as_str()))
    }

    /// Other users whom a server lets in, as far as they exist.
    pub fn guests(&self, server: &DevServer) -> Vec<Arc<DevServerUser>> {
        server.spec.access.users.iter().filter_map(|guest| self.user(guest.as_str())).collect()
    }

    /// The node of a pod, which may be missing.
    pub fn node_of_pod(&self, name: &str) -> Arc<seen::Node> {
        let missing = || Arc::new(seen::Node::missing(name, self.cluster.missing.since(name, self.now())));
        self.cluster.nodes.get("", name).unwrap_or_else(missing)
    }

    pub fn server(&self, namespace: &str, name: &str) -> Option<Arc<DevServer>> {
        self.cluster.servers.get(&ObjectRef::new(name).within(namespace))
    }

    /// Servers that mount a claim of their namespace, by themselves or by their flavor.
    pub fn mounting(&self, namespace: &str, claim: &str) -> Vec<Arc<DevServer>> {
        let names = self.cluster.neighbours.of(namespace);
        let servers = names.iter().filter_map(|name| self.server(namespace, name));
        servers.filter(|server| claims(self, server).iter().any(|mounted| mounted == claim)).collect()
    }

    pub fn look_at_server(&self, namespace: &str, name: &str) {
        // The receiver lives as long as the leader.
        let _ = self.triggers.servers.send(ObjectRef::new(name).within(namespace));
    }

    pub fn look_at_user(&self, name: &str) {
        let _ = self.triggers.users.send(ObjectRef::new(name));
    }

    /// The capacity or the queue may have changed.
    pub fn look_at_queue(&self) {
        self.triggers.queue.notify_one();
        self.triggers.flavors.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_to_be_admitted_no_more_is_named_once() {
        let set = |uids: &[&str]| uids.iter().map(|uid| (*uid).to_owned()).collect::<HashSet<String>>();
        let admitting = Admitting::default();
        assert_eq!(admitting.replace(set(&["a", "b", "c"])), [""; 0]);
        assert!(admitting.has("a"));
        // Those of the plan before that are also in this one wait no more than they did.
        let no_more: HashSet<String> = admitting.replace(set(&["b", "d"])).into_iter().collect();
        assert_eq!(no_more, set(&["a", "c"]));
        assert!(!admitting.has("a") && admitting.has("b") && admitting.has("d"));
        assert_eq!(admitting.replace(set(&["b", "d"])), [""; 0]);
        let no_more: HashSet<String> = admitting.replace(HashSet::new()).into_iter().collect();
        assert_eq!(no_more, set(&["b", "d"]));
    }

    #[test]
    fn of_what_is_gone_nothing_is_kept() {
        let hints = Hints::default();
        hints.admit("a");
        assert_eq!((hints.failed("a"), hints.failed("a")), (1, 2));
        // It is told again and again that it is there.
        hints.admit("a");
        assert_eq!(hints.failed("a"), 3);
        hints.forget("a");
        assert_eq!((hints.failed("a"), hints.failed("a")), (1, 1));
        assert!(!hints.knows("a"));
    }

    #[test]
    fn a_flavor_is_written_once_a_second_by_whoever_comes_first() {
        let turns = Turns::default();
        assert_eq!(turns.take("gpu", Manager::Queue), Ok(()));
        assert!(turns.take("gpu", Manager::Queue).is_err_and(|left| left <= Turns::PACE));
        assert_eq!(turns.take("cpu", Manager::Queue), Ok(()));
        // Who was refused comes next, however eager the other one is.
        assert!(turns.take("gpu", Manager::Driver).is_err_and(|left| left <= Turns::PACE));
        assert!(turns.take("gpu", Manager::Queue).is_err_and(|left| left > Turns::PACE));
    }
}
