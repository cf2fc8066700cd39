//! A simple reference scheduler that tries each second and each set of nodes. It supports devices, cores, zones, gangs,
//! restarting nodes, foreign pods, quotas, arrival and known ends. It finds the earliest start of each server together with the
//! reservations of the servers ahead, and checks the nodes of the plan.

use std::collections::{BTreeMap, BTreeSet};

use odc_core::resources::Resources;
use odc_core::scheduler::{Node, NodeState, RunInfo, Server, ServerState};
use proptest::prelude::*;

use super::harness::{GPU, Harness, ZONE, node, running, server, without_shares};

/// What is free on each node and of the team's quota, at each second from now on.
struct Grid {
    now: i64,
    nodes: Vec<Node>,
    /// Devices and cores; `None` while a node is unschedulable.
    free: Vec<Vec<Option<(i64, i64)>>>,
    quota: Vec<i64>,
}

const HORIZON: usize = 400;
const NOW: i64 = 1_000;
const TEAM: &str = "one";

fn devices_and_cores(amounts: &Resources) -> (i64, i64) {
    (amounts.device(GPU), amounts.cpu)
}

fn lifetime(server: &Server) -> usize {
    usize::try_from(server.max_hold_time.unwrap()).unwrap()
}

impl Grid {
    fn new(harness: &Harness) -> Self {
        let nodes: Vec<Node> = harness.nodes.values().cloned().collect();
        let free = nodes.iter().map(|node| {
            let (devices, cores) = devices_and_cores(&node.capacity.saturating_sub(&node.foreign_usage));
            let available_from = match node.state {
                NodeState::Schedulable => 0,
                NodeState::UnavailableUntil(time) => usize::try_from(time - harness.now).unwrap(),
                NodeState::Unschedulable => HORIZON,
            };
            (0..HORIZON).map(|second| (second >= available_from).then_some((devices, cores))).collect()
        });
        let quota = vec![harness.teams[TEAM].limits.devices.unwrap(); HORIZON];
        let mut grid = Self { now: harness.now, free: free.collect(), nodes, quota };
        for server in harness.servers.values() {
            let Some(run) = running(server) else { continue };
            let nodes: Vec<usize> = run.nodes.iter().map(|(node, _)| grid.index(node)).collect();
            grid.reserve(server, 0, usize::try_from(run.end.unwrap() - harness.now).unwrap(), &nodes);
        }
        grid
    }

    fn index(&self, name: &str) -> usize {
        self.nodes.iter().position(|node| node.name == name).unwrap()
    }

    fn reserve(&mut self, server: &Server, start: usize, duration: usize, nodes: &[usize]) {
        let (devices, cores) = devices_and_cores(&server.request.per_node);
        for node in nodes {
            for (free_devices, free_cores) in self.free[*node].iter_mut().skip(start).take(duration).flatten() {
                (*free_devices, *free_cores) = (*free_devices - devices, *free_cores - cores);
            }
        }
        if server.team.is_some() {
            self.quota.iter_mut().skip(start).take(duration).for_each(|free| *free -= server.request.devices());
        }
    }

    /// Reports whether a server can run on these nodes from a second on.
    fn fits(&self, server: &Server, start: usize, nodes: &[usize]) -> bool {
        let (devices, cores) = devices_and_cores(&server.request.per_node);
        let zones: BTreeSet<_> = nodes.iter().map(|node| &self.nodes[*node].labels[ZONE]).collect();
        let in_same_zone = server.request.topology.is_none() || zones.len() == 1;
        let is_free = |free: &Option<(i64, i64)>| free.is_some_and(|free| free.0 >= devices && free.1 >= cores);
        let fits_on = |node: &usize| self.free[*node].iter().skip(start).take(lifetime(server)).all(is_free);
        let mut quota = self.quota.iter().skip(start).take(lifetime(server));
        let is_allowed = server.team.is_none() || quota.all(|free| *free >= server.request.devices());
        in_same_zone && is_allowed && nodes.iter().all(fits_on)
    }

    /// Returns the first second at which the server fits on any set of nodes.
    fn earliest_start(&self, server: &Server) -> Option<usize> {
        let all = 0_u32..1 << self.nodes.len();
        let sets: Vec<Vec<usize>> = all
            .filter(|set| set.count_ones() == server.request.nodes)
            .map(|set| (0..self.nodes.len()).filter(|node| set >> node & 1 == 1).collect())
            .collect();
        (0..HORIZON / 2).find(|start| sets.iter().any(|set| self.fits(server, *start, set)))
    }
}

