//! Estimated starts of pending servers.

use std::time::Duration;

use super::*;
use crate::admission::Planner;
use crate::admission::queue_view::QuotaOverrides;
use crate::admission::queue_view::{DryRunOutcome, StartChange, StartTime};
use crate::scheduler::DelayCause;

const HOUR: i64 = 3_600;

/// Returns a node that is used by a server for another hour, and a server that waits for it.
fn full_node() -> Cluster {
    Cluster::new([gpu_node("n1", 8)])
        .server("running", |server| Server {
            release_time: Some(time(2 * HOUR)),
            max_hold_time: Some(Duration::from_secs(7_200)),
            ..server.gpus(8).admitted(1, &["n1"])
        })
        .server("pending", |server| Server { max_hold_time: Some(Duration::from_secs(7_200)), ..server.gpus(8) })
}

fn eta(cluster: &Cluster) -> (i64, i64) {
    let admission = cluster.servers[1].admission.as_ref().unwrap();
    let eta = admission.eta.as_ref().unwrap();
    let remaining =
        |at: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time| at.0.as_second() - cluster.now.as_second();
    (remaining(&eta.p50), remaining(&eta.p90))
}

fn apply_plan(cluster: Cluster) -> Cluster {
    let plan = cluster.plan();
    cluster.after(&plan)
}

#[test]
fn pending_server_has_eta_and_latest_start() {
    let (plan, queue) = (full_node().plan(), full_node().queue_view());
    let latest = queue.eta("uid-pending").and_then(|eta| eta.latest);
    assert_eq!(latest, Some(time(2 * HOUR).as_second()));
    let (p50, p90) = eta(&full_node().after(&plan));
    assert!(0 < p50 && p50 <= p90 && p50 <= HOUR, "{p50} {p90}");
}

#[test]
fn eta_is_kept_while_approximately_right() {
    let mut cluster = apply_plan(full_node());
    for seconds in [1, 30, 120] {
        cluster.now = time(HOUR + seconds);
        assert_eq!(cluster.plan().decisions.iter().map(|decision| &decision.name).collect::<Vec<_>>(), [""; 0]);
    }
}

#[test]
fn eta_moves_when_running_server_is_extended() {
    let before = apply_plan(full_node());
    let mut cluster = before.clone();
    cluster.servers[0].release_time = Some(time(10 * HOUR));
    let after = apply_plan(cluster);
    assert!(eta(&after).1 > eta(&before).1, "{:?} {:?}", eta(&before), eta(&after));
}

#[test]
fn delayed_start_keeps_cause_until_delay_ends() {
    let delayed = |planner: &Planner| {
        let positions = planner.queue_view().positions();
        let position = positions.iter().find(|position| position.server.id == "uid-pending").unwrap();
        position.delayed.map(|delayed| (delayed.from, delayed.to, delayed.cause))
    };
    let [first, extended, shortened] = [2, 10, 2].map(|hours| time(hours * HOUR));
    let (mut cluster, mut planner) = (full_node(), Planner::default());
    assert!(cluster.plan_with(&mut planner).delayed.is_empty());
    assert_eq!(delayed(&planner), None);
    cluster.servers[0].release_time = Some(extended);
    let plan = cluster.plan_with(&mut planner);
    let later = Some((first.as_second(), Some(extended.as_second()), DelayCause::RunExtended));
    assert_eq!((plan.delayed.len(), delayed(&planner)), (1, later));
    // The delay is kept while the server is pending, and reported once.
    cluster.now = time(HOUR + 60);
    assert!(cluster.plan_with(&mut planner).delayed.is_empty());
    assert_eq!(delayed(&planner), later);
    cluster.servers[0].release_time = Some(shortened);
    assert!(cluster.plan_with(&mut planner).delayed.is_empty());
    assert_eq!(delayed(&planner), None);
}

#[test]
fn pending_server_has_no_eta_behind_unknown_end() {
    let mut cluster = full_node();
    cluster.servers[0].release_time = None;
    let plan = cluster.plan();
    assert_eq!(cluster.queue_view().eta("uid-pending").map(|eta| eta.latest), None);
    assert!(cluster.after(&plan).servers[1].admission.as_ref().unwrap().eta.is_none());
}

