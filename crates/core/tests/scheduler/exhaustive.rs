//! All that can happen in a small world: three nodes of four devices, up to five requests, up to eight events. States that
//! differ only in names and in how long ago they were are one.

use std::collections::BTreeSet;

use odc_core::scheduler::{Cause, State};

use super::harness::{Effort, Harness, node, running, server, without_shares};

/// How many events, and requests among them.
fn scope() -> (usize, usize) {
    match Effort::asked() {
        Effort::Quick => (6, 5),
        Effort::Whole => (8, 5),
        Effort::Full => (10, 6),
    }
}

#[derive(Clone, Copy)]
enum Happens {
    /// Devices, seconds, nodes.
    Come(i64, i64, u32),
    /// The first that runs leaves early.
    Leave,
    /// The next end comes.
    End,
    /// The first node goes, or comes back.
    Toggle,
}

const ALL: [Happens; 7] = [
    Happens::Come(1, 100, 1),
    Happens::Come(2, 30, 1),
    Happens::Come(4, 60, 1),
    Happens::Come(4, 50, 2),
    Happens::Leave,
    Happens::End,
    Happens::Toggle,
];

#[derive(Clone)]
struct Case {
    harness: Harness,
    came: usize,
}

impl Case {
    /// Nothing if it cannot happen now, or there would be too many requests.
    fn after(&self, happens: Happens, most: usize) -> Option<Self> {
        let mut next = self.clone();
        let harness = &mut next.harness;
        match happens {
            Happens::Come(gpus, life, nodes) => {
                if self.came >= most {
                    return None;
                }
                harness.now += 1;
                let mut new = server(&format!("s{}", self.came), gpus, life, harness.now);
                new.ask.nodes = nodes;
                harness.put(new);
                next.came += 1;
            }
            Happens::Leave => {
                let id = harness.servers.values().find(|server| running(server).is_some())?.id.clone();
                harness.now += 1;
                harness.remove(&id);
            }
            Happens::End => {
                harness.now = harness.servers.values().filter_map(|server| running(server)?.end).min()?;
                harness.expire();
            }
            Happens::Toggle if harness.nodes["n0"].service == odc_core::scheduler::Service::Open => harness.close("n0"),
            Happens::Toggle => harness.open("n0"),
        }
        harness.expire();
        let plan = harness.plan();
        assert!(plan.moved.iter().all(|moved| moved.why != Cause::Unexplained), "{:?}", plan.moved);
        harness.carry_out(&plan);
        Some(next)
    }

    /// What must hold in every state.
    fn check(&mut self) {
        let key = self.key();
        let harness = &mut self.harness;
        let mut anew = harness.told_anew();
        let second = harness.plan();
        assert!(
            second.grants.is_empty() && second.preemptions.is_empty() && second.moved.is_empty(),
            "{second:?} {key}"
        );
        assert_eq!(anew.plan(&harness.policy, harness.now).waits, second.waits, "{key}");
        // Nobody waits without need: who has nobody ahead starts if there is room.
        if let Some(first) = second.waits.first() {
            assert_ne!(first.stop, odc_core::scheduler::Stop::Behind, "{second:?} {key}");
        }
    }

    /// The state without names and absolute times.
    fn key(&self) -> String {
        let harness = &self.harness;
        let mut servers: Vec<String> = harness
            .servers
            .values()
            .map(|server| {
                let ask = (server.ask.devices(), server.ask.nodes, server.lifetime);
                match &server.state {
                    State::Running(run) => {
                        let nodes: Vec<&String> = run.on.iter().map(|(node, _)| node).collect();
                        format!("{ask:?} on {nodes:?} for {}", run.end.unwrap() - harness.now)
                    }
                    // The order of those who wait is what counts of their arrival.
                    State::Waiting | State::Resting => {
                        format!("{:05} {ask:?} waits", server.queued - harness.now + 9_999)
                    }
                }
            })
            .collect();
        servers.sort();
        format!("{} {:?} {servers:?}", self.came, harness.nodes["n0"].service)
    }
}

#[test]
fn nothing_goes_wrong_in_a_small_world_whatever_happens() {
    let mut harness = Harness::new(without_shares());
    for name in ["n0", "n1", "n2"] {
        harness.node(node(name, 4, "a"));
    }
    let mut cases = vec![Case { harness, came: 0 }];
    let (events, requests) = scope();
    let (mut known, mut seen) = (BTreeSet::new(), 0);
    for _ in 0..events {
        let mut next = Vec::new();
        for mut after in
            cases.iter().flat_map(|case| ALL.into_iter().filter_map(|happens| case.after(happens, requests)))
        {
            seen += 1;
            if known.insert(after.key()) {
                after.check();
                next.push(after);
            }
        }
        cases = next;
    }
    assert!(seen > 1_000, "only {seen} transitions were looked at");
}
