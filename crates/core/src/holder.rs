//! Which server may use a claim that only one can.

use odc_api::v1alpha1::{Desired, DevServer, Phase};

use crate::devserver::{granted, parts};
use crate::seen::Pod;

/// Who has a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A server that has it by right, or comes before.
    Server(String),
    /// A pod that is not gone, whatever became of its server: it was deleted, lost its node, or cannot be read.
    Pod(String),
}

/// Who else has the claim or comes before this server: whoever was granted devices, then whatever may still write to it,
/// else whoever came first and wants to run. All of `others` mount the claim; `pods` are those of the namespace.
pub fn holder(claim: &str, server: &DevServer, others: &[&DevServer], pods: &[&Pod]) -> Option<Holder> {
    let mut rivals: Vec<&DevServer> = others.iter().copied().filter(|other| is_rival(server, other)).collect();
    rivals.sort_by_key(|rival| turn(rival));
    let has = |server: &DevServer| granted(server.status.as_ref()).is_some();
    let named = |rival: &&DevServer| Holder::Server(rival.metadata.name.clone().unwrap_or_default());
    // Of two that both have it the later one gives way.
    let comes_first = |rival: &&&DevServer| !has(server) || turn(rival) < turn(server);
    let holding = rivals.iter().find(|rival| has(rival)).filter(comes_first);
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    let is_others = |pod: &Pod| pod.server.as_ref().is_some_and(|details| !parts::is_ours(details, uid));
    let writing = || pods.iter().find(|pod| is_others(pod) && may_write(pod, claim));
    let earlier = || rivals.iter().find(|rival| !has(server) && wants(rival) && turn(rival) < turn(server));
    holding.map(named).or_else(|| writing().map(|pod| Holder::Pod(pod.name.clone()))).or_else(|| earlier().map(named))
}

/// Whether a pod mounts the claim and is not known to have ended. One that is on its way out is there until it is gone.
fn may_write(pod: &Pod, claim: &str) -> bool {
    claims(pod).any(|mounted| mounted == claim)
}

/// The claims a pod may still write to.
fn claims(pod: &Pod) -> impl Iterator<Item = &str> {
    let ended = pod.is_over() && pod.deleting.is_none();
    pod.claims.iter().filter(move |_| !ended).map(|claim| &**claim)
}

/// The claims that a pod has let go, of which it is known how it was and how it is.
pub fn let_go<'a>(old: Option<&'a Pod>, new: Option<&Pod>) -> Vec<&'a str> {
    let same = new.filter(|new| old.is_some_and(|old| old.uid == new.uid));
    let kept = |claim: &&str| same.is_some_and(|pod| may_write(pod, claim));
    old.into_iter().flat_map(claims).filter(|claim| !kept(claim)).collect()
}

fn is_rival(server: &DevServer, other: &DevServer) -> bool {
    let phase = other.status.as_ref().and_then(|status| status.phase);
    let ended = phase.is_some_and(Phase::terminal) && granted(other.status.as_ref()).is_none();
    other.metadata.uid != server.metadata.uid && !ended
}

fn wants(server: &DevServer) -> bool {
    let asleep = server.status.as_ref().is_some_and(|status| status.hibernation.is_some());
    server.spec.desired == Desired::Running && !asleep
}

