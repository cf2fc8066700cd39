//! Finds which server or pod uses a claim that only one server may mount.

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

/// Returns what prevents `server` from using the claim: another admitted server, else a pod that may still write to the
/// volume, else a server that was created earlier and should run. All of `others` mount the claim; `pods` are the pods of
/// the namespace.
pub fn volume_user(claim: &str, server: &DevServer, others: &[&DevServer], pods: &[&Pod]) -> Option<VolumeUser> {
    let mut competitors: Vec<&DevServer> =
        others.iter().copied().filter(|other| is_competitor(server, other)).collect();
    competitors.sort_by_key(|competitor| creation_order(competitor));
    let is_admitted = |server: &DevServer| active_admission(server.status.as_ref()).is_some();
    let is_earlier = |competitor: &DevServer| creation_order(competitor) < creation_order(server);
    // Of two admitted servers, the earlier one has precedence.
    let admitted = competitors.iter().find(|competitor| is_admitted(competitor));
    let admitted = admitted.filter(|competitor| !is_admitted(server) || is_earlier(competitor));
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    let is_foreign = |pod: &Pod| pod.server.as_ref().is_some_and(|details| !details.belongs_to(uid));
    let pod = || pods.iter().find(|pod| is_foreign(pod) && may_write(pod, claim));
    let earlier = || {
        competitors.iter().find(|competitor| !is_admitted(server) && should_run(competitor) && is_earlier(competitor))
    };
    let by_server = |competitor: &&DevServer| VolumeUser::Server(competitor.metadata.name.clone().unwrap_or_default());
    let by_pod = |pod: &&Pod| VolumeUser::Pod(pod.name.clone());
    admitted.map(by_server).or_else(|| pod().map(by_pod)).or_else(|| earlier().map(by_server))
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

fn is_competitor(server: &DevServer, other: &DevServer) -> bool {
    let phase = other.status.as_ref().and_then(|status| status.phase);
    let ended = phase.is_some_and(Phase::is_terminal) && active_admission(other.status.as_ref()).is_none();
    other.metadata.uid != server.metadata.uid && !ended
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
