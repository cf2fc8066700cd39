//! Preemption and bookings.

use std::time::Duration;

use odc_api::v1alpha1::Priority;

use super::super::{Account, Planner};
use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// Returns a node that is used by a preemptible server, and a server with higher priority.
fn full_node() -> Cluster {
    Cluster::new([gpu_node("n1", 8)])
        .server("low", |server| Server {
            preemptible: true,
            priority: Priority::Low,
            release_time: Some(time(9 * 3_600)),
            max_hold_time: Some(HOUR * 9),
            ..server.gpus(8).admitted(1, &["n1"])
        })
        .server_pod("low", 0, 1, |pod| pod.node = Some("n1".into()))
        .server("high", |server| Server {
            priority: Priority::High,
            max_hold_time: Some(HOUR),
            ..server.gpus(4).owner("bob")
        })
}

fn lines(plan: &super::super::Plan) -> Vec<String> {
    let without_message = |decision: &super::super::Decision| {
        let line = super::super::fixtures::line(decision);
        line.split(':').next().unwrap_or_default().to_owned()
    };
    plan.decisions.iter().map(without_message).collect()
}

#[test]
fn preempted_server_stops_after_notice_and_keeps_queue_position() {
    let mut planner = Planner::default();
    let cluster = full_node();
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(lines(&plan), ["preempt low", "pending high #1 InsufficientCapacity"]);
    let preempted = &plan.decisions[0].admission;
    assert_eq!((preempted.nodes.len(), preempted.preemptions), (1, Some(1)));
    assert_eq!(preempted.preempt_at, Some(to_api_precision(time(3_600 + 120))));
    assert_eq!(
        preempted.message.as_ref().unwrap().as_str(),
        "Preempted by a server with higher priority. It will be stopped and returned to the queue."
    );
    // During the notice period nothing else is decided, neither by this leader nor by the next.
    let mut cluster = cluster.after(&plan);
    for planner in [&mut planner, &mut Planner::default()] {
        let plan = cluster.plan_with(planner);
        assert_eq!(plan.decisions, []);
        assert_eq!(plan.requeue, Requeue::After(Duration::from_secs(120)));
    }
    // The nodes are free only when its pod is gone.
    cluster.now = time(3_600 + 130);
    let expected = ["pending high #1 InsufficientCapacity"];
    assert_eq!(lines(&cluster.plan_with(&mut planner)), expected, "its ETA has moved");
    cluster.pods.clear();
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(lines(&plan), ["revoke low #1 Preempted", "admit high on n1"]);
    assert_eq!(plan.released_accounts.len(), 1, "usage of ada is stored first: {:?}", plan.released_accounts);
    let mut cluster = cluster.after(&plan);
    let back = cluster.servers[0].admission.clone().unwrap();
    assert_eq!((back.queued_at, back.preemptions, back.preempt_at), (Some(to_api_precision(time(0))), Some(1), None));
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(lines(&plan), ["pending low #1 InsufficientCapacity"]);
    // It is admitted again.
    cluster = cluster.after(&plan);
    cluster.servers[1].ended = true;
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(lines(&plan), ["release high", "admit low on n1"]);
    assert_eq!(cluster.after(&plan).servers[0].admission.as_ref().unwrap().preemptions, Some(1));
}

#[test]
fn no_second_victim_while_first_terminates() {
    let mut planner = Planner::default();
    let mut cluster = full_node().server("other", |server| Server {
        preemptible: true,
        priority: Priority::Low,
        release_time: Some(time(9 * 3_600)),
        ..server.gpus(8).admitted(1, &["n2"]).owner("eve")
    });
    cluster.nodes.push(gpu_node("n2", 8));
    cluster = cluster.server_pod("other", 0, 1, |pod| pod.node = Some("n2".into()));
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(lines(&plan)[0], "preempt low");
    cluster = cluster.after(&plan);
    cluster.now = time(3_600 + 125);
    cluster.pods[0].deletion_timestamp = Some(time(3_600 + 120));
    for planner in [&mut planner, &mut Planner::default()] {
        let preempted =
            cluster.plan_with(planner).decisions.into_iter().filter(|decision| decision.action == Action::Preempt);
        assert_eq!(preempted.map(|decision| decision.name).collect::<Vec<_>>(), [""; 0]);
    }
}

