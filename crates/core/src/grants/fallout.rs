//! What of a plan still holds when some of it could not be carried out.

use std::collections::{BTreeSet, HashMap};

use super::{Decision, Facts, Server, What};

impl Decision {
    /// Whether it gives back what later decisions count on.
    pub fn gives_back(&self) -> bool {
        matches!(self.what, What::Release | What::Revoke(_))
    }
}

/// The decisions that do not count on what these servers, by uid, were to give back and did not: grants on the same nodes,
/// or from the same quotas, wait for another plan.
pub fn independent(decisions: Vec<Decision>, stuck: &BTreeSet<String>, facts: &Facts<'_>) -> Vec<Decision> {
    if stuck.is_empty() {
        return decisions;
    }
    let by_uid: HashMap<&str, &Server> = facts.servers.iter().map(|server| (server.uid.as_str(), *server)).collect();
    // Who only leaves the queue has nothing to give back.
    let stuck = stuck.iter().filter_map(|uid| by_uid.get(uid.as_str()).copied());
    let stuck: Vec<&Server> = stuck.filter(|server| server.is_granted()).collect();
    let shares = |decision: &Decision, other: &Server| {
        let held = other.admission.as_ref().map(|admission| admission.nodes.as_slice()).unwrap_or_default();
        let team = by_uid.get(decision.uid.as_str()).and_then(|server| server.team.as_ref());
        let same_team = team.is_some() && team == other.team.as_ref();
        same_team
            || decision.namespace == other.namespace
            || decision.admission.nodes.iter().any(|node| held.contains(node))
    };
    let holds =
        |decision: &Decision| decision.what != What::Grant || stuck.iter().all(|other| !shares(decision, other));
    decisions.into_iter().filter(holds).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Want;
    use super::super::fixtures::{Cluster, gpu_node};
    use super::*;

    /// Ada's server leaves the first of three nodes; she, bob and eve want one each.
    fn turnover() -> Cluster {
        let mut cluster = Cluster::new([gpu_node("n1", 1), gpu_node("n2", 1), gpu_node("n3", 1)])
            .server("leaves", |server| server.granted(1, &["n1"]).want(Want::Rest))
            .server("bobs", |server| server.owner("bob"))
            .server("adas", |server| server)
            .server("eves", |server| server.owner("eve"));
        for server in &mut cluster.servers {
            server.namespace = format!("dev-{}", server.owner);
        }
        cluster
    }

    #[test]
    fn what_was_not_given_back_is_granted_to_nobody() {
        let cluster = turnover();
        let plan = cluster.plan();
        assert_eq!(plan.decisions.iter().filter(|decision| decision.gives_back()).count(), 1);
        let all = plan.decisions.clone();
        assert_eq!(independent(all.clone(), &BTreeSet::new(), &cluster.world()), all);
        let left = independent(all.clone(), &["uid-leaves".to_owned()].into(), &cluster.world());
        // Neither its node nor its owner's quota; everything else goes on.
        let sound = |decision: &&Decision| {
            decision.what != What::Grant || decision.name != "adas" && decision.admission.nodes != ["n1"]
        };
        let expect: Vec<Decision> = all.iter().filter(sound).cloned().collect();
        assert_eq!(left, expect);
        let grants = |decisions: &[Decision]| decisions.iter().filter(|decision| decision.what == What::Grant).count();
        assert!(grants(&all) == 3 && (1..3).contains(&grants(&left)), "{left:?}");
    }

    #[test]
    fn who_only_leaves_the_queue_keeps_nobody_from_anything() {
        let mut cluster = turnover();
        cluster.servers[0].admission = None;
        let all = cluster.plan().decisions;
        assert_eq!(independent(all.clone(), &["uid-leaves".to_owned()].into(), &cluster.world()), all);
    }
}
