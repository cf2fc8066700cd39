//! Finds which server or pod uses a claim that only one server may mount.

use std::collections::{BTreeMap, BTreeSet};

use odc_api::v1alpha1::{Desired, DevServer, Phase};

use crate::cluster::Pod;
use crate::devserver::active_admission;

/// What uses a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeUser {
    /// An admitted server, or one with precedence.
    Server(String),
    /// A pod that still exists, even if its server was deleted, lost its node, or is invalid.
    Pod(String),
}

/// The servers and pods that use one claim, sorted so that precedence is found without comparing all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimUsers {
    /// The servers that mount the claim and have not ended, by uid.
    servers: BTreeMap<String, ServerUse>,
    admitted: BTreeSet<CreationOrder>,
    /// Those that should run.
    wanted: BTreeSet<CreationOrder>,
    /// The server uids of the pods that may write to the volume, by the name of the pod.
    pods: BTreeMap<String, Option<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ServerUse {
    order: CreationOrder,
    is_admitted: bool,
    should_run: bool,
}

/// The order of precedence of servers of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CreationOrder {
    created: Option<i64>,
    name: Option<String>,
    uid: String,
}

impl ClaimUsers {
    /// Adds or updates a server that mounts the claim. Returns false if this changes nothing.
    pub fn insert_server(&mut self, server: &DevServer) -> bool {
        let new = ServerUse::new(server);
        let uid = server.metadata.uid.as_deref().unwrap_or_default();
        if self.servers.get(uid) == new.as_ref() {
            return false;
        }
        self.remove_server(uid);
        if let Some(new) = new {
            if new.is_admitted {
                self.admitted.insert(new.order.clone());
            }
            if new.should_run {
                self.wanted.insert(new.order.clone());
            }
            self.servers.insert(uid.to_owned(), new);
        }
        true
    }

    /// Removes a server. Returns false if it was not present.
    pub fn remove_server(&mut self, uid: &str) -> bool {
        let Some(old) = self.servers.remove(uid) else { return false };
        self.admitted.remove(&old.order);
        self.wanted.remove(&old.order);
        true
    }

    /// Adds or updates a pod of the namespace. Returns false if this changes nothing.
    pub fn insert_pod(&mut self, claim: &str, pod: &Pod) -> bool {
        let Some(details) = pod.server.as_ref().filter(|_| may_write(pod, claim)) else {
            return self.remove_pod(&pod.name);
        };
        let uid = details.server_uid().map(str::to_owned);
        self.pods.insert(pod.name.clone(), uid.clone()) != Some(uid)
    }

    /// Removes a pod. Returns false if it was not present.
    pub fn remove_pod(&mut self, name: &str) -> bool {
        self.pods.remove(name).is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.pods.is_empty()
    }

    /// Returns what prevents `server` from using the claim: another admitted server, else a pod that may still write to the
    /// volume, else a server that was created earlier and should run.
    pub fn user_before(&self, server: &DevServer) -> Option<VolumeUser> {
        let order = CreationOrder::new(server);
        let is_admitted = active_admission(server.status.as_ref()).is_some();
        let is_other = |other: &&CreationOrder| other.uid != order.uid;
        let is_earlier = |other: &&CreationOrder| **other < order;
        // Of two admitted servers, the earlier one has precedence.
        let admitted = self.admitted.iter().find(is_other).filter(|other| !is_admitted || is_earlier(other));
        let earlier = || self.wanted.iter().find(is_other).filter(|other| !is_admitted && is_earlier(other));
        let by_server = |other: &CreationOrder| VolumeUser::Server(other.name.clone().unwrap_or_default());
        admitted.map(by_server).or_else(|| self.pod_before(server)).or_else(|| earlier().map(by_server))
    }

    /// Returns a pod of another server that may still write to the volume.
    pub fn pod_before(&self, server: &DevServer) -> Option<VolumeUser> {
        let uid = server.metadata.uid.as_deref().unwrap_or_default();
        let other = self.pods.iter().find(|(_, owner)| owner.as_deref() != Some(uid));
        other.map(|(name, _)| VolumeUser::Pod(name.clone()))
    }
}

impl ServerUse {
    /// Returns `None` for a server that has ended: it does not compete for the claim.
    fn new(server: &DevServer) -> Option<Self> {
        let is_admitted = active_admission(server.status.as_ref()).is_some();
        let phase = server.status.as_ref().and_then(|status| status.phase);
        let has_ended = phase.is_some_and(Phase::is_terminal) && !is_admitted;
        let order = CreationOrder::new(server);
        (!has_ended).then(|| Self { order, is_admitted, should_run: should_run(server) })
    }
}

