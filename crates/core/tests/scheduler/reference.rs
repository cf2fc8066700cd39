//! A second scheduler, second by second and with every set of nodes tried, too simple to be wrong. It knows devices,
//! cores, zones, gangs, nodes that restart, other people's pods, quotas, arrival and known ends. For every server it looks
//! for the first start there is beside what the plan keeps for those ahead of it, on the nodes the plan says.

use std::collections::{BTreeMap, BTreeSet};

use odc_core::amounts::Amounts;
use odc_core::scheduler::{Node, Running, Server, Service, State};
use proptest::prelude::*;

use super::harness::{GPU, Harness, ZONE, node, running, server, without_shares};

/// What nobody has, on each node and of the team's quota, at each second from now on.
struct Grid {
    now: i64,
    nodes: Vec<Node>,
    /// Devices and cores; nothing while a node takes nobody.
    free: Vec<Vec<Option<(i64, i64)>>>,
    quota: Vec<i64>,
}

const HORIZON: usize = 400;
const NOW: i64 = 1_000;
const TEAM: &str = "one";

fn needs(amounts: &Amounts) -> (i64, i64) {
    (amounts.device(GPU), amounts.cpu)
}

fn span(server: &Server) -> usize {
    usize::try_from(server.lifetime.unwrap()).unwrap()
}

impl Grid {
    fn of(harness: &Harness) -> Self {
        let nodes: Vec<Node> = harness.nodes.values().cloned().collect();
        let free = nodes.iter().map(|node| {
            let (devices, cores) = needs(&node.capacity.minus(&node.others));
            let back = match node.service {
                Service::Open => 0,
                Service::Back(at) => usize::try_from(at - harness.now).unwrap(),
                Service::Closed => HORIZON,
            };
            (0..HORIZON).map(|second| (second >= back).then_some((devices, cores))).collect()
        });
        let quota = vec![harness.teams[TEAM].limits.devices.unwrap(); HORIZON];
        let mut grid = Self { now: harness.now, free: free.collect(), nodes, quota };
        for server in harness.servers.values() {
            let Some(run) = running(server) else { continue };
            let on: Vec<usize> = run.on.iter().map(|(node, _)| grid.number(node)).collect();
            grid.take(server, 0, usize::try_from(run.end.unwrap() - harness.now).unwrap(), &on);
        }
        grid
    }

    fn number(&self, name: &str) -> usize {
        self.nodes.iter().position(|node| node.name == name).unwrap()
    }

    fn take(&mut self, server: &Server, from: usize, span: usize, nodes: &[usize]) {
        let (devices, cores) = needs(&server.ask.each);
        for node in nodes {
            for (free_devices, free_cores) in self.free[*node].iter_mut().skip(from).take(span).flatten() {
                (*free_devices, *free_cores) = (*free_devices - devices, *free_cores - cores);
            }
        }
        if server.team.is_some() {
            self.quota.iter_mut().skip(from).take(span).for_each(|left| *left -= server.ask.devices());
        }
    }

    /// Whether a server can be on these nodes from a second on, all of its time.
    fn fits(&self, server: &Server, at: usize, nodes: &[usize]) -> bool {
        let (devices, cores) = needs(&server.ask.each);
        let zones: BTreeSet<_> = nodes.iter().map(|node| &self.nodes[*node].labels[ZONE]).collect();
        let agree = server.ask.topology.is_none() || zones.len() == 1;
        let room = |free: &Option<(i64, i64)>| free.is_some_and(|free| free.0 >= devices && free.1 >= cores);
        let has_room = |node: &usize| self.free[*node].iter().skip(at).take(span(server)).all(room);
        let mut left = self.quota.iter().skip(at).take(span(server));
        let allowed = server.team.is_none() || left.all(|left| *left >= server.ask.devices());
        agree && allowed && nodes.iter().all(has_room)
    }

    /// The first second at which some set of nodes will do.
    fn earliest(&self, server: &Server) -> Option<usize> {
        let all = 0_u32..1 << self.nodes.len();
        let sets: Vec<Vec<usize>> = all
            .filter(|set| set.count_ones() == server.ask.nodes)
            .map(|set| (0..self.nodes.len()).filter(|node| set >> node & 1 == 1).collect())
            .collect();
        (0..HORIZON / 2).find(|at| sets.iter().any(|set| self.fits(server, *at, set)))
    }
}

