//! No starvation: requests with every advantage are created as fast as they start, against one request with none.

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{AccountSpec, DecayedUsage, Event, Policy, Server, ServerState};
use odc_core::sim::Rng;

use super::checked_step::ExtraChecks;
use super::harness::{Effort, Harness, node, running, server};

const NODES: i64 = 4;
const DEVICES: i64 = 8;
/// The maximum lifetime of the adversary's servers, including extensions.
const MAX_LIFETIME: i64 = 1_800;
/// The number of its pending servers at any time.
const PENDING: usize = 12;
/// The maximum number of devices of its servers.
const MAX_DEVICES: i64 = 4;

fn policy() -> Policy {
    Policy { priority_aging_interval: 3_600, preempt_exempt_time: 60, ..Policy::default() }
}

/// Returns the maximum wait. Servers queued three aging intervals later stay behind. Those queued before may be running or
/// pending: their work takes at most twice the time as with full utilization, plus the lifetime of the last one.
fn max_wait(policy: &Policy) -> i64 {
    let (devices, pending) = (NODES * DEVICES, i64::try_from(PENDING).unwrap() * MAX_DEVICES);
    3 * policy.priority_aging_interval + 2 * (devices + pending) * MAX_LIFETIME / devices + MAX_LIFETIME
}

struct Attack {
    rng: Rng,
    harness: Harness,
    created: usize,
}

impl Attack {
    fn new(seed: u64) -> Self {
        let mut harness = Harness::new(policy());
        for number in 0..NODES {
            harness.node(node(&format!("n{number}"), DEVICES, "a"));
        }
        let mut attack = Self { rng: Rng(seed), harness, created: 0 };
        attack.create_servers();
        attack.harness.step(ExtraChecks::default()).unwrap();
        // High usage puts the user behind all others.
        let usage = DecayedUsage { amount: 1 << 50, as_of: 0 };
        attack.harness.apply(Event::User(AccountSpec {
            name: "ada".into(),
            usage: Some(usage),
            ..AccountSpec::default()
        }));
        attack
    }

    /// Creates servers up to the maximum number of pending ones, each of a new user.
    fn create_servers(&mut self) {
        let others = self.harness.servers.values().filter(|server| server.owner != "ada");
        let pending = others.filter(|server| server.state == ServerState::Pending).count();
        for _ in pending..PENDING {
            let (gpus, lifetime) = (1 + self.rng.number(4), 60 + self.rng.number(1_140));
            let lifetime = if self.rng.below(3) == 0 { 60 } else { lifetime };
            let mut new = server(&format!("x{:06}", self.created), gpus.min(MAX_DEVICES), lifetime, self.harness.now);
            (new.owner, new.priority) = (format!("user-{}", self.created), Priority::High);
            self.created += 1;
            self.harness.put(new);
        }
    }

    /// Extends or deletes a running server.
    fn change(&mut self) {
        let running_servers: Vec<Server> =
            self.harness.servers.values().filter(|server| running(server).is_some()).cloned().collect();
        let Some(mut server) = self.rng.choose(&running_servers).filter(|server| server.owner != "ada").cloned() else {
            return;
        };
        match (self.rng.below(8), &mut server.state) {
            (0, _) => self.harness.remove(&server.id),
            (1, ServerState::Running(run))
                if server.max_hold_time.is_some_and(|lifetime| lifetime + 600 <= MAX_LIFETIME) =>
            {
                run.end = run.end.map(|end| end + 600);
                server.max_hold_time = server.max_hold_time.map(|hold_time| hold_time + 600);
                self.harness.put(server);
            }
            _ => {}
        }
    }

    /// Advances to the next end, or the next time at which the order may change.
    fn advance(&mut self, requeue_at: Option<i64>) {
        let end = self.harness.servers.values().filter_map(|server| running(server)?.end).min();
        let requeue_at = requeue_at.filter(|time| *time > self.harness.now);
        self.harness.now = end.into_iter().chain(requeue_at).min().unwrap();
        self.harness.expire();
    }

