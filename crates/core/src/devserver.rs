//! The life of a server: what is seen of it becomes what is written for it.
//!
//! `validate` ties the open ends of a request, [`decide`] looks at everything that exists and gives the next writes.
//! Nothing is remembered between two decisions but what is stored in the cluster, so the operator may die after any
//! write and the next decision goes on from there.

pub mod build;
mod describe;
pub mod goal;
pub mod lifetime;
pub mod parts;
mod status;
pub mod trouble;
pub mod validate;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Admission, DevServer, DevServerStatus, HibernationCause, Limits, Phase};

use crate::object::Kind;
use crate::plan::{Again, Event, Target, Write};
use crate::seen::{Child, Node, Pod};
use build::Keys;
use goal::{End, Goal, goal};
use lifetime::Stage;
use parts::Parts;
use status::Outlook;
use trouble::Trouble;
use validate::{Valid, Violation};

/// A phase that passes within this time is not written: the write would cost more than it tells.
pub const PASSING: Duration = Duration::from_secs(1);
/// A pod that has not begun to start after this long may be waiting for a Secret that somebody deleted.
const SECRET_DOUBT: Duration = Duration::from_secs(15);

/// What an administrator may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub agent_image: String,
    /// What a server runs that names no image.
    pub default_image: String,
    /// How long a server may still be extended after its time is used up.
    pub expiry_grace: Duration,
    /// A node that has not been ready for so long is lost.
    pub lost_after: Duration,
    /// A server that has not become ready for so long has failed.
    pub start_limit: Duration,
    /// How long an ended server stays readable.
    pub keep_ended: Duration,
}

/// What exists of a server.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// Every pod that has its uid or one of its names.
    pub pods: Vec<&'a Pod>,
    /// The nodes of those pods and of the grant.
    pub nodes: BTreeMap<&'a str, &'a Node>,
    /// Of a gang.
    pub service: Option<&'a Child>,
    pub secret: SecretSeen,
    /// When somebody last looked whether the Secret is there.
    pub secret_checked: Option<Timestamp>,
    /// Key pairs to use should the Secret have to be made.
    pub keys: Option<&'a Keys>,
    /// The image's own entrypoint, when it was asked for.
    pub entrypoint: Option<Result<Vec<String>, String>>,
    /// The phase that was decided last but not written, and since when.
    pub held: Option<(Phase, Timestamp)>,
    /// Somebody wants to put it to sleep just now.
    pub sleep: Option<HibernationCause>,
}

/// What is known of the server's Secret, which nobody watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SecretSeen {
    #[default]
    Unknown,
    Missing,
    /// Its public host key.
    There(String),
    /// One of that name belongs to somebody else.
    Foreign,
}

/// What must be asked of the world before the decision can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Fresh key pairs.
    Keys,
    /// Is the Secret there?
    Secret,
    /// What does this image run by itself?
    Entrypoint { image: String, pull_secrets: Vec<String> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In order; each is done before the next.
    pub writes: Vec<Write>,
    /// To be stored, after the writes, if it differs from what is stored.
    pub status: Option<DevServerStatus>,
    pub events: Vec<Event>,
    pub again: Again,
    /// The answer is needed; nothing else of the plan is.
    pub ask: Option<Question>,
    /// The phase decided, whether written or held back.
    pub phase: Option<Phase>,
}

impl Plan {
    fn nothing() -> Self {
        Self { writes: vec![], status: None, events: vec![], again: Again::OnChange, ask: None, phase: None }
    }
}

/// The grant in force.
pub fn granted(status: Option<&DevServerStatus>) -> Option<&Admission> {
    status.and_then(|status| status.admission.as_ref()).filter(|admission| !admission.nodes.is_empty())
}

/// What the queue should do for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Run,
    /// It would run, but something else has to happen first; look again then, if a time is known.
    Later(Option<Timestamp>),
    Rest,
}

