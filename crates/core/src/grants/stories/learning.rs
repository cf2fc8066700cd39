//! What is learned from those who come and go, and that it outlives a leader.

use std::time::Duration;

use odc_api::v1alpha1::{DevServerFlavor, DevServerFlavorStatus, Eta, StartPromise, Usage};

use super::super::{Facts, Holder, Plan, Planner};
use super::*;
use crate::scheduler::{Cause, Event, Step};

const HOUR: i64 = 3_600;

fn user(name: &str) -> Holder {
    Holder::User(name.parse().unwrap())
}

/// Ada has a device since the first minute; it is an hour later.
fn running() -> Cluster {
    Cluster::new([gpu_node("n1", 1)]).user_quota("ada", Quota::default()).server("s", |server| Server {
        lifetime: Some(Duration::from_secs(8 * 3_600)),
        ends: Some(time(8 * HOUR + 60)),
        ..server.granted(1, &["n1"])
    })
}

impl Planner {
    fn device_seconds(&self, cluster: &Cluster, of: &Holder) -> i64 {
        self.usage(of, &cluster.policy, cluster.now).device_seconds
    }
}

#[test]
fn use_counts_from_the_grant_and_is_stored_when_somebody_leaves() {
    let (mut cluster, mut planner) = (running(), Planner::default());
    let plan = cluster.plan_with(&mut planner);
    assert!(plan.leaving.is_empty());
    // Nothing was ever stored: 59 minutes, a little faded.
    let used = planner.device_seconds(&cluster, &user("ada"));
    assert!((3_500..=3_540).contains(&used), "{used}");
    cluster.now = time(2 * HOUR);
    cluster.servers[0].want = Want::Rest;
    let plan = cluster.plan_with(&mut planner);
    assert_eq!((plan.decisions[0].what, plan.leaving.iter().cloned().collect()), (What::Release, vec![user("ada")]));
    let stored = planner.usage(&user("ada"), &cluster.policy, cluster.now);
    assert!((7_000..=7_140).contains(&stored.device_seconds), "{stored:?}");
    // The next leader knows as much, and an hour later it is less.
    let mut after = cluster.after(&plan);
    after.now = time(3 * HOUR);
    after.accounts.users.get_mut(&"ada".parse().unwrap()).unwrap().usage = Some(stored.clone());
    let mut next = Planner::default();
    assert!(after.plan_with(&mut next).decisions.is_empty());
    after.plan_with(&mut planner);
    let both = [&planner, &next].map(|planner| planner.device_seconds(&after, &user("ada")));
    assert!((both[0] - both[1]).abs() <= 1 && both[0] < stored.device_seconds, "{both:?}");
}

#[test]
fn a_restart_counts_nothing_twice_and_forgets_nothing() {
    // A day of two servers, one of which left after an hour; the operator restarts at the end.
    let mut cluster = running();
    cluster.nodes.push(gpu_node("n2", 1));
    let mut cluster =
        cluster.server("t", |server| Server { ends: Some(time(90 * HOUR)), ..server.granted(1, &["n2"]) });
    let mut planner = Planner::default();
    cluster.plan_with(&mut planner);
    cluster.servers[0].want = Want::Rest;
    let plan = cluster.plan_with(&mut planner);
    let stored: Usage = planner.usage(&user("ada"), &cluster.policy, cluster.now);
    let mut cluster = cluster.after(&plan);
    cluster.accounts.users.get_mut(&"ada".parse().unwrap()).unwrap().usage = Some(stored);
    cluster.now = time(24 * HOUR);
    cluster.plan_with(&mut planner);
    let mut next = Planner::default();
    cluster.plan_with(&mut next);
    let both = [&planner, &next].map(|planner| planner.device_seconds(&cluster, &user("ada")));
    assert!((both[0] - both[1]).abs() <= 2 && both[0] > 22 * HOUR, "{both:?}");
}

#[test]
fn who_used_more_comes_after_who_used_less() {
    let mut cluster = running().server("adas", |server| server).server("bobs", |server| server.owner("bob"));
    cluster.policy.queue.share_step = 60;
    let order = |cluster: &Cluster| -> Vec<String> {
        let waiting = cluster.plan().decisions.into_iter().filter(|decision| decision.what == What::Wait);
        waiting.map(|decision| decision.name).collect()
    };
    assert_eq!(order(&cluster), ["bobs", "adas"]);
    cluster = cluster.user_quota("bob", Quota::default());
    let usage = Usage { device_seconds: 36_000, at: stored(time(0)) };
    cluster.accounts.users.get_mut(&"bob".parse().unwrap()).unwrap().usage = Some(usage);
    assert_eq!(order(&cluster), ["adas", "bobs"]);
}