    /// Runs a server to its end. Returns the duration of each of its waits.
    fn run_against(&mut self, request: Server) -> Vec<i64> {
        let (id, queued_at) = (request.id.clone(), request.queued_at);
        let late = queued_at + 3 * self.harness.policy.priority_aging_interval;
        self.harness.put(request);
        let (mut waits, mut pending_since) = (Vec::new(), Some(queued_at));
        while let Some(server) = self.harness.servers.get(&id).cloned() {
            self.create_servers();
            self.change();
            let plan =
                self.harness.step(ExtraChecks { second_plan: false, backfill: self.rng.below(16) == 0 }).unwrap();
            if let Some(pending) = plan.pending.iter().find(|pending| pending.id == id) {
                pending_since = pending_since.or(Some(self.harness.now));
                // The precedence of each assignment is checked with the plan; these must be backfilled.
                let after =
                    plan.assignments.iter().filter(|assignment| self.harness.servers[&assignment.id].queued_at >= late);
                for assignment in after {
                    assert!(assignment.backfilled, "{assignment:?} overtook {pending:?} at {}", self.harness.now);
                }
            } else if server.state == ServerState::Pending {
                // A server that was preempted and starts again at once did not wait.
                waits.push(pending_since.take().map_or(0, |since| self.harness.now - since));
            }
            self.advance(plan.requeue_at);
            assert!(self.harness.now < queued_at + 100 * late, "{id} does not end");
        }
        waits
    }
}

fn low(gpus: i64, nodes: u32, now: i64) -> Server {
    let mut low = server("low", gpus, 1_200, now);
    (low.priority, low.request.nodes) = (Priority::Low, nodes);
    low
}

fn seeds() -> u64 {
    match Effort::from_env() {
        Effort::Quick => 2,
        Effort::Default => 10,
        Effort::Full => 200,
    }
}

#[test]
fn large_low_priority_server_starts_within_bound() {
    for seed in 1..=seeds() {
        let mut attack = Attack::new(seed);
        let waits = attack.run_against(low(DEVICES, 1, attack.harness.now + 1));
        assert!(matches!(waits[..], [wait] if wait <= max_wait(&policy())), "seed {seed}: {waits:?}");
        // It was overtaken by many servers while they had precedence.
        assert!(
            waits[0] > policy().priority_aging_interval && attack.created > 100,
            "seed {seed}: {waits:?}, {} created",
            attack.created
        );
    }
}

#[test]
fn low_priority_gang_starts_within_bound() {
    for seed in 1..=seeds() {
        let mut attack = Attack::new(seed);
        let waits = attack.run_against(low(DEVICES, 3, attack.harness.now + 1));
        assert!(matches!(waits[..], [wait] if wait <= max_wait(&policy())), "seed {seed}: {waits:?}");
        assert!(
            waits[0] > policy().priority_aging_interval && attack.created > 100,
            "seed {seed}: {waits:?}, {} created",
            attack.created
        );
    }
}

/// The number of preemptions is limited, and each time it keeps its queue position.
#[test]
fn preemptible_low_priority_gang_runs_to_its_end() {
    let policy = policy();
    let mut preempted = 0;
    for seed in 1..=seeds() {
        let mut attack = Attack::new(seed);
        let gang = Server { preemptible: true, ..low(DEVICES, 3, attack.harness.now + 1) };
        let waits = attack.run_against(gang);
        assert!(waits.len() <= usize::try_from(policy.max_preemptions).unwrap() + 1, "seed {seed}: {waits:?}");
        assert!(waits.iter().all(|wait| *wait <= max_wait(&policy)), "seed {seed}: {waits:?}");
        preempted += waits.len() - 1;
    }
    assert!(preempted > 0, "no server was preempted");
}