type Waits = (i64, i64, i64, u32, bool, bool);

fn waiting(number: usize, (gpus, cores, life, nodes, zone, team): Waits) -> Server {
    let mut waiting = server(&format!("w{number}"), gpus, life, i64::try_from(number).unwrap());
    (waiting.ask.nodes, waiting.ask.each.cpu) = (nodes, cores);
    waiting.ask.topology = zone.then(|| ZONE.to_owned());
    waiting.team = team.then(|| TEAM.to_owned());
    waiting
}

prop_compose! {
    fn any_harness()(
        nodes in prop::collection::vec((1..=4_i64, 2..=6_i64, 0..2_usize, 0..=1_i64, prop::option::weighted(0.2, 1..25_i64)), 1..=4),
        running in prop::collection::vec((0..4_usize, 1..=4_i64, 0..=3_i64, 1..20_i64, any::<bool>()), 0..5),
        waits in prop::collection::vec((1..=4_i64, 0..=3_i64, 1..15_i64, 1..=3_u32, any::<bool>(), any::<bool>()), 1..=5),
        quota in 2..=12_i64,
    ) -> Harness {
        let mut harness = Harness::new(without_shares());
        harness.now = NOW;
        harness.team(TEAM, Some(quota), Some(0));
        for (number, (gpus, cores, zone, others, back)) in nodes.iter().enumerate() {
            let mut node = node(&format!("n{number}"), *gpus, ["a", "b"][*zone]);
            node.capacity.cpu = *cores;
            node.others = Amounts::default().with_device(GPU, *others);
            node.service = back.map_or(Service::Open, |after| Service::Back(NOW + after));
            harness.node(node);
        }
        let mut left: Vec<(i64, i64)> = nodes.iter().map(|(gpus, cores, _, others, _)| (*gpus - *others, *cores)).collect();
        for (number, (at, gpus, cores, life, team)) in running.into_iter().enumerate() {
            let Some(free) = left.get_mut(at).filter(|free| free.0 >= gpus && free.1 >= cores) else { continue };
            *free = (free.0 - gpus, free.1 - cores);
            let mut running = server(&format!("r{number}"), gpus, life, 0);
            running.ask.each.cpu = cores;
            running.team = team.then(|| TEAM.to_owned());
            let on = vec![(format!("n{at}"), running.ask.each.clone())];
            running.state = State::Running(Running { on, since: 990, end: Some(NOW + life), leaving: false });
            harness.put(running);
        }
        for (number, wait) in waits.into_iter().enumerate() {
            harness.put(waiting(number, wait));
        }
        harness
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Each server's start is the earliest there is beside those ahead of it, and it can have the nodes that are kept.
    #[test]
    fn planned_starts_are_the_earliest_there_are(mut harness in any_harness()) {
        let plan = harness.plan();
        let mut grid = Grid::of(&harness);
        let granted = plan.grants.iter().map(|grant| (grant.id.clone(), (harness.now, grant.nodes.clone())));
        let promised = harness.world.promises().map(|promise| (promise.id, (promise.start, promise.nodes)));
        let kept: BTreeMap<String, (i64, Vec<String>)> = granted.chain(promised).collect();
        let told: BTreeMap<&str, Option<i64>> = plan.waits.iter().map(|wait| (wait.id.as_str(), wait.start)).collect();
        let mut waiting: Vec<&Server> =
            harness.servers.values().filter(|server| server.state == State::Waiting).collect();
        waiting.sort_by_key(|server| server.queued);
        for server in waiting {
            let expect = grid.earliest(server).map(|at| grid.now + i64::try_from(at).unwrap());
            let found = kept.get(&server.id);
            prop_assert_eq!(found.map(|(start, _)| *start), expect, "{}", server.id);
            prop_assert_eq!(told.get(server.id.as_str()).copied().unwrap_or(Some(grid.now)), expect, "{}", server.id);
            let Some((start, nodes)) = found else { continue };
            let at = usize::try_from(start - grid.now).unwrap();
            let nodes: BTreeSet<usize> = nodes.iter().map(|node| grid.number(node)).collect();
            let nodes: Vec<usize> = nodes.into_iter().collect();
            prop_assert_eq!(nodes.len(), server.ask.nodes(), "{}", server.id);
            prop_assert!(grid.fits(server, at, &nodes), "{} on {:?}", server.id, nodes);
            grid.take(server, at, span(server), &nodes);
        }
    }
}
