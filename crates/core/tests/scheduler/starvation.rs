//! Nobody waits for ever: an adversary who sends requests with every advantage for the whole run, as fast as they start,
//! against one request with none.

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{Account, Event, Policy, Server, State, Used};
use odc_core::sim::Dice;

use super::harness::{Effort, Harness, node, running, server};
use super::live::Also;

const NODES: i64 = 4;
const DEVICES: i64 = 8;
/// How long the adversary's requests stay at most, extensions included.
const LONGEST: i64 = 1_800;
/// How many of them wait at any time, and their largest size.
const WAITING: usize = 12;
const LARGEST: i64 = 4;

fn policy() -> Policy {
    Policy { ageing: 3_600, least_run: 60, ..Policy::default() }
}

/// Whoever asks three levels of ageing later comes after it. Those who asked before may still run or wait then: as much
/// work as this, done in twice the time it would take if all devices were always used, and the last of them stays for as
/// long as it may.
fn bound(policy: &Policy) -> i64 {
    let (all, waiting) = (NODES * DEVICES, i64::try_from(WAITING).unwrap() * LARGEST);
    3 * policy.ageing + 2 * (all + waiting) * LONGEST / all + LONGEST
}

struct Attack {
    dice: Dice,
    harness: Harness,
    sent: usize,
}

impl Attack {
    fn begin(seed: u64) -> Self {
        let mut harness = Harness::new(policy());
        for number in 0..NODES {
            harness.node(node(&format!("n{number}"), DEVICES, "a"));
        }
        let mut attack = Self { dice: Dice(seed), harness, sent: 0 };
        attack.send();
        attack.harness.live(Also::default()).unwrap();
        // Who has used much has no advantage among equals.
        let used = Used { amount: 1 << 50, at: 0 };
        attack.harness.tell(Event::User(Account { name: "ada".into(), used: Some(used), ..Account::default() }));
        attack
    }

    /// As many as may wait, each of somebody who never used anything.
    fn send(&mut self) {
        let others = self.harness.servers.values().filter(|server| server.owner != "ada");
        let waiting = others.filter(|server| server.state == State::Waiting).count();
        for _ in waiting..WAITING {
            let (gpus, life) = (1 + self.dice.number(4), 60 + self.dice.number(1_140));
            let life = if self.dice.roll(3) == 0 { 60 } else { life };
            let mut new = server(&format!("x{:06}", self.sent), gpus.min(LARGEST), life, self.harness.now);
            (new.owner, new.priority) = (format!("fresh-{}", self.sent), Priority::High);
            self.sent += 1;
            self.harness.put(new);
        }
    }

    /// Somebody who runs stays longer, or leaves early.
    fn change(&mut self) {
        let runs: Vec<Server> =
            self.harness.servers.values().filter(|server| running(server).is_some()).cloned().collect();
        let Some(mut server) = self.dice.pick(&runs).filter(|server| server.owner != "ada").cloned() else { return };
        match (self.dice.roll(8), &mut server.state) {
            (0, _) => self.harness.remove(&server.id),
            (1, State::Running(run)) if server.lifetime.is_some_and(|life| life + 600 <= LONGEST) => {
                run.end = run.end.map(|end| end + 600);
                server.lifetime = server.lifetime.map(|life| life + 600);
                self.harness.put(server);
            }
            _ => {}
        }
    }

    /// Until the next end, or the next moment at which the order may change.
    fn pass(&mut self, again: Option<i64>) {
        let end = self.harness.servers.values().filter_map(|server| running(server)?.end).min();
        let again = again.filter(|again| *again > self.harness.now);
        self.harness.now = end.into_iter().chain(again).min().unwrap();
        self.harness.expire();
    }

    /// How long a request has to wait each time it does, until it has run to its end.
    fn against(&mut self, request: Server) -> Vec<i64> {
        let (id, came) = (request.id.clone(), request.queued);
        let late = came + 3 * self.harness.policy.ageing;
        self.harness.put(request);
        let (mut waits, mut waits_since) = (Vec::new(), Some(came));
        while let Some(server) = self.harness.servers.get(&id).cloned() {
            self.send();
            self.change();
            let plan = self.harness.live(Also { second: false, undelayed: self.dice.roll(16) == 0 }).unwrap();
            if let Some(wait) = plan.waits.iter().find(|wait| wait.id == id) {
                waits_since = waits_since.or(Some(self.harness.now));
                // That every grant behind it has its right is checked with the plan: these can only be backfilled.
                let after = plan.grants.iter().filter(|grant| self.harness.servers[&grant.id].queued >= late);
                for grant in after {
                    assert!(grant.backfilled, "{grant:?} came before {wait:?} at {}", self.harness.now);
                }
            } else if server.state == State::Waiting {
                // One that left and starts again at once did not wait.
                waits.push(waits_since.take().map_or(0, |since| self.harness.now - since));
            }
            self.pass(plan.again);
            assert!(self.harness.now < came + 100 * late, "{id} does not come to its end");
        }
        waits
    }
}

fn low(gpus: i64, nodes: u32, now: i64) -> Server {
    let mut low = server("low", gpus, 1_200, now);
    (low.priority, low.ask.nodes) = (Priority::Low, nodes);
    low
}

fn seeds() -> u64 {
    match Effort::asked() {
        Effort::Quick => 2,
        Effort::Whole => 10,
        Effort::Full => 200,
    }
}

#[test]
fn a_large_request_of_low_priority_starts_within_the_bound() {
    for seed in 1..=seeds() {
        let mut attack = Attack::begin(seed);
        let waits = attack.against(low(DEVICES, 1, attack.harness.now + 1));
        assert!(matches!(waits[..], [wait] if wait <= bound(&policy())), "seed {seed}: {waits:?}");
        // The attack is one: it was overtaken by many, for as long as that is anybody's right.
        assert!(waits[0] > policy().ageing && attack.sent > 100, "seed {seed}: {waits:?}, {} came", attack.sent);
    }
}

#[test]
fn a_gang_of_low_priority_starts_within_the_bound() {
    for seed in 1..=seeds() {
        let mut attack = Attack::begin(seed);
        let waits = attack.against(low(DEVICES, 3, attack.harness.now + 1));
        assert!(matches!(waits[..], [wait] if wait <= bound(&policy())), "seed {seed}: {waits:?}");
        assert!(waits[0] > policy().ageing && attack.sent > 100, "seed {seed}: {waits:?}, {} came", attack.sent);
    }
}

/// Whoever may be asked to leave is, but not for ever, and has its place again each time.
#[test]
fn a_preemptible_gang_of_low_priority_runs_to_its_end() {
    let policy = policy();
    let mut preempted = 0;
    for seed in 1..=seeds() {
        let mut attack = Attack::begin(seed);
        let gang = Server { preemptible: true, ..low(DEVICES, 3, attack.harness.now + 1) };
        let waits = attack.against(gang);
        assert!(waits.len() <= usize::try_from(policy.most_preemptions).unwrap() + 1, "seed {seed}: {waits:?}");
        assert!(waits.iter().all(|wait| *wait <= bound(&policy)), "seed {seed}: {waits:?}");
        preempted += waits.len() - 1;
    }
    assert!(preempted > 0, "nobody was ever asked to leave");
}