type PendingParams = (i64, i64, i64, u32, bool, bool);

fn pending_server(number: usize, (gpus, cores, lifetime, nodes, zone, team): PendingParams) -> Server {
    let mut pending = server(&format!("w{number}"), gpus, lifetime, i64::try_from(number).unwrap());
    (pending.request.nodes, pending.request.per_node.cpu) = (nodes, cores);
    pending.request.topology = zone.then(|| ZONE.to_owned());
    pending.team = team.then(|| TEAM.to_owned());
    pending
}

prop_compose! {
    fn any_harness()(
        nodes in prop::collection::vec((1..=4_i64, 2..=6_i64, 0..2_usize, 0..=1_i64, prop::option::weighted(0.2, 1..25_i64)), 1..=4),
        running in prop::collection::vec((0..4_usize, 1..=4_i64, 0..=3_i64, 1..20_i64, any::<bool>()), 0..5),
        pending in prop::collection::vec((1..=4_i64, 0..=3_i64, 1..15_i64, 1..=3_u32, any::<bool>(), any::<bool>()), 1..=5),
        quota in 2..=12_i64,
    ) -> Harness {
        let mut harness = Harness::new(without_shares());
        harness.now = NOW;
        harness.team(TEAM, Some(quota), Some(0));
        for (number, (gpus, cores, zone, foreign, restart)) in nodes.iter().enumerate() {
            let mut node = node(&format!("n{number}"), *gpus, ["a", "b"][*zone]);
            node.capacity.cpu = *cores;
            node.foreign_usage = Resources::default().with_device(GPU, *foreign);
            node.state = restart.map_or(NodeState::Schedulable, |after| NodeState::UnavailableUntil(NOW + after));
            harness.node(node);
        }
        let mut free: Vec<(i64, i64)> =
            nodes.iter().map(|(gpus, cores, _, foreign, _)| (*gpus - *foreign, *cores)).collect();
        for (number, (node, gpus, cores, lifetime, team)) in running.into_iter().enumerate() {
            let Some(free) = free.get_mut(node).filter(|free| free.0 >= gpus && free.1 >= cores) else { continue };
            *free = (free.0 - gpus, free.1 - cores);
            let mut running = server(&format!("r{number}"), gpus, lifetime, 0);
            running.request.per_node.cpu = cores;
            running.team = team.then(|| TEAM.to_owned());
            let nodes = vec![(format!("n{node}"), running.request.per_node.clone())];
            running.state = ServerState::Running(RunInfo { nodes, started_at: 990, end: Some(NOW + lifetime), terminating: false });
            harness.put(running);
        }
        for (number, params) in pending.into_iter().enumerate() {
            harness.put(pending_server(number, params));
        }
        harness
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Each planned start is the earliest that overlaps no server ahead, and the reserved nodes are free.
    #[test]
    fn planned_starts_are_earliest(mut harness in any_harness()) {
        let plan = harness.plan();
        let mut grid = Grid::new(&harness);
        let assigned = plan.assignments.iter().map(|assignment| (assignment.id.clone(), (harness.now, assignment.nodes.clone())));
        let reserved = harness.state.reservations().map(|reservation| (reservation.server, (reservation.start, reservation.nodes)));
        let planned: BTreeMap<String, (i64, Vec<String>)> = assigned.chain(reserved).collect();
        let starts: BTreeMap<&str, Option<i64>> = plan.pending.iter().map(|pending| (pending.id.as_str(), pending.planned_start)).collect();
        let mut pending: Vec<&Server> =
            harness.servers.values().filter(|server| server.state == ServerState::Pending).collect();
        pending.sort_by_key(|server| server.queued_at);
        for server in pending {
            let expect = grid.earliest_start(server).map(|start| grid.now + i64::try_from(start).unwrap());
            let found = planned.get(&server.id);
            prop_assert_eq!(found.map(|(start, _)| *start), expect, "{}", server.id);
            prop_assert_eq!(starts.get(server.id.as_str()).copied().unwrap_or(Some(grid.now)), expect, "{}", server.id);
            let Some((start, nodes)) = found else { continue };
            let start = usize::try_from(start - grid.now).unwrap();
            let nodes: BTreeSet<usize> = nodes.iter().map(|node| grid.index(node)).collect();
            let nodes: Vec<usize> = nodes.into_iter().collect();
            prop_assert_eq!(nodes.len(), server.request.nodes(), "{}", server.id);
            prop_assert!(grid.fits(server, start, &nodes), "{} on {:?}", server.id, nodes);
            grid.reserve(server, start, lifetime(server), &nodes);
        }
    }
}