impl CreationOrder {
    fn new(server: &DevServer) -> Self {
        let (created, name) = creation_order(server);
        let uid = server.metadata.uid.clone().unwrap_or_default();
        Self { created, name: name.map(str::to_owned), uid }
    }
}

/// Reports whether the pod mounts the claim and may still write to it. A terminating pod may write until it is deleted.
pub(crate) fn may_write(pod: &Pod, claim: &str) -> bool {
    writable_claims(pod).any(|mounted| mounted == claim)
}

fn writable_claims(pod: &Pod) -> impl Iterator<Item = &str> {
    let terminated = pod.is_terminated() && pod.deletion_timestamp.is_none();
    pod.claims.iter().filter(move |_| !terminated).map(|claim| &**claim)
}

/// Returns the claims that a pod released between two states.
pub fn released_claims<'a>(old: Option<&'a Pod>, new: Option<&Pod>) -> Vec<&'a str> {
    let same = new.filter(|new| old.is_some_and(|old| old.uid == new.uid));
    let is_used = |claim: &&str| same.is_some_and(|pod| may_write(pod, claim));
    old.into_iter().flat_map(writable_claims).filter(|claim| !is_used(claim)).collect()
}

pub(crate) fn should_run(server: &DevServer) -> bool {
    let hibernated = server.status.as_ref().is_some_and(|status| status.hibernation.is_some());
    server.spec.desired == Desired::Running && !hibernated
}