#[test]
fn dry_run_equals_real_request_and_changes_nothing() {
    let mut cluster = full_node();
    let queue = cluster.queue_view();
    let new = Server { max_hold_time: Some(Duration::from_secs(600)), ..Server::test("new", 100).gpus(4) };
    let DryRunOutcome::Pending { position, eta, message, .. } = queue.dry_run(&new, cluster.now) else {
        panic!("the node is full")
    };
    assert_eq!(position, Some(2));
    assert!(message.contains("requires 4 on one node"), "{message}");
    let latest = eta.and_then(|eta| eta.latest).unwrap();
    assert!(queue.positions().iter().all(|position| position.server.id != "uid-new"));
    cluster.servers.push(new);
    let real = cluster.queue_view();
    assert_eq!(real.eta("uid-new").and_then(|eta| eta.latest), Some(latest));

    let empty = Cluster::new([gpu_node("n1", 8)]).queue_view();
    assert_eq!(empty.dry_run(&Server::test("new", 100), cluster.now), DryRunOutcome::Admitted);
}

#[test]
fn dry_run_has_eta_with_empty_queue() {
    let mut cluster = full_node();
    let new = cluster.servers.remove(1);
    let DryRunOutcome::Pending { eta, .. } = cluster.queue_view().dry_run(&new, cluster.now) else {
        panic!("the node is full")
    };
    cluster.servers.push(new);
    assert!(eta.is_some());
    assert_eq!(cluster.queue_view().eta("uid-pending"), eta);
}

#[test]
fn eta_is_the_same_after_queue_was_empty() {
    let (mut cluster, mut planner) = (full_node(), Planner::default());
    let mut etas = Vec::new();
    for _ in 0..2 {
        cluster.plan_with(&mut planner);
        etas.push(planner.queue_view().eta("uid-pending"));
        let pending = cluster.servers.remove(1);
        cluster.plan_with(&mut planner);
        assert_eq!(planner.queue_view().eta("uid-pending"), None);
        cluster.servers.push(pending);
    }
    assert!(etas[0].is_some());
    assert_eq!(etas[0], etas[1]);
}

#[test]
fn positions_are_in_queue_order() {
    let cluster = full_node().server("behind", |server| server.gpus(1));
    let queue = cluster.queue_view();
    let positions: Vec<_> = queue.positions().iter().map(|one| (one.server.id.clone(), one.position)).collect();
    assert_eq!(positions, [("uid-pending".to_owned(), Some(1)), ("uid-behind".to_owned(), Some(2))]);
}

#[test]
fn what_if_reports_changed_starts() {
    let quota = |devices: u32| Quota { devices: Some(devices), ..Quota::default() };
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .team_quota("vision", quota(2))
        .server("running", |server| Server {
            release_time: Some(time(2 * HOUR)),
            max_hold_time: Some(Duration::from_secs(7_200)),
            ..server.gpus(2).team("vision").admitted(1, &["n1"])
        })
        .server("pending", |server| Server {
            max_hold_time: Some(Duration::from_secs(7_200)),
            ..server.gpus(4).team("vision")
        });
    let queue = cluster.queue_view();
    let changes = |team: &str, devices| {
        let quotas =
            QuotaOverrides { teams: [(team.parse().unwrap(), quota(devices))].into(), ..QuotaOverrides::default() };
        let changed = queue.compare_starts(&quotas, cluster.now)?;
        let summary = |change: &StartChange<'_>| (change.server.name.clone(), change.before, change.after);
        Ok::<_, String>(changed.iter().map(summary).collect::<Vec<_>>())
    };
    assert_eq!(changes("vision", 6).unwrap(), [("dev-ada/pending".to_owned(), StartTime::Unknown, StartTime::Now)]);
    let later = StartTime::At(time(2 * HOUR).as_second());
    assert_eq!(changes("vision", 4).unwrap(), [("dev-ada/pending".to_owned(), StartTime::Unknown, later)]);
    assert_eq!(changes("vision", 2).unwrap(), []);
    assert_eq!(changes("audio", 2).unwrap_err(), "Team audio not found.");
}

#[test]
fn changed_number_in_message_is_not_written() {
    let pending = |server: Server| Server { max_hold_time: Some(Duration::from_secs(7_200)), ..server.gpus(8) };
    let running = |gpus: i64, node: &'static str| {
        move |server: Server| Server {
            release_time: Some(time(2 * HOUR)),
            max_hold_time: Some(Duration::from_secs(7_200)),
            ..server.gpus(gpus).admitted(1, &[node])
        }
    };
    let cluster = Cluster::new([gpu_node("n1", 8)]).server("a", running(6, "n1")).server("pending", pending);
    let mut cluster = apply_plan(cluster);
    let written = cluster.servers[1].admission.clone().unwrap();
    assert!(written.message.as_ref().unwrap().as_str().contains("at most 2"), "{written:?}");
    // Another device of the node is used until the same time: position, ETA and reason are the same.
    cluster = cluster.server("b", running(1, "n1"));
    assert!(cluster.plan().decisions.iter().all(|decision| decision.name != "pending"));
}
