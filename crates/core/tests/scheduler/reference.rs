//! A second scheduler, second by second and with every set of nodes tried, too simple to be wrong. It knows devices,
//! gangs, arrival and known ends, and must come to the same planned starts.

use std::collections::BTreeMap;

use odc_core::scheduler::{Server, State};
use proptest::prelude::*;

use super::harness::{GPU, Harness, node, running, server, without_shares};

/// Free devices on each node at each second from now on.
struct Grid {
    now: i64,
    free: Vec<Vec<i64>>,
}

const HORIZON: usize = 400;

impl Grid {
    fn of(harness: &Harness) -> Self {
        let free = harness.nodes.values().map(|node| {
            let mut free = vec![node.capacity.device(GPU); HORIZON];
            for run in harness.servers.values().filter_map(running) {
                for (_, what) in run.on.iter().filter(|(on, _)| *on == node.name) {
                    let end = usize::try_from(run.end.unwrap() - harness.now).unwrap();
                    free.iter_mut().take(end).for_each(|free| *free -= what.device(GPU));
                }
            }
            free
        });
        Self { now: harness.now, free: free.collect() }
    }

    fn fits(&self, node: usize, at: usize, server: &Server) -> bool {
        let span = usize::try_from(server.lifetime.unwrap()).unwrap();
        let need = server.ask.each.device(GPU);
        self.free[node].iter().skip(at).take(span).all(|free| *free >= need)
    }

    /// The first second at which enough nodes have room for all of the stay.
    fn earliest(&self, server: &Server, from: usize) -> Option<usize> {
        let room = |at: usize| (0..self.free.len()).filter(|node| self.fits(*node, at, server)).count();
        (from..HORIZON / 2).find(|at| room(*at) >= server.ask.nodes())
    }
}

prop_compose! {
    fn any_harness()(
        sizes in prop::collection::vec(1..=4_i64, 1..=3),
        running in prop::collection::vec((0..3_usize, 1..=4_i64, 1..20_i64), 0..4),
        waiting in prop::collection::vec((1..=4_i64, 1..15_i64, 1..=2_u32), 1..=5),
    ) -> Harness {
        let mut harness = Harness::new(without_shares());
        harness.now = 1_000;
        for (number, size) in sizes.iter().enumerate() {
            harness.node(node(&format!("n{number}"), *size, "a"));
        }
        let mut left = sizes.clone();
        for (number, (at, gpus, life)) in running.into_iter().enumerate() {
            let Some(free) = left.get_mut(at).filter(|free| **free >= gpus) else { continue };
            *free -= gpus;
            let mut running = server(&format!("r{number}"), gpus, life, 0);
            let on = vec![(format!("n{at}"), running.ask.each.clone())];
            let end = Some(1_000 + life);
            running.state = State::Running(odc_core::scheduler::Running { on, since: 990, end, leaving: false });
            harness.put(running);
        }
        for (number, (gpus, life, nodes)) in waiting.into_iter().enumerate() {
            let mut waiting = server(&format!("w{number}"), gpus, life, i64::try_from(number).unwrap());
            waiting.ask.nodes = nodes;
            harness.put(waiting);
        }
        harness
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Each server's start is the earliest there is, given where those before it were put.
    #[test]
    fn planned_starts_are_the_earliest_there_are(mut harness in any_harness()) {
        let plan = harness.plan();
        let mut grid = Grid::of(&harness);
        let starts: BTreeMap<&str, Option<i64>> = plan
            .grants
            .iter()
            .map(|grant| (grant.id.as_str(), Some(harness.now)))
            .chain(plan.waits.iter().map(|wait| (wait.id.as_str(), wait.start)))
            .collect();
        let mut waiting: Vec<&Server> =
            harness.servers.values().filter(|server| server.state == State::Waiting).collect();
        waiting.sort_by_key(|server| server.queued);
        for server in waiting {
            let expect = grid.earliest(server, 0);
            let start = starts[server.id.as_str()];
            // Where several nodes will do the choice is the scheduler's, and what comes after depends on it.
            let Some(at) = expect else {
                prop_assert_eq!(start, None, "{} cannot start", server.id);
                continue;
            };
            prop_assert_eq!(start, Some(grid.now + i64::try_from(at).unwrap()), "{}", server.id);
            let mut nodes: Vec<usize> = (0..grid.free.len()).filter(|node| grid.fits(*node, at, server)).collect();
            if nodes.len() > server.ask.nodes() {
                return Ok(());
            }
            nodes.truncate(server.ask.nodes());
            let span = usize::try_from(server.lifetime.unwrap()).unwrap();
            for node in nodes {
                let taken = grid.free[node].iter_mut().skip(at).take(span);
                taken.for_each(|free| *free -= server.ask.each.device(GPU));
            }
        }
    }
}
