//! Observed usage, runtimes and waits, and how they survive a leader change.

use std::time::Duration;

use odc_api::v1alpha1::{DevServerFlavor, DevServerFlavorStatus, Eta, StartEstimate, Usage};

use super::super::{AccountRef, Plan, Planner, Snapshot, stored_history};
use super::*;
use crate::scheduler::{DelayCause, Event, TraceRecord};

const HOUR: i64 = 3_600;

fn user(name: &str) -> AccountRef {
    AccountRef::User(name.parse().unwrap())
}

/// Returns a server of ada that uses a device since the first minute, an hour later.
fn running() -> Cluster {
    Cluster::new([gpu_node("n1", 1)]).user_quota("ada", Quota::default()).server("s", |server| Server {
        max_hold_time: Some(Duration::from_secs(8 * 3_600)),
        release_time: Some(time(8 * HOUR + 60)),
        ..server.admitted(1, &["n1"])
    })
}

impl Planner {
    fn device_seconds(&self, cluster: &Cluster, account: &AccountRef) -> i64 {
        self.usage(account, &cluster.policy, cluster.now).device_seconds
    }
}

#[test]
fn usage_counts_from_admission_and_is_stored_at_release() {
    let (mut cluster, mut planner) = (running(), Planner::default());
    let plan = cluster.plan_with(&mut planner);
    assert!(plan.released_accounts.is_empty());
    // Nothing was stored: 59 minutes, slightly decayed.
    let used = planner.device_seconds(&cluster, &user("ada"));
    assert!((3_500..=3_540).contains(&used), "{used}");
    cluster.now = time(2 * HOUR);
    cluster.servers[0].intent = QueueIntent::Stopped;
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(
        (plan.decisions[0].action, plan.released_accounts.iter().cloned().collect()),
        (Action::Release, vec![user("ada")])
    );
    let stored = planner.usage(&user("ada"), &cluster.policy, cluster.now);
    assert!((7_000..=7_140).contains(&stored.device_seconds), "{stored:?}");
    // The next leader computes the same, and an hour later it has decayed.
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
fn usage_is_the_same_after_restart() {
    // Two servers run for a day, one of which ends after an hour; then the operator restarts.
    let mut cluster = running();
    cluster.nodes.push(gpu_node("n2", 1));
    let mut cluster =
        cluster.server("t", |server| Server { release_time: Some(time(90 * HOUR)), ..server.admitted(1, &["n2"]) });
    let mut planner = Planner::default();
    cluster.plan_with(&mut planner);
    cluster.servers[0].intent = QueueIntent::Stopped;
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
fn account_with_lower_usage_goes_first() {
    let mut cluster = running().server("adas", |server| server).server("bobs", |server| server.owner("bob"));
    cluster.policy.scheduler.fair_share_resolution = 60;
    let order = |cluster: &Cluster| -> Vec<String> {
        let pending = cluster.plan().decisions.into_iter().filter(|decision| decision.action == Action::UpdatePending);
        pending.map(|decision| decision.name).collect()
    };
    assert_eq!(order(&cluster), ["bobs", "adas"]);
    cluster = cluster.user_quota("bob", Quota::default());
    let usage = Usage { device_seconds: 36_000, at: to_api_precision(time(0)) };
    cluster.accounts.users.get_mut(&"bob".parse().unwrap()).unwrap().usage = Some(usage);
    assert_eq!(order(&cluster), ["adas", "bobs"]);
}

#[test]
fn deleted_server_releases_its_accounts() {
    let (mut cluster, mut planner) = (running(), Planner::default());
    cluster.plan_with(&mut planner);
    cluster.servers.clear();
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(plan.released_accounts.into_iter().collect::<Vec<_>>(), [user("ada")]);
    assert_eq!(planner.take_dirty_histories().len(), 1);
    assert!(cluster.plan_with(&mut planner).released_accounts.is_empty() && planner.take_dirty_histories().is_empty());
}

#[test]
fn runtime_is_observed_at_release_but_not_at_revocation() {
    let (mut cluster, mut planner) = (running(), Planner::default());
    cluster.plan_with(&mut planner);
    cluster.nodes[0].readiness = Readiness::Unready(time(0));
    let plan = cluster.plan_with(&mut planner);
    assert!(matches!(plan.decisions[0].action, Action::Revoke(_)));
    let mut cluster = cluster.after(&plan);
    let plan = cluster.plan_with(&mut planner);
    assert!(planner.take_dirty_histories().is_empty());
    // It is admitted again, and stops after an hour.
    cluster = cluster.after(&plan);
    cluster.nodes[0].readiness = Readiness::Ready;
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(plan.decisions[0].action, Action::Admit);
    cluster = cluster.after(&plan);
    cluster.plan_with(&mut planner);
    cluster.now = time(2 * HOUR);
    cluster.servers[0].intent = QueueIntent::Stopped;
    let plan = cluster.plan_with(&mut planner);
    let mut cluster = cluster.after(&plan);
    cluster.plan_with(&mut planner);
    let histories = planner.take_dirty_histories();
    let [(flavor, history)] = &histories[..] else { panic!("{histories:?}") };
    assert_eq!(flavor, "flavor-gpu");
    let counts: u32 = history.runtimes.iter().flat_map(|runtimes| &runtimes.counts).sum();
    assert_eq!(counts, 1);
    // The next leader reads the stored history.
    let mut known = DevServerFlavor::test();
    known.metadata.name = Some(flavor.clone());
    known.status = Some(DevServerFlavorStatus { history: Some(history.clone()), ..DevServerFlavorStatus::default() });
    let mut next = Planner::default();
    plan_with_flavor(&cluster, &known, &mut next);
    cluster.servers.clear();
    assert!(
        plan_with_flavor(&cluster, &known, &mut next).decisions.is_empty() && next.take_dirty_histories().is_empty()
    );
    let restored = next.queue_view().state().history(flavor).map(stored_history::to_stored);
    assert_eq!(restored.as_ref(), Some(history));
}

fn plan_with_flavor(cluster: &Cluster, flavor: &DevServerFlavor, planner: &mut Planner) -> Plan {
    let snapshot = Snapshot { flavors: vec![flavor], ..cluster.snapshot() };
    planner.plan(&snapshot, &cluster.policy, cluster.now, &mut |_| ())
}

#[test]
fn first_estimate_is_compared_with_actual_start() {
    let mut planner = Planner::default();
    let mut cluster =
        running().server("w", |server| Server { max_hold_time: Some(Duration::from_secs(3_600)), ..server });
    let plan = cluster.plan_with(&mut planner);
    let admission = plan.decisions[0].admission.clone();
    let (Some(Eta { p50, .. }), Some(estimate)) = (admission.eta, admission.first_estimate) else { panic!("{plan:?}") };
    let StartEstimate { at, p90, .. } = *estimate;
    assert!(at.0 == cluster.now && p50.0 > cluster.now && p90.0 > p50.0);
    cluster = cluster.after(&plan);
    // The node is free much later than estimated.
    cluster.now = time(200 * HOUR);
    cluster.servers[0].intent = QueueIntent::Stopped;
    let plan = cluster.plan_with(&mut planner);
    let admitted = plan.decisions.iter().find(|decision| decision.action == Action::Admit).unwrap();
    assert!(admitted.admission.first_estimate.is_some() && admitted.admission.eta.is_none());
    let mut cluster = cluster.after(&plan);
    planner.take_dirty_histories();
    cluster.plan_with(&mut planner);
    let histories = planner.take_dirty_histories();
    let calibration = histories[0].1.eta_calibration.clone().unwrap();
    assert_eq!((calibration.estimates, calibration.within_p50, calibration.within_p90), (1, 0, 0));
    // It is counted once.
    cluster.now = time(201 * HOUR);
    cluster.plan_with(&mut planner);
    assert!(planner.take_dirty_histories().is_empty());
}

#[test]
fn long_lived_planner_decides_like_new_planner() {
    let mut planner = Planner::default();
    let mut cluster =
        running().server("w", |server| Server { max_hold_time: Some(Duration::from_secs(3_600)), ..server });
    for step in 0..40 {
        match step % 5 {
            0 => cluster = cluster.server(&format!("s{step}"), |server| server.queued_at(step)),
            1 => cluster.nodes.push(gpu_node(&format!("m{step}"), 2)),
            2 => cluster.servers[usize::try_from(step).unwrap() / 5].intent = QueueIntent::Stopped,
            3 => drop(cluster.nodes.remove(0)),
            _ => cluster = cluster.user_quota("ada", Quota { devices: Some(3), ..Quota::default() }),
        }
        cluster.now = time(HOUR + step * 60);
        let (old, new) = (cluster.plan_with(&mut planner), cluster.plan());
        let decisions = |plan: &Plan| -> Vec<(String, Action, Vec<String>)> {
            let relevant = plan.decisions.iter().filter(|decision| decision.action != Action::UpdatePending);
            relevant.map(|decision| (decision.uid.clone(), decision.action, decision.admission.nodes.clone())).collect()
        };
        assert_eq!(decisions(&old), decisions(&new), "step {step}");
        cluster = cluster.after(&old);
    }
}

#[test]
fn first_estimate_is_kept_without_eta() {
    let pending = |server: Server| Server { max_hold_time: Some(Duration::from_secs(3_600)), ..server };
    let cluster = running().server("w", pending);
    let plan = cluster.plan();
    let mut cluster = cluster.after(&plan);
    let first = cluster.servers[1].admission.as_ref().unwrap().first_estimate.clone();
    assert!(first.is_some());
    cluster.servers[0].release_time = None;
    cluster.now = time(2 * HOUR);
    let plan = cluster.plan();
    let after = cluster.after(&plan);
    let admission = after.servers[1].admission.as_ref().unwrap();
    assert_eq!((admission.eta.clone(), admission.first_estimate.clone()), (None, first));
}

#[test]
fn reservations_survive_leader_change() {
    // Two servers wait for two equal nodes.
    let running_on = |node: &'static str| {
        move |server: Server| Server { release_time: Some(time(8 * HOUR)), ..server.gpus(8).admitted(1, &[node]) }
    };
    let pending = |queued_at| {
        move |server: Server| Server {
            max_hold_time: Some(Duration::from_secs(3_600)),
            ..server.gpus(8).queued_at(queued_at)
        }
    };
    let cluster = Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
        .server("a", running_on("n1"))
        .server("b", running_on("n2"))
        .server("first", pending(10))
        .server("second", pending(20));
    let plan = cluster.plan();
    let cluster = cluster.after(&plan);
    let planned = |cluster: &Cluster, index: usize| {
        cluster.servers[index].admission.as_ref().unwrap().planned_start.clone().unwrap()
    };
    assert_eq!(planned(&cluster, 2).nodes.len(), 1);
    assert_ne!(planned(&cluster, 2).nodes, planned(&cluster, 3).nodes);
    // With swapped nodes, the next leader keeps the stored reservations: it would have chosen differently.
    let mut swapped = cluster.clone();
    let (one, two) = (planned(&cluster, 2), planned(&cluster, 3));
    swapped.servers[2].admission.as_mut().unwrap().planned_start = Some(two.clone());
    swapped.servers[3].admission.as_mut().unwrap().planned_start = Some(one);
    let mut next = Planner::default();
    assert!(swapped.plan_with(&mut next).delayed.is_empty());
    assert_eq!(next.queue_view().planned_starts().remove("uid-first"), Some(two));
    // Reservations that are impossible now are delayed with the cause LeaderChanged.
    swapped.servers[0].release_time = Some(time(20 * HOUR));
    swapped.servers[1].release_time = Some(time(30 * HOUR));
    let delayed = swapped.plan().delayed;
    assert_eq!(delayed.iter().map(|delayed| delayed.cause).collect::<Vec<_>>(), [DelayCause::LeaderChanged; 2]);
}

#[test]
fn completed_wait_is_traced() {
    let mut planner = Planner::default();
    let mut cluster =
        running().server("w", |server| Server { max_hold_time: Some(Duration::from_secs(3_600)), ..server });
    let plan = cluster.plan_with(&mut planner);
    cluster = cluster.after(&plan);
    cluster.now = time(2 * HOUR);
    cluster.servers[0].intent = QueueIntent::Stopped;
    let plan = cluster.plan_with(&mut planner);
    let cluster = cluster.after(&plan);
    let mut waits = Vec::new();
    planner.plan(&cluster.snapshot(), &cluster.policy, cluster.now, &mut |record| {
        if let TraceRecord::Event { event: Event::WaitCompleted { flavor, wait: time, .. }, .. } = record {
            waits.push((flavor.clone(), *time));
        }
    });
    assert_eq!(waits, [("flavor-gpu".to_owned(), HOUR)]);
}