pub(crate) fn creation_order(server: &DevServer) -> (Option<i64>, Option<&str>) {
    let created = server.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    (created, server.metadata.name.as_deref())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use odc_api::fixtures::time;
    use odc_api::v1alpha1::Admission;

    use super::*;
    use crate::cluster::PodPhase;
    use crate::devserver::fixtures;

    fn server(name: &str, created: &str) -> DevServer {
        let mut server = DevServer::test().named(name);
        server.metadata.creation_timestamp = Some(time(created));
        server
    }

    fn admitted(server: DevServer) -> DevServer {
        server.status(|status| {
            status.admission = Some(Admission { run: 1, nodes: vec!["node-1".into()], ..Admission::default() });
        })
    }

    /// The first pod of a server, which mounts the claim `home`.
    fn pod_of(server: &str) -> Pod {
        let mut pod = fixtures::pod(&format!("{server}-0"));
        let details = pod.server.as_mut().unwrap();
        details.owner = Some(format!("uid-{server}"));
        details.created_for.clone_from(&details.owner);
        pod.claims = ["home".into()].into();
        pod
    }

    fn by_server(server: &str) -> VolumeUser {
        VolumeUser::Server(server.into())
    }

    fn by_pod(pod: &str) -> VolumeUser {
        VolumeUser::Pod(pod.into())
    }

    /// Returns what uses the claim of `server` before it, if `others` mount it too.
    fn volume_user(claim: &str, server: &DevServer, others: &[&DevServer], pods: &[&Pod]) -> Option<VolumeUser> {
        let mut users = ClaimUsers::default();
        for server in others.iter().chain([&server]) {
            users.insert_server(server);
        }
        for pod in pods {
            users.insert_pod(claim, pod);
        }
        users.user_before(server)
    }

    fn user_among(server: &DevServer, others: &[&DevServer]) -> Option<VolumeUser> {
        volume_user("home", server, others, &[])
    }

    #[test]
    fn earlier_server_has_precedence_unless_other_is_admitted() {
        let early = server("early", "2026-01-01T00:00:00Z");
        let late = server("late", "2026-01-02T00:00:00Z");
        assert_eq!(user_among(&late, &[&early]), Some(by_server("early")));
        assert_eq!(user_among(&early, &[&late]), None);
        let late = admitted(late);
        assert_eq!(user_among(&early, &[&late]), Some(by_server("late")));
        assert_eq!(user_among(&late, &[&early]), None);
        let early = admitted(early);
        assert_eq!(user_among(&late, &[&early]), Some(by_server("early")));
        assert_eq!(user_among(&early, &[&late]), None);
    }

    #[test]
    fn ended_or_hibernated_server_does_not_use_claim() {
        let early = server("early", "2026-01-01T00:00:00Z");
        let late = server("late", "2026-01-02T00:00:00Z");
        assert_eq!(user_among(&late, &[&early.clone().desired(Desired::Hibernated)]), None);
        assert_eq!(user_among(&late, &[&early.clone().in_phase(Phase::Expired)]), None);
        // Ended, but its pods still exist.
        assert_eq!(user_among(&late, &[&admitted(early.in_phase(Phase::Failed))]), Some(by_server("early")));
    }

    #[test]
    fn pod_uses_claim_until_deleted_whatever_its_server_does() {
        let late = server("late", "2026-01-02T00:00:00Z");
        let early = server("early", "2026-01-01T00:00:00Z");
        let pod = pod_of("early");
        // Its server was deleted or is invalid.
        assert_eq!(volume_user("home", &late, &[], &[&pod]), Some(by_pod("early-0")));
        // Its server is queued because its node was lost, and was created later.
        let first = server("first", "2025-01-01T00:00:00Z");
        assert_eq!(volume_user("home", &first, &[&early], &[&pod]), Some(by_pod("early-0")));
        // An admission does not override an existing pod.
        assert_eq!(volume_user("home", &admitted(first), &[&early], &[&pod]), Some(by_pod("early-0")));
        // An admitted server is reported instead of its pod.
        assert_eq!(volume_user("home", &late, &[&admitted(early.clone())], &[&pod]), Some(by_server("early")));
        // A server is not blocked by its own pod.
        assert_eq!(volume_user("home", &early, &[], &[&pod]), None);
        assert_eq!(volume_user("data", &late, &[], &[&pod]), None);
    }

    #[test]
    fn terminated_pod_releases_claims_and_terminating_pod_does_not() {
        let late = server("late", "2026-01-02T00:00:00Z");
        let is_used = |change: fn(&mut Pod)| {
            let mut pod = pod_of("early");
            change(&mut pod);
            volume_user("home", &late, &[], &[&pod]).is_some()
        };
        assert!(is_used(|pod| pod.phase = PodPhase::Pending));
        assert!(!is_used(|pod| pod.phase = PodPhase::Failed));
        assert!(!is_used(|pod| pod.phase = PodPhase::Succeeded));
        assert!(is_used(|pod| pod.deletion_timestamp = Some(Timestamp::UNIX_EPOCH)));
        assert!(is_used(|pod| (pod.phase, pod.deletion_timestamp) = (PodPhase::Failed, Some(Timestamp::UNIX_EPOCH))));
        assert!(is_used(|pod| pod.server.as_mut().unwrap().owner = None));
    }

    #[test]
    fn changed_and_removed_users_leave_nothing() {
        let (early, late) = (server("early", "2026-01-01T00:00:00Z"), server("late", "2026-01-02T00:00:00Z"));
        let mut users = ClaimUsers::default();
        assert!(users.insert_server(&early) && users.insert_server(&late));
        assert!(!users.insert_server(&late.clone().status(|status| status.restarts = Some(1))));
        let late = admitted(late);
        assert!(users.insert_server(&late));
        assert_eq!(users.user_before(&early), Some(by_server("late")));
        assert!(users.insert_server(&late.clone().in_phase(Phase::Expired).status(|status| status.admission = None)));
        assert_eq!(users.user_before(&early), None);
        let mut pod = pod_of("late");
        assert!(users.insert_pod("home", &pod) && !users.insert_pod("home", &pod));
        assert_eq!(users.user_before(&early), Some(by_pod("late-0")));
        pod.phase = PodPhase::Succeeded;
        assert!(users.insert_pod("home", &pod));
        assert_eq!(users.user_before(&early), None);
        assert!(users.remove_server("uid-early") && !users.remove_server("uid-early"));
        assert!(users.is_empty());
    }

    #[test]
    fn released_claims_are_reported_once() {
        let pod = pod_of("early");
        let changed = |change: fn(&mut Pod)| {
            let mut pod = pod.clone();
            change(&mut pod);
            pod
        };
        let terminating = changed(|pod| pod.deletion_timestamp = Some(Timestamp::UNIX_EPOCH));
        let terminated = changed(|pod| pod.phase = PodPhase::Failed);
        let another = changed(|pod| pod.uid = "uid-another".into());
        assert_eq!(released_claims(None, Some(&pod)), [""; 0]);
        assert_eq!(released_claims(Some(&pod), Some(&terminating)), [""; 0]);
        assert_eq!(released_claims(Some(&terminating), None), ["home"]);
        assert_eq!(released_claims(Some(&pod), Some(&terminated)), ["home"]);
        assert_eq!(released_claims(Some(&terminated), None), [""; 0]);
        assert_eq!(released_claims(Some(&pod), Some(&another)), ["home"]);
    }
}