#[test]
fn one_that_was_deleted_is_noticed_too() {
    let (mut cluster, mut planner) = (running(), Planner::default());
    cluster.plan_with(&mut planner);
    cluster.servers.clear();
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(plan.leaving.into_iter().collect::<Vec<_>>(), [user("ada")]);
    assert_eq!(planner.learned().len(), 1);
    assert!(cluster.plan_with(&mut planner).leaving.is_empty() && planner.learned().is_empty());
}

#[test]
fn stays_are_learned_from_those_who_leave_and_not_from_those_who_are_sent_away() {
    let (mut cluster, mut planner) = (running(), Planner::default());
    cluster.plan_with(&mut planner);
    cluster.nodes[0].readiness = Readiness::Unready(time(0));
    let plan = cluster.plan_with(&mut planner);
    assert!(matches!(plan.decisions[0].what, What::Revoke(_)));
    let mut cluster = cluster.after(&plan);
    let plan = cluster.plan_with(&mut planner);
    assert!(planner.learned().is_empty());
    // It gets its node back, and leaves after an hour.
    cluster = cluster.after(&plan);
    cluster.nodes[0].readiness = Readiness::Ready;
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(plan.decisions[0].what, What::Grant);
    cluster = cluster.after(&plan);
    cluster.plan_with(&mut planner);
    cluster.now = time(2 * HOUR);
    cluster.servers[0].want = Want::Rest;
    let plan = cluster.plan_with(&mut planner);
    let mut cluster = cluster.after(&plan);
    cluster.plan_with(&mut planner);
    let learned = planner.learned();
    let [(flavor, record)] = &learned[..] else { panic!("{learned:?}") };
    assert_eq!(flavor, "flavor-gpu");
    let counts: u32 = record.stays.iter().flat_map(|stays| &stays.counts).sum();
    assert_eq!(counts, 1);
    // The next leader reads it.
    let mut known = DevServerFlavor::test();
    known.metadata.name = Some(flavor.clone());
    known.status = Some(DevServerFlavorStatus { record: Some(record.clone()), ..DevServerFlavorStatus::default() });
    let mut next = Planner::default();
    plan_knowing(&cluster, &known, &mut next);
    cluster.servers.clear();
    assert!(plan_knowing(&cluster, &known, &mut next).decisions.is_empty() && next.learned().is_empty());
    next.keep_learned(flavor.clone());
    assert_eq!(next.learned(), learned);
}

fn plan_knowing(cluster: &Cluster, flavor: &DevServerFlavor, planner: &mut Planner) -> Plan {
    let facts = Facts { flavors: vec![flavor], ..cluster.world() };
    planner.plan(&facts, &cluster.policy, cluster.now, &mut |_| ())
}

#[test]
fn what_is_promised_first_is_held_against_what_happens() {
    let mut planner = Planner::default();
    let mut cluster = running().server("w", |server| Server { lifetime: Some(Duration::from_secs(3_600)), ..server });
    let plan = cluster.plan_with(&mut planner);
    let said = plan.decisions[0].admission.clone();
    let (Some(Eta { p50, .. }), Some(promise)) = (said.eta, said.promise) else { panic!("{plan:?}") };
    let StartPromise { at, p90, .. } = *promise;
    assert!(at.0 == cluster.now && p50.0 > cluster.now && p90.0 > p50.0);
    cluster = cluster.after(&plan);
    // Much later than anybody expected, the place is free.
    cluster.now = time(200 * HOUR);
    cluster.servers[0].want = Want::Rest;
    let plan = cluster.plan_with(&mut planner);
    let grant = plan.decisions.iter().find(|decision| decision.what == What::Grant).unwrap();
    assert!(grant.admission.promise.is_some() && grant.admission.eta.is_none());
    let mut cluster = cluster.after(&plan);
    planner.learned();
    cluster.plan_with(&mut planner);
    let learned = planner.learned();
    let kept = learned[0].1.promises.clone().unwrap();
    assert_eq!((kept.given, kept.kept50, kept.kept90), (1, 0, 0));
    // It is counted once.
    cluster.now = time(201 * HOUR);
    cluster.plan_with(&mut planner);
    assert!(planner.learned().is_empty());
}

