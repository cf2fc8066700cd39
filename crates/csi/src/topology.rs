//! Topology by pool: nodes that share a pool share its id, so volumes can move between them.

use std::collections::HashMap;

use crate::name::PoolId;
use crate::proto::csi::{Topology, TopologyRequirement};

/// Label of the nodes that reach a pool.
pub const POOL_KEY: &str = "csi.odc.dev/pool";

/// Returns the segment of a pool.
pub fn segment(pool: &PoolId) -> Topology {
    Topology { segments: HashMap::from([(POOL_KEY.to_owned(), pool.as_str().to_owned())]) }
}

/// Reports whether a topology includes the pool. One that does not mention pools includes all.
pub fn includes(topology: &Topology, pool: &PoolId) -> bool {
    topology.segments.get(POOL_KEY).is_none_or(|id| id == pool.as_str())
}

/// Reports whether a volume in the pool satisfies a requirement.
pub fn satisfies(requirement: Option<&TopologyRequirement>, pool: &PoolId) -> bool {
    let Some(requirement) = requirement else { return true };
    // The preferred topologies are a subset of the requisite ones, unless there are none.
    let listed = if requirement.requisite.is_empty() { &requirement.preferred } else { &requirement.requisite };
    listed.is_empty() || listed.iter().any(|topology| includes(topology, pool))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(id: &str) -> PoolId {
        id.parse().unwrap()
    }

    fn check(requisite: &[&str], preferred: &[&str], expected: bool) {
        let topologies = |ids: &[&str]| ids.iter().map(|id| segment(&pool(id))).collect();
        let requirement = TopologyRequirement { requisite: topologies(requisite), preferred: topologies(preferred) };
        assert_eq!(satisfies(Some(&requirement), &pool("a")), expected, "{requisite:?} {preferred:?}");
    }

    #[test]
    fn requirement_names_the_pool_or_none() {
        check(&[], &[], true);
        check(&["b", "a"], &["b"], true);
        check(&["b"], &["b"], false);
        check(&[], &["b"], false);
        assert!(satisfies(None, &pool("a")));
        assert!(includes(&Topology::default(), &pool("a")));
    }
}
