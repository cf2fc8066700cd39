//! Drops admissions that rely on resources whose release could not be written.

use std::collections::{BTreeSet, HashMap};

use crate::admission::{Action, Decision, Server, Snapshot};

impl Decision {
    /// Reports whether later decisions may rely on the released resources.
    pub fn releases_resources(&self) -> bool {
        matches!(self.action, Action::Release | Action::Revoke(_))
    }
}

/// Removes admissions that rely on resources which the `failed` servers (by uid) were to release and did not: those on the
/// same nodes, or from the same quotas. They are decided again by the next plan.
pub fn drop_dependents(decisions: Vec<Decision>, failed: &BTreeSet<String>, snapshot: &Snapshot<'_>) -> Vec<Decision> {
    if failed.is_empty() {
        return decisions;
    }
    let by_uid: HashMap<&str, &Server> = snapshot.servers.iter().map(|server| (server.uid.as_str(), *server)).collect();
    // Servers that only leave the queue release nothing.
    let failed = failed.iter().filter_map(|uid| by_uid.get(uid.as_str()).copied());
    let failed: Vec<&Server> = failed.filter(|server| server.is_admitted()).collect();
    let depends = |decision: &Decision, other: &Server| {
        let held = other.admission.as_ref().map(|admission| admission.nodes.as_slice()).unwrap_or_default();
        let team = by_uid.get(decision.uid.as_str()).and_then(|server| server.team.as_ref());
        let same_team = team.is_some() && team == other.team.as_ref();
        same_team
            || decision.namespace == other.namespace
            || decision.admission.nodes.iter().any(|node| held.contains(node))
    };
    let is_valid =
        |decision: &Decision| decision.action != Action::Admit || failed.iter().all(|other| !depends(decision, other));
    decisions.into_iter().filter(is_valid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::QueueIntent;
    use crate::admission::fixtures::{Cluster, gpu_node};

    /// A server of ada leaves the first of three nodes; ada, bob and eve request one each.
    fn turnover() -> Cluster {
        let mut cluster = Cluster::new([gpu_node("n1", 1), gpu_node("n2", 1), gpu_node("n3", 1)])
            .server("leaving", |server| server.admitted(1, &["n1"]).intent(QueueIntent::Stopped))
            .server("bobs", |server| server.owner("bob"))
            .server("adas", |server| server)
            .server("eves", |server| server.owner("eve"));
        for server in &mut cluster.servers {
            server.namespace = format!("dev-{}", server.owner);
        }
        cluster
    }

    #[test]
    fn admissions_that_depend_on_failed_release_are_removed() {
        let cluster = turnover();
        let plan = cluster.plan();
        assert_eq!(plan.decisions.iter().filter(|decision| decision.releases_resources()).count(), 1);
        let all = plan.decisions.clone();
        assert_eq!(drop_dependents(all.clone(), &BTreeSet::new(), &cluster.snapshot()), all);
        let left = drop_dependents(all.clone(), &["uid-leaving".to_owned()].into(), &cluster.snapshot());
        // Neither its node nor its owner's quota; all other decisions remain.
        let is_independent = |decision: &&Decision| {
            decision.action != Action::Admit || decision.name != "adas" && decision.admission.nodes != ["n1"]
        };
        let expect: Vec<Decision> = all.iter().filter(is_independent).cloned().collect();
        assert_eq!(left, expect);
        let admissions =
            |decisions: &[Decision]| decisions.iter().filter(|decision| decision.action == Action::Admit).count();
        assert!(admissions(&all) == 3 && (1..3).contains(&admissions(&left)), "{left:?}");
    }

    #[test]
    fn failed_server_without_nodes_has_no_dependents() {
        let mut cluster = turnover();
        cluster.servers[0].admission = None;
        let all = cluster.plan().decisions;
        assert_eq!(drop_dependents(all.clone(), &["uid-leaving".to_owned()].into(), &cluster.snapshot()), all);
    }
}