#[test]
fn one_that_lived_through_everything_decides_as_one_that_has_just_begun() {
    let mut planner = Planner::default();
    let mut cluster = running().server("w", |server| Server { lifetime: Some(Duration::from_secs(3_600)), ..server });
    for step in 0..40 {
        match step % 5 {
            0 => cluster = cluster.server(&format!("s{step}"), |server| server.since(step)),
            1 => cluster.nodes.push(gpu_node(&format!("m{step}"), 2)),
            2 => cluster.servers[usize::try_from(step).unwrap() / 5].want = Want::Rest,
            3 => drop(cluster.nodes.remove(0)),
            _ => cluster = cluster.user_quota("ada", Quota { devices: Some(3), ..Quota::default() }),
        }
        cluster.now = time(HOUR + step * 60);
        let (lived, new) = (cluster.plan_with(&mut planner), cluster.plan());
        let what = |plan: &Plan| -> Vec<(String, What, Vec<String>)> {
            let short = plan.decisions.iter().filter(|decision| decision.what != What::Wait);
            short.map(|decision| (decision.uid.clone(), decision.what, decision.admission.nodes.clone())).collect()
        };
        assert_eq!(what(&lived), what(&new), "step {step}");
        cluster = cluster.after(&lived);
    }
}

#[test]
fn what_is_promised_first_stays_when_nobody_can_say_a_time_for_a_while() {
    let waits = |server: Server| Server { lifetime: Some(Duration::from_secs(3_600)), ..server };
    let cluster = running().server("w", waits);
    let plan = cluster.plan();
    let mut cluster = cluster.after(&plan);
    let first = cluster.servers[1].admission.as_ref().unwrap().promise.clone();
    assert!(first.is_some());
    cluster.servers[0].ends = None;
    cluster.now = time(2 * HOUR);
    let plan = cluster.plan();
    let after = cluster.after(&plan);
    let said = after.servers[1].admission.as_ref().unwrap();
    assert_eq!((said.eta.clone(), said.promise.clone()), (None, first));
}

#[test]
fn planned_starts_outlive_the_leader_that_gave_them() {
    // Two that wait for one of two equal nodes each; the second one's node is free first in the order of names.
    let runs = |node: &'static str| {
        move |server: Server| Server { ends: Some(time(8 * HOUR)), ..server.gpus(8).granted(1, &[node]) }
    };
    let waits = |since| {
        move |server: Server| Server { lifetime: Some(Duration::from_secs(3_600)), ..server.gpus(8).since(since) }
    };
    let cluster = Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
        .server("a", runs("n1"))
        .server("b", runs("n2"))
        .server("first", waits(10))
        .server("second", waits(20));
    let plan = cluster.plan();
    let cluster = cluster.after(&plan);
    let planned =
        |cluster: &Cluster, at: usize| cluster.servers[at].admission.as_ref().unwrap().planned.clone().unwrap();
    assert_eq!(planned(&cluster, 2).nodes.len(), 1);
    assert_ne!(planned(&cluster, 2).nodes, planned(&cluster, 3).nodes);
    // Told the other way round, the next leader keeps to what was said: it would have chosen otherwise.
    let mut swapped = cluster.clone();
    let (one, two) = (planned(&cluster, 2), planned(&cluster, 3));
    swapped.servers[2].admission.as_mut().unwrap().planned = Some(two.clone());
    swapped.servers[3].admission.as_mut().unwrap().planned = Some(one);
    let mut next = Planner::default();
    assert!(swapped.plan_with(&mut next).moved.is_empty());
    assert_eq!(next.outlook().planned().remove("uid-first"), Some(two));
    // What cannot be kept moves, and says that nobody saw why.
    swapped.servers[0].ends = Some(time(20 * HOUR));
    swapped.servers[1].ends = Some(time(30 * HOUR));
    let moved = swapped.plan().moved;
    assert_eq!(moved.iter().map(|moved| moved.why).collect::<Vec<_>>(), [Cause::Inherited; 2]);
}

#[test]
fn what_became_of_a_promise_is_recorded() {
    let mut planner = Planner::default();
    let mut cluster = running().server("w", |server| Server { lifetime: Some(Duration::from_secs(3_600)), ..server });
    let plan = cluster.plan_with(&mut planner);
    cluster = cluster.after(&plan);
    cluster.now = time(2 * HOUR);
    cluster.servers[0].want = Want::Rest;
    let plan = cluster.plan_with(&mut planner);
    let cluster = cluster.after(&plan);
    let mut waited = Vec::new();
    planner.plan(&cluster.world(), &cluster.policy, cluster.now, &mut |step| {
        if let Step::Told { event: Event::Waited { flavor, waited: time, .. }, .. } = step {
            waited.push((flavor.clone(), *time));
        }
    });
    assert_eq!(waited, [("flavor-gpu".to_owned(), HOUR)]);
}