fn turn(server: &DevServer) -> (Option<i64>, Option<&str>) {
    let created = server.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    (created, server.metadata.name.as_deref())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use odc_api::fixtures::time;
    use odc_api::v1alpha1::Admission;

    use super::*;
    use crate::devserver::fixtures;
    use crate::seen::PodPhase;

    fn server(name: &str, created: &str) -> DevServer {
        let mut server = DevServer::test().named(name);
        server.metadata.creation_timestamp = Some(time(created));
        server
    }

    fn with_grant(server: DevServer) -> DevServer {
        server.status(|status| {
            status.admission = Some(Admission { run: 1, nodes: vec!["node-1".into()], ..Admission::default() });
        })
    }

    /// The first pod of a server, which mounts the claim `home`.
    fn pod_of(server: &str) -> Pod {
        let mut pod = fixtures::pod(&format!("{server}-0"));
        let details = pod.server.as_mut().unwrap();
        details.owner = Some(format!("uid-{server}"));
        details.made_for.clone_from(&details.owner);
        pod.claims = ["home".into()].into();
        pod
    }

    fn by_server(server: &str) -> Holder {
        Holder::Server(server.into())
    }

    fn by_pod(pod: &str) -> Holder {
        Holder::Pod(pod.into())
    }

    fn among(server: &DevServer, others: &[&DevServer]) -> Option<Holder> {
        holder("home", server, others, &[])
    }

    #[test]
    fn first_come_first_served_until_somebody_has_it() {
        let early = server("early", "2026-01-01T00:00:00Z");
        let late = server("late", "2026-01-02T00:00:00Z");
        assert_eq!(among(&late, &[&early]), Some(by_server("early")));
        assert_eq!(among(&early, &[&late]), None);
        let late = with_grant(late);
        assert_eq!(among(&early, &[&late]), Some(by_server("late")));
        assert_eq!(among(&late, &[&early]), None);
        let early = with_grant(early);
        assert_eq!(among(&late, &[&early]), Some(by_server("early")));
        assert_eq!(among(&early, &[&late]), None);
    }

    #[test]
    fn who_ended_or_sleeps_is_no_rival() {
        let early = server("early", "2026-01-01T00:00:00Z");
        let late = server("late", "2026-01-02T00:00:00Z");
        assert_eq!(among(&late, &[&early.clone().desired(Desired::Hibernated)]), None);
        assert_eq!(among(&late, &[&early.clone().in_phase(Phase::Expired)]), None);
        // Ended, but its pods are not gone yet.
        assert_eq!(among(&late, &[&with_grant(early.in_phase(Phase::Failed))]), Some(by_server("early")));
    }

    #[test]
    fn a_pod_holds_its_claims_until_it_is_gone_whatever_became_of_its_server() {
        let late = server("late", "2026-01-02T00:00:00Z");
        let early = server("early", "2026-01-01T00:00:00Z");
        let pod = pod_of("early");
        // Its server was deleted, or nobody can read it any more.
        assert_eq!(holder("home", &late, &[], &[&pod]), Some(by_pod("early-0")));
        // It is queued again because its node was lost, and even came later.
        let first = server("first", "2025-01-01T00:00:00Z");
        assert_eq!(holder("home", &first, &[&early], &[&pod]), Some(by_pod("early-0")));
        // A grant settles nothing while the pod is there.
        assert_eq!(holder("home", &with_grant(first), &[&early], &[&pod]), Some(by_pod("early-0")));
        // While the server has it by right, it is the one to talk to.
        assert_eq!(holder("home", &late, &[&with_grant(early.clone())], &[&pod]), Some(by_server("early")));
        // One's own pod is in nobody's way but that of others.
        assert_eq!(holder("home", &early, &[], &[&pod]), None);
        assert_eq!(holder("data", &late, &[], &[&pod]), None);
    }

    #[test]
    fn a_pod_that_ended_has_let_go_and_one_on_its_way_out_has_not() {
        let late = server("late", "2026-01-02T00:00:00Z");
        let held = |change: fn(&mut Pod)| {
            let mut pod = pod_of("early");
            change(&mut pod);
            holder("home", &late, &[], &[&pod]).is_some()
        };
        assert!(held(|pod| pod.phase = PodPhase::Pending));
        assert!(!held(|pod| pod.phase = PodPhase::Failed));
        assert!(!held(|pod| pod.phase = PodPhase::Succeeded));
        assert!(held(|pod| pod.deleting = Some(Timestamp::UNIX_EPOCH)));
        assert!(held(|pod| (pod.phase, pod.deleting) = (PodPhase::Failed, Some(Timestamp::UNIX_EPOCH))));
        assert!(held(|pod| pod.server.as_mut().unwrap().owner = None));
    }

    #[test]
    fn what_a_pod_lets_go_is_told_once() {
        let pod = pod_of("early");
        let changed = |change: fn(&mut Pod)| {
            let mut pod = pod.clone();
            change(&mut pod);
            pod
        };
        let leaving = changed(|pod| pod.deleting = Some(Timestamp::UNIX_EPOCH));
        let ended = changed(|pod| pod.phase = PodPhase::Failed);
        let another = changed(|pod| pod.uid = "uid-another".into());
        assert_eq!(let_go(None, Some(&pod)), [""; 0]);
        assert_eq!(let_go(Some(&pod), Some(&leaving)), [""; 0]);
        assert_eq!(let_go(Some(&leaving), None), ["home"]);
        assert_eq!(let_go(Some(&pod), Some(&ended)), ["home"]);
        assert_eq!(let_go(Some(&ended), None), [""; 0]);
        assert_eq!(let_go(Some(&pod), Some(&another)), ["home"]);
    }
}