/// `pods_left`: pods of it still exist.
pub fn wish(
    server: &DevServer,
    checked: &Result<Valid<'_>, Vec<Violation>>,
    pods_left: bool,
    settings: &Settings,
    now: Timestamp,
) -> Wish {
    let phase = server.status.as_ref().and_then(|status| status.phase);
    if server.metadata.deletion_timestamp.is_some() || phase.is_some_and(Phase::terminal) {
        return Wish::Rest;
    }
    if goal(server, None, limits(checked), settings, now) != Goal::Run {
        return Wish::Rest;
    }
    match checked {
        _ if granted(server.status.as_ref()).is_some() => Wish::Run,
        // What it held must be free before it holds something again, or it would keep others waiting for nothing.
        _ if pods_left => Wish::Later(None),
        Err(_) => Wish::Later(None),
        Ok(valid) if !valid.disk.ready => Wish::Later(None),
        Ok(_) => match &server.spec.scheduling.not_before {
            Some(booked) if booked.0 > now => Wish::Later(Some(booked.0)),
            _ => Wish::Run,
        },
    }
}

fn limits<'a>(checked: &Result<Valid<'a>, Vec<Violation>>) -> Option<&'a Limits> {
    checked.as_ref().ok().map(|valid| &valid.flavor.limits)
}

/// The next step of a server's life.
pub fn decide(
    server: &DevServer,
    checked: &Result<Valid<'_>, Vec<Violation>>,
    seen: &Seen<'_>,
    settings: &Settings,
    now: Timestamp,
) -> Plan {
    Decision { server, checked, seen, settings, now, parts: sort(server, seen) }.plan()
}

fn sort<'a>(server: &DevServer, seen: &Seen<'a>) -> Parts<'a> {
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    let grant = granted(server.status.as_ref());
    let fits = grant.filter(|grant| grant.nodes.len() == server.spec.nodes as usize);
    parts::sort(&seen.pods, name, uid, server.spec.nodes as usize, fits.map(|grant| grant.run))
}

/// Everything a decision looks at.
struct Decision<'a> {
    server: &'a DevServer,
    checked: &'a Result<Valid<'a>, Vec<Violation>>,
    seen: &'a Seen<'a>,
    settings: &'a Settings,
    now: Timestamp,
    parts: Parts<'a>,
}