#[test]
fn exempt_server_is_not_preempted() {
    let mut not_preemptible = full_node();
    not_preemptible.servers[0].preemptible = false;
    assert_eq!(lines(&not_preemptible.plan()), ["pending high #1 InsufficientCapacity"]);
    let mut just_started = full_node();
    just_started.servers[0] = just_started.servers[0]
        .clone()
        .admission(|admission| admission.admitted_at = Some(to_api_precision(time(3_500))));
    assert_eq!(lines(&just_started.plan()), ["pending high #1 InsufficientCapacity"]);
    let mut preempted_often = full_node();
    preempted_often.servers[0] =
        preempted_often.servers[0].clone().admission(|admission| admission.preemptions = Some(3));
    assert_eq!(lines(&preempted_often.plan()), ["pending high #1 InsufficientCapacity"]);
}

#[test]
fn borrowed_quota_is_reclaimed() {
    let quota = Quota { devices: Some(4), ..Quota::default() };
    let team = |borrowing_limit| Account { borrowing_limit, ..Account::new(quota.clone(), None) };
    let mut cluster = full_node();
    cluster.accounts.teams.insert("team-text".parse().unwrap(), team(None));
    cluster.accounts.teams.insert("team-vision".parse().unwrap(), team(Some(0)));
    cluster.servers[0].team = Some("team-text".parse().unwrap());
    cluster.servers[0].priority = Priority::Normal;
    cluster.servers[1].team = Some("team-vision".parse().unwrap());
    cluster.servers[1].priority = Priority::Normal;
    let plan = cluster.plan();
    assert_eq!(lines(&plan)[0], "preempt low");
    assert!(
        plan.decisions[0]
            .admission
            .message
            .as_ref()
            .unwrap()
            .as_str()
            .contains("to reclaim quota borrowed from another team")
    );
    // A team that must not borrow is not admitted above its quota.
    cluster.accounts.teams.insert("team-text".parse().unwrap(), team(Some(0)));
    cluster.servers[0].admission = None;
    cluster.pods.clear();
    assert_eq!(lines(&cluster.plan()), ["admit high on n1", "pending low #1 QuotaExceeded"]);
}

#[test]
fn booking_is_confirmed_once_and_survives_leader_change() {
    let nine = time(9 * 3_600);
    let booked = |server: Server| Server {
        not_before: Some(nine),
        intent: QueueIntent::Postponed,
        max_hold_time: Some(HOUR),
        ..server.gpus(8)
    };
    let cluster = Cluster::new([gpu_node("n1", 8)]).server("nine", booked);
    let after = check(cluster, &["confirm nine"]);
    let booking = after.servers[0].admission.as_ref().unwrap().booking.clone().unwrap();
    assert_eq!((booking.from.0, booking.until.0), (nine, time(10 * 3_600)));
    let after = check(after, &[]);
    // Another leader respects the booking: a server that would overlap it stays pending.
    let after = after.server("long", |server| Server { max_hold_time: Some(HOUR * 10), ..server });
    let plan = after.plan();
    assert_eq!(lines(&plan), ["pending long #1 Reserved"]);
    let after = after.server("short", |server| Server { max_hold_time: Some(HOUR), ..server });
    assert_eq!(lines(&after.plan()), ["admit short on n1", "pending long #1 Reserved"]);
    // The owner cancels the booking.
    let mut after = after;
    after.servers[0].not_before = None;
    after.servers[0].intent = QueueIntent::Stopped;
    let plan = after.plan();
    assert!(lines(&plan).contains(&"release nine".to_owned()), "{plan:#?}");
}

/// Returns a confirmed booking for 9:00 on the only node, which another server still uses at 9:00, and a server with higher
/// priority.
fn due_booking_behind_running_server() -> Cluster {
    let booked = |server: Server| Server {
        not_before: Some(time(9 * 3_600)),
        intent: QueueIntent::Postponed,
        max_hold_time: Some(HOUR),
        ..server.gpus(8)
    };
    let mut cluster = check(Cluster::new([gpu_node("n1", 8)]).server("nine", booked), &["confirm nine"])
        .server("running", |server| Server {
            release_time: Some(time(20 * 3_600)),
            ..server.gpus(8).admitted(1, &["n1"])
        })
        .server("urgent", |server| Server {
            priority: Priority::High,
            max_hold_time: Some(HOUR),
            ..server.gpus(8).queued_at(10)
        });
    cluster.now = time(9 * 3_600);
    cluster.servers[0].intent = QueueIntent::Run;
    cluster
}

#[test]
fn confirmed_booking_stays_first_when_nodes_are_late() {
    let mut cluster = due_booking_behind_running_server();
    for _ in 0..2 {
        let plan = cluster.plan();
        cluster = cluster.after(&plan);
        assert!(cluster.servers[0].admission.as_ref().unwrap().booking.is_some());
        assert_eq!(cluster.servers[0].admission.as_ref().unwrap().position, Some(1));
        cluster.now = time(10 * 3_600);
    }
    cluster.servers.retain(|server| server.name != "running");
    assert_eq!(lines(&cluster.plan()), ["admit nine on n1", "pending urgent #1 InsufficientCapacity"]);
}

#[test]
fn changed_booking_is_not_confirmed() {
    let changes: [fn(&mut Server); 2] =
        [|server| server.not_before = Some(time(9 * 3_600 - 60)), |server| server.max_hold_time = Some(HOUR * 2)];
    for change in changes {
        let mut cluster = due_booking_behind_running_server();
        change(&mut cluster.servers[0]);
        cluster.servers.retain(|server| server.name != "running");
        assert_eq!(lines(&cluster.plan()), ["admit urgent on n1", "pending nine #1 InsufficientCapacity"]);
    }
}

#[test]
fn booking_is_compared_in_whole_seconds() {
    let half = Duration::from_millis(500);
    let booked = |server: Server| Server {
        not_before: Some(time(9 * 3_600) + half),
        intent: QueueIntent::Postponed,
        max_hold_time: Some(HOUR + half),
        ..server.gpus(8)
    };
    let after = check(Cluster::new([gpu_node("n1", 8)]).server("nine", booked), &["confirm nine"]);
    assert!(after.servers[0].confirmed_booking().is_some());
    check(after, &[]);
}

#[test]
fn borrowed_quota_is_reclaimed_from_non_preemptible_server() {
    let quota = Quota { devices: Some(4), ..Quota::default() };
    let team = |borrowing_limit| Account { borrowing_limit, ..Account::new(quota.clone(), None) };
    let mut cluster = Cluster::new([gpu_node("n1", 8)]).server("borrower", |server| Server {
        preemptible: true,
        max_hold_time: Some(HOUR * 8),
        ..server.gpus(8).team("team-text")
    });
    cluster.accounts.teams.insert("team-text".parse().unwrap(), team(None));
    cluster.accounts.teams.insert("team-vision".parse().unwrap(), team(Some(0)));
    let mut cluster = check(cluster, &["admit borrower on n1"]);
    let admission = cluster.servers[0].admission.clone().unwrap();
    assert_eq!((admission.borrowed, admission.placement), (Some(true), Some(Placement::EmptyNode)));
    cluster.servers[0].preemptible = false;
    cluster.servers[0].release_time = Some(time(9 * 3_600));
    cluster.now = time(2 * 3_600);
    let cluster =
        cluster.server("owner", |server| Server { max_hold_time: Some(HOUR), ..server.gpus(4).team("team-vision") });
    assert_eq!(lines(&cluster.plan())[0], "preempt borrower");
}