impl Decision<'_> {
    fn plan(&self) -> Plan {
        let old = self.server.status.as_ref();
        if self.server.metadata.deletion_timestamp.is_some() {
            return self.deleted();
        }
        if let Some(phase) = old.and_then(|status| status.phase).filter(|phase| phase.terminal()) {
            return self.ended(phase);
        }
        match goal(self.server, self.seen.sleep, limits(self.checked), self.settings, self.now) {
            Goal::End(end) => self.end(end),
            Goal::Sleep(cause) => self.sleep(cause),
            Goal::Run => match self.checked {
                Err(violations) if granted(old).is_none() => self.refuse(violations),
                _ => self.run(),
            },
        }
    }

    /// Without a finalizer of ours it is gone at once; it is seen here only while somebody else holds it.
    fn deleted(&self) -> Plan {
        let writes = self.stop_pods();
        let holders: Vec<&str> = self.server.metadata.finalizers.iter().flatten().map(String::as_str).collect();
        let terminal = self.server.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::terminal);
        if terminal || holders.is_empty() {
            return Plan { writes, ..Plan::nothing() };
        }
        let message = describe::held_back(&holders);
        self.told(self.outlook(Phase::Stopping, Reason::Stopping, message).urgent(), writes, self.node_watch())
    }

    /// Terminal phases are final. What is left of it is cleared away, and after a day the object itself.
    fn ended(&self, phase: Phase) -> Plan {
        let writes = self.stop_pods();
        let plan = Plan { phase: Some(phase), ..Plan::nothing() };
        if !writes.is_empty() || !self.parts.none_left() {
            return Plan { writes, again: self.node_watch(), ..plan };
        }
        let finished = self.server.status.as_ref().and_then(|status| status.finished_at.as_ref());
        let Some(finished) = finished else { return plan };
        let age = Duration::try_from(self.now.duration_since(finished.0)).unwrap_or_default();
        match self.settings.keep_ended.checked_sub(age).filter(|left| !left.is_zero()) {
            Some(left) => Plan { again: Again::After(left), ..plan },
            None => Plan { writes: vec![Write::Delete(self.this_server())], ..plan },
        }
    }

    fn this_server(&self) -> Target {
        let meta = &self.server.metadata;
        Target {
            kind: Kind::DevServer,
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            grace: None,
        }
    }

    /// In order: the intent is stored, the pods stop, the queue takes the grant back, the end is stored.
    fn end(&self, end: End) -> Plan {
        let stored = self.server.status.as_ref().and_then(|status| status.phase);
        let (phase, reason, message) = match end {
            End::Expired => (Phase::Expired, Reason::LifetimeUsedUp, describe::EXPIRED),
            End::Cancelled => (Phase::Cancelled, Reason::Ended, describe::CANCELLED),
        };
        if end == End::Expired && stored != Some(Phase::Stopping) {
            // Stored before anything stops: from here on nobody can extend it, and until here everybody could.
            let outlook = self.outlook(Phase::Stopping, reason, describe::STOPPING.into()).used_up();
            return self.told(outlook, vec![], Again::After(Duration::ZERO));
        }
        if !self.parts.none_left() {
            let outlook = self.outlook(Phase::Stopping, reason, self.stopping_message(describe::STOPPING));
            let outlook = if end == End::Expired { outlook.used_up() } else { outlook };
            return self.told(outlook, self.stop_pods(), self.node_watch());
        }
        if granted(self.server.status.as_ref()).is_some() {
            return Plan { phase: Some(Phase::Stopping), ..Plan::nothing() };
        }
        let outlook = self.outlook(phase, reason, message.into());
        let outlook = if end == End::Expired { outlook.used_up() } else { outlook };
        self.told(outlook, vec![], Again::After(self.settings.keep_ended))
    }

    fn sleep(&self, cause: HibernationCause) -> Plan {
        let old = self.server.status.as_ref();
        let reason = match cause {
            HibernationCause::User => Reason::HibernatedByUser,
            HibernationCause::Idle => Reason::HibernatedByIdleness,
            HibernationCause::Drain => Reason::HibernatedByDrain,
        };
        let intended = old.and_then(|status| status.hibernation.as_ref()).is_some();
        if cause != HibernationCause::User && !intended {
            // Only the status says so, so it says so before anything stops.
            let outlook = self.outlook(Phase::Hibernating, reason, describe::HIBERNATING.into()).asleep(cause);
            return self.told(outlook, vec![], Again::After(Duration::ZERO));
        }
        if !self.parts.none_left() {
            let message = self.stopping_message(describe::HIBERNATING);
            let outlook = self.outlook(Phase::Hibernating, reason, message);
            let outlook = if intended { outlook.asleep(cause) } else { outlook };
            return self.told(outlook, self.stop_pods(), self.node_watch());
        }
        if granted(old).is_some() {
            return Plan { phase: Some(Phase::Hibernating), ..Plan::nothing() };
        }
        let message = describe::asleep(cause);
        self.told(self.outlook(Phase::Hibernated, reason, message.into()).asleep(cause), vec![], Again::OnChange)
    }

    fn refuse(&self, violations: &[Violation]) -> Plan {
        let reason = violations.first().map_or(Reason::Invalid, |violation| violation.reason);
        let message = violations.iter().map(|violation| violation.message.as_str()).collect::<Vec<_>>().join(" ");
        let phase = self.before_the_queue();
        let writes = self.stop_pods();
        self.told(self.outlook(phase, reason, message).refused(), writes, Again::OnChange)
    }

    /// A server that was further once does not go back to the beginning.
    fn before_the_queue(&self) -> Phase {
        match self.server.status.as_ref().and_then(|status| status.phase) {
            None | Some(Phase::Pending) => Phase::Pending,
            Some(_) => Phase::Queued,
        }
    }

    fn run(&self) -> Plan {
        let old = self.server.status.as_ref();
        let Some(grant) = granted(old) else { return self.wait() };
        if grant.nodes.len() != self.server.spec.nodes as usize {
            // Not a grant for this server; the queue sees it too and takes it back.
            return Plan { writes: self.stop_pods(), ..Plan::nothing() };
        }
        if let Some(over) = self.parts.over.first() {
            return self.back_to_the_queue(over);
        }
        if let Some(plan) = self.lost() {
            return plan;
        }
        if self.parts.all_ready() {
            return self.running();
        }
        let troubles: Vec<Trouble> = self.parts.live().filter_map(trouble::of).collect();
        let was_ready = old.is_some_and(|status| status.running_since.is_some());
        if let Some(fatal) = troubles.iter().find(|trouble| trouble.fatal && !was_ready) {
            return self.fail(fatal);
        }
        if was_ready && self.parts.current.iter().all(Option::is_some) {
            return self.restarting(&troubles);
        }
        self.start(grant, troubles.first())
    }

    /// Waits for the queue, or for what the queue waits for.
    fn wait(&self) -> Plan {
        let writes = self.stop_pods();
        let admission = self.server.status.as_ref().and_then(|status| status.admission.as_ref());
        let disk = self.checked.as_ref().ok().map(|valid| &valid.disk);
        if let Some(disk) = disk.filter(|disk| !disk.ready) {
            return self.told(
                self.outlook(self.before_the_queue(), disk.reason, disk.message.clone()),
                writes,
                Again::OnChange,
            );
        }
        let booked = self.server.spec.scheduling.not_before.as_ref().filter(|booked| booked.0 > self.now);
        let (reason, message) = match booked {
            Some(_) => (Reason::Booked, describe::BOOKED.to_owned()),
            None => describe::waiting(admission),
        };
        self.told(self.outlook(Phase::Queued, reason, message), writes, Again::OnChange)
    }

    /// Its node sent the pod away. The queue takes the grant back and keeps the place; then the pod is deleted.
    fn back_to_the_queue(&self, over: &Pod) -> Plan {
        let message = describe::pod_over(over);
        let outlook =
            self.outlook(Phase::Queued, Reason::PodGone, message.clone()).failing(Reason::PodGone, message, None);
        self.told(outlook, vec![], Again::OnChange)
    }

    /// Pods on a node that does not come back. The queue takes the grant back; here the pods are cleared away.
    fn lost(&self) -> Option<Plan> {
        let lost =
            |pod: &Pod| parts::lost_node(pod, &self.seen.nodes, self.settings.lost_after, self.now).map(str::to_owned);
        let (pod, node) =
            self.parts.live().chain(self.parts.leaving.iter().copied()).find_map(|pod| Some((pod, lost(pod)?)))?;
        let message = describe::node_lost(&node, self.has_disk());
        let failing = pod.deleting.is_none();
        let outlook = self.outlook(Phase::Queued, Reason::NodeLost, message.clone());
        let outlook = if failing { outlook.failing(Reason::NodeLost, message, None) } else { outlook };
        Some(self.told(outlook, self.stop_pods(), Again::OnChange))
    }

    fn running(&self) -> Plan {
        let outlook = self.outlook(Phase::Running, Reason::Running, describe::RUNNING.into());
        self.told(outlook, self.adopt(), self.next_stage())
    }

    /// A container of a server that was ready is being started again where it is.
    fn restarting(&self, troubles: &[Trouble]) -> Plan {
        let silent = self
            .parts
            .live()
            .filter_map(|pod| pod.node.as_deref())
            .find(|node| self.seen.nodes.get(node).is_none_or(|node| !node.is_ready()));
        let (reason, message) = match (silent, troubles.first()) {
            (Some(node), _) => (Reason::NodeLost, describe::node_silent(node)),
            (None, Some(trouble)) => (Reason::Restarting, trouble.message.clone()),
            (None, None) => (Reason::Restarting, describe::RESTARTING.to_owned()),
        };
        let outlook = self.outlook(Phase::Running, reason, message);
        self.told(outlook, self.adopt(), self.next_stage().or(self.node_watch()))
    }

    fn fail(&self, trouble: &Trouble) -> Plan {
        let outlook = self.outlook(Phase::Failed, trouble.reason, trouble.message.clone());
        let outlook = outlook.failing(trouble.reason, trouble.message.clone(), trouble.log.clone());
        // The pods go afterwards: the end is stored first, so that it is the end whatever happens.
        self.told(outlook, vec![], Again::After(Duration::ZERO))
    }

    fn start(&self, grant: &Admission, trouble: Option<&Trouble>) -> Plan {
        let since = self.starting_since(grant);
        let spent = since.and_then(|since| Duration::try_from(self.now.duration_since(since)).ok()).unwrap_or_default();
        let Some(left) = self.settings.start_limit.checked_sub(spent).filter(|left| !left.is_zero()) else {
            let why = trouble.map_or(String::new(), |trouble| format!(" {}", trouble.message));
            return self.fail(&Trouble {
                reason: Reason::StartTimeout,
                message: format!("{}{why}", describe::START_TIMEOUT),
                log: trouble.and_then(|trouble| trouble.log.clone()),
                fatal: true,
            });
        };
        let Ok(valid) = self.checked else {
            let Err(violations) = self.checked else { return Plan::nothing() };
            return self.refuse(violations);
        };
        let again = Again::After(left).or(self.node_watch());
        let (reason, message) = match trouble {
            Some(trouble) => (trouble.reason, trouble.message.clone()),
            None => describe::starting(&self.parts),
        };
        let outlook = self.outlook(Phase::Starting, reason, message);
        match self.next_writes(valid, grant) {
            Err(Blocked::Ask(question)) => Plan { ask: Some(question), phase: Some(Phase::Starting), ..Plan::nothing() },
            Err(Blocked::Taken(what)) => {
                self.told(self.outlook(Phase::Starting, Reason::NameTaken, what), vec![], again)
            }
            Err(Blocked::Unknown(message)) => self.fail(&Trouble {
                reason: Reason::ImageNotFound,
                message: format!("The image's own entrypoint cannot be learned: {message}. Correct image.ref, or leave image.keepEntrypoint out."),
                log: None,
                fatal: true,
            }),
            Ok(writes) => {
                let secret = writes.iter().any(|write| matches!(write, Write::Create(object) if object.kind == Kind::Secret));
                let again = if secret { Again::After(Duration::ZERO) } else { again.or(self.secret_doubt()) };
                self.told(outlook, writes, again)
            }
        }
    }

    /// What is missing of the objects of this run, in the order in which each needs the one before: a pod mounts the
    /// Secret, and finds its peers by the Service.
    fn next_writes(&self, valid: &Valid<'_>, grant: &Admission) -> Result<Vec<Write>, Blocked> {
        let mut writes = self.adopt();
        // A pod of an older run stands where ours should.
        writes.extend(self.parts.surplus.iter().map(|pod| Write::Delete(parts::target(pod, None))));
        if let Some(foreign) = self.parts.foreign.first() {
            return Err(Blocked::Taken(describe::name_taken("Pod", &foreign.name)));
        }
        if self.seen.secret == SecretSeen::Foreign {
            return Err(Blocked::Taken(describe::name_taken("Secret", &build::secret_name(valid.name.as_str()))));
        }
        let missing: Vec<usize> = (0..self.parts.current.len()).filter(|at| self.is_free(*at)).collect();
        if missing.is_empty() && self.seen.secret != SecretSeen::Missing {
            return if self.is_in_doubt() { Err(Blocked::Ask(Question::Secret)) } else { Ok(writes) };
        }
        let known = self.host_key().filter(|_| self.seen.secret != SecretSeen::Missing);
        let Some(host_key) = known else {
            let Some(keys) = self.seen.keys else { return Err(Blocked::Ask(Question::Keys)) };
            // The answer tells the key that counts, ours or the one that was there; then the pods follow, new ones too
            // for those that were made for a key that is lost.
            writes.push(Write::Create(build::secret(valid, keys)));
            writes.extend(self.parts.live().map(|pod| Write::Delete(parts::target(pod, None))));
            return Ok(writes);
        };
        let entrypoint = self.entrypoint(valid)?;
        if valid.nodes > 1 {
            let service = build::service(valid);
            if !self.seen.service.is_some_and(|seen| seen.covers(&service)) {
                writes.push(Write::Apply(service));
            }
        }
        for ordinal in missing {
            let Some(node) = grant.nodes.get(ordinal) else { continue };
            let place = build::Placement {
                ordinal,
                run: grant.run,
                node,
                user_namespaces: self.seen.nodes.get(node.as_str()).is_some_and(|node| node.user_namespaces),
            };
            let pod = build::pod(valid, place, &host_key, &entrypoint, &self.settings.agent_image);
            writes.push(Write::Create(pod));
        }
        Ok(writes)
    }

    /// Nothing of ours has the name of this ordinal's pod, not even on its way out.
    fn is_free(&self, ordinal: usize) -> bool {
        let name = parts::name(self.server.metadata.name.as_deref().unwrap_or_default(), ordinal);
        self.parts.current.get(ordinal).is_some_and(Option::is_none) && self.parts.all().all(|pod| pod.name != name)
    }

    fn entrypoint(&self, valid: &Valid<'_>) -> Result<Vec<String>, Blocked> {
        let image = self.server.spec.image.as_ref();
        if !image.is_some_and(|image| image.keep_entrypoint) {
            return Ok(vec![]);
        }
        match &self.seen.entrypoint {
            Some(Ok(words)) => Ok(words.clone()),
            Some(Err(message)) => Err(Blocked::Unknown(message.clone())),
            None => {
                let own = image.and_then(|image| image.pull_secret.as_ref());
                let all = own.into_iter().chain(&valid.flavor.pull_secret);
                let pull_secrets = all.map(|name| name.as_str().to_owned()).collect();
                Err(Blocked::Ask(Question::Entrypoint { image: valid.image.to_owned(), pull_secrets }))
            }
        }
    }

    /// The host key in force, wherever it is known from.
    fn host_key(&self) -> Option<String> {
        if let SecretSeen::There(key) = &self.seen.secret {
            return Some(key.clone());
        }
        let of_pod = |pod: &Pod| pod.server.as_ref().and_then(|details| details.host_key.clone());
        self.parts.live().find_map(of_pod).or_else(|| {
            let access = self.server.status.as_ref().and_then(|status| status.access.as_ref());
            access.and_then(|access| access.host_key.as_ref()).map(|key| key.as_str().to_owned())
        })
    }

    /// A placed pod that has not even begun for a while perhaps cannot mount its Secret. It is looked for once.
    fn is_in_doubt(&self) -> bool {
        self.parts.live().any(|pod| self.doubt_in(pod) == Some(Duration::ZERO))
    }

    fn secret_doubt(&self) -> Again {
        let soonest = self.parts.live().filter_map(|pod| self.doubt_in(pod)).filter(|left| !left.is_zero()).min();
        soonest.map_or(Again::OnChange, Again::After)
    }

    /// How long until the Secret is to be looked for because of this pod.
    fn doubt_in(&self, pod: &Pod) -> Option<Duration> {
        let details = pod.server.as_ref()?;
        let begun = details.containers.iter().any(|container| !waits_for_volumes(container));
        pod.node.as_ref()?;
        let doubtful = details.created?.saturating_add(SECRET_DOUBT).unwrap_or(Timestamp::MAX);
        if begun || details.ready || self.seen.secret_checked.is_some_and(|checked| checked >= doubtful) {
            return None;
        }
        Some(Duration::try_from(self.now.duration_until(doubtful)).unwrap_or_default())
    }

    fn starting_since(&self, grant: &Admission) -> Option<Timestamp> {
        let status = self.server.status.as_ref()?;
        let noted = status.timeline.last().filter(|entry| entry.phase == Phase::Starting).map(|entry| entry.at.0);
        noted.max(grant.granted_at.as_ref().map(|time| time.0))
    }

    /// Deletes every pod that is not already on its way; one on a lost node at once, unless it may still write to a
    /// disk somewhere.
    fn stop_pods(&self) -> Vec<Write> {
        let mut writes = Vec::new();
        for pod in self.parts.all() {
            let lost = parts::lost_node(pod, &self.seen.nodes, self.settings.lost_after, self.now).is_some();
            let forced = lost && !self.has_disk();
            if forced || pod.deleting.is_none() {
                writes.push(Write::Delete(parts::target(pod, forced.then_some(0))));
            }
        }
        writes
    }

    fn has_disk(&self) -> bool {
        let volumes =
            self.checked.as_ref().map_or(!self.server.spec.volumes.is_empty(), |valid| !valid.volumes.is_empty());
        volumes || !matches!(self.server.spec.home, odc_api::v1alpha1::Home::Ephemeral(_))
    }

    fn adopt(&self) -> Vec<Write> {
        let name = self.server.metadata.name.as_deref().unwrap_or_default();
        let uid = self.server.metadata.uid.as_deref().unwrap_or_default();
        let owner = serde_json::to_value(build::owner_reference(name, uid)).unwrap_or_default();
        let orphans = self.parts.orphaned.iter();
        orphans.map(|pod| Write::Adopt { target: parts::target(pod, None), owner: owner.clone() }).collect()
    }

    /// When the next of our pods' nodes would count as lost.
    fn node_watch(&self) -> Again {
        let mut again = Again::OnChange;
        for pod in self.parts.all() {
            let node = pod.node.as_deref().and_then(|node| self.seen.nodes.get(node));
            if let Some(crate::seen::Readiness::Unready(since)) = node.map(|node| node.readiness) {
                let for_long = Duration::try_from(self.now.duration_since(since)).unwrap_or_default();
                if let Some(left) = self.settings.lost_after.checked_sub(for_long).filter(|left| !left.is_zero()) {
                    again = again.or(Again::After(left));
                }
            }
        }
        again
    }

    fn stopping_message(&self, plain: &str) -> String {
        let silent = self
            .parts
            .all()
            .find_map(|pod| parts::lost_node(pod, &self.seen.nodes, self.settings.lost_after, self.now));
        silent.map_or_else(|| plain.to_owned(), |node| describe::node_lost(node, self.has_disk()))
    }

    fn next_stage(&self) -> Again {
        let status = self.status(&self.outlook(Phase::Running, Reason::Running, String::new()));
        match status.expires_at.map(|at| lifetime::stage(at.0, self.settings.expiry_grace, self.now)) {
            Some(Stage::TimeLeft(left) | Stage::EndsSoon(left) | Stage::Grace(left)) => Again::After(left),
            Some(Stage::Over) => Again::After(Duration::ZERO),
            None => Again::OnChange,
        }
    }

    fn outlook(&self, phase: Phase, reason: Reason, message: String) -> Outlook {
        Outlook::new(phase, reason, message)
    }

    fn status(&self, outlook: &Outlook) -> DevServerStatus {
        status::compose(self.server, outlook, self.checked, &self.parts, self.host_key(), self.settings, self.now)
    }

    /// The plan that does this and tells it, now or, if it may pass by itself, a little later.
    fn told(&self, outlook: Outlook, writes: Vec<Write>, again: Again) -> Plan {
        let old = self.server.status.as_ref();
        let stored = old.and_then(|status| status.phase);
        let plan = Plan { writes, phase: Some(outlook.phase), again, ..Plan::nothing() };
        if outlook.may_pass() && stored != Some(outlook.phase) {
            let held = self.seen.held.filter(|(phase, _)| *phase == outlook.phase).map_or(self.now, |(_, since)| since);
            let waited = Duration::try_from(self.now.duration_since(held)).unwrap_or_default();
            if let Some(left) = PASSING.checked_sub(waited).filter(|left| !left.is_zero()) {
                return Plan { again: plan.again.or(Again::After(left)), ..plan };
            }
        }
        let status = self.status(&outlook);
        let events =
            if stored == Some(outlook.phase) { vec![] } else { describe::event(&outlook).into_iter().collect() };
        let same = old == Some(&status);
        Plan { status: (!same).then_some(status), events: if same { vec![] } else { events }, ..plan }
    }
}

/// Why nothing can be written for a start.
enum Blocked {
    Ask(Question),
    /// An object of a name we need is somebody else's.
    Taken(String),
    /// What must be known cannot be.
    Unknown(String),
}

fn waits_for_volumes(container: &crate::seen::Container) -> bool {
    use crate::seen::ContainerState::Waiting;
    matches!(&container.state, Waiting { reason, .. } if reason == "PodInitializing" || reason == "ContainerCreating")
}
