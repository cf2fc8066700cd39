//! Who has to leave for somebody with a better right, and what becomes of them; bookings, which are a right too.

use std::time::Duration;

use odc_api::v1alpha1::Priority;

use super::super::{Account, Planner};
use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// Somebody who can be asked to leave has everything; somebody more urgent comes.
fn full() -> Cluster {
    Cluster::new([gpu_node("n1", 8)])
        .server("low", |server| Server {
            preemptible: true,
            priority: Priority::Low,
            ends: Some(time(9 * 3_600)),
            lifetime: Some(HOUR * 9),
            ..server.gpus(8).granted(1, &["n1"])
        })
        .server_pod("low", 0, 1, |pod| pod.node = Some("n1".into()))
        .server("high", |server| Server {
            priority: Priority::High,
            lifetime: Some(HOUR),
            ..server.gpus(4).owner("bob")
        })
}

fn lines(plan: &super::super::Plan) -> Vec<String> {
    let short = |decision: &super::super::Decision| {
        let line = super::super::fixtures::told(decision);
        line.split(':').next().unwrap_or_default().to_owned()
    };
    plan.decisions.iter().map(short).collect()
}

#[test]
fn who_can_be_asked_leaves_in_order_and_keeps_the_place() {
    let mut planner = Planner::default();
    let cluster = full();
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(lines(&plan), ["preempt low", "wait high #1 InsufficientCapacity"]);
    let asked = &plan.decisions[0].admission;
    assert_eq!((asked.nodes.len(), asked.preemptions), (1, Some(1)));
    assert_eq!(asked.gives_way_at, Some(stored(time(3_600 + 120))));
    assert_eq!(
        asked.message.as_ref().unwrap().as_str(),
        "Somebody with a higher priority needs its place: it stops in order and goes back to the queue."
    );
    // It has its time, and nobody is asked twice, neither by this leader nor by the next.
    let mut cluster = cluster.after(&plan);
    for planner in [&mut planner, &mut Planner::default()] {
        let plan = cluster.plan_with(planner);
        assert_eq!(plan.decisions, []);
        assert_eq!(plan.again, Again::After(Duration::from_secs(120)));
    }
    // Its pod stops in order, and until it is gone the nodes are not free.
    cluster.now = time(3_600 + 130);
    let waits = ["wait high #1 InsufficientCapacity"];
    assert_eq!(lines(&cluster.plan_with(&mut planner)), waits, "its expected start has moved");
    cluster.pods.clear();
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(lines(&plan), ["revoke low #1 Preempted", "grant high on n1"]);
    assert_eq!(plan.leaving.len(), 1, "what ada used is stored first: {:?}", plan.leaving);
    let mut cluster = cluster.after(&plan);
    let back = cluster.servers[0].admission.clone().unwrap();
    assert_eq!((back.queued_at, back.preemptions, back.gives_way_at), (Some(stored(time(0))), Some(1), None));
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(lines(&plan), ["wait low #1 InsufficientCapacity"]);
    // Nobody is stopped for ever.
    cluster = cluster.after(&plan);
    cluster.servers[1].ended = true;
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(lines(&plan), ["release high", "grant low on n1"]);
    assert_eq!(cluster.after(&plan).servers[0].admission.as_ref().unwrap().preemptions, Some(1));
}

#[test]
fn nobody_else_is_asked_while_one_is_on_its_way_out() {
    let mut planner = Planner::default();
    let mut cluster = full().server("other", |server| Server {
        preemptible: true,
        priority: Priority::Low,
        ends: Some(time(9 * 3_600)),
        ..server.gpus(8).granted(1, &["n2"]).owner("eve")
    });
    cluster.nodes.push(gpu_node("n2", 8));
    cluster = cluster.server_pod("other", 0, 1, |pod| pod.node = Some("n2".into()));
    let plan = cluster.plan_with(&mut planner);
    assert_eq!(lines(&plan)[0], "preempt low");
    cluster = cluster.after(&plan);
    cluster.now = time(3_600 + 125);
    cluster.pods[0].deleting = Some(time(3_600 + 120));
    for planner in [&mut planner, &mut Planner::default()] {
        let asked = cluster.plan_with(planner).decisions.into_iter().filter(|decision| decision.what == What::Preempt);
        assert_eq!(asked.map(|decision| decision.name).collect::<Vec<_>>(), [""; 0]);
    }
}

#[test]
fn nobody_leaves_who_did_not_agree_to_or_has_just_begun() {
    let mut firm = full();
    firm.servers[0].preemptible = false;
    assert_eq!(lines(&firm.plan()), ["wait high #1 InsufficientCapacity"]);
    let mut young = full();
    young.servers[0] = young.servers[0].clone().admission(|admission| admission.granted_at = Some(stored(time(3_500))));
    assert_eq!(lines(&young.plan()), ["wait high #1 InsufficientCapacity"]);
    let mut often = full();
    often.servers[0] = often.servers[0].clone().admission(|admission| admission.preemptions = Some(3));
    assert_eq!(lines(&often.plan()), ["wait high #1 InsufficientCapacity"]);
}

#[test]
fn who_lent_quota_gets_it_back() {
    let quota = Quota { devices: Some(4), ..Quota::default() };
    let team = |borrow| Account { borrow, ..Account::of(quota.clone(), None) };
    let mut cluster = full();
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
            .contains("whose team lent it part of what it has")
    );
    // One that never borrows is not given more than its own in the first place.
    cluster.accounts.teams.insert("team-text".parse().unwrap(), team(Some(0)));
    cluster.servers[0].admission = None;
    cluster.pods.clear();
    assert_eq!(lines(&cluster.plan()), ["grant high on n1", "wait low #1 QuotaExceeded"]);
}

#[test]
fn a_booking_is_promised_once_and_the_promise_outlives_the_leader() {
    let nine = time(9 * 3_600);
    let booked =
        |server: Server| Server { not_before: Some(nine), want: Want::Later, lifetime: Some(HOUR), ..server.gpus(8) };
    let cluster = Cluster::new([gpu_node("n1", 8)]).server("nine", booked);
    let after = check(cluster, &["book nine"]);
    let promised = after.servers[0].admission.as_ref().unwrap().booking.clone().unwrap();
    assert_eq!((promised.from.0, promised.until.0), (nine, time(10 * 3_600)));
    let after = check(after, &[]);
    // Another leader knows: whoever would stay into the promised time waits.
    let after = after.server("long", |server| Server { lifetime: Some(HOUR * 10), ..server });
    let plan = after.plan();
    assert_eq!(lines(&plan), ["wait long #1 InsufficientCapacity"]);
    let after = after.server("short", |server| Server { lifetime: Some(HOUR), ..server });
    assert_eq!(lines(&after.plan()), ["grant short on n1", "wait long #1 InsufficientCapacity"]);
    // Its owner changed their mind.
    let mut after = after;
    after.servers[0].not_before = None;
    after.servers[0].want = Want::Rest;
    let plan = after.plan();
    assert!(lines(&plan).contains(&"release nine".to_owned()), "{plan:#?}");
}

/// A booking for nine o'clock on the only node, promised; somebody urgent came before that and is still there then.
fn booked_and_late() -> Cluster {
    let booked = |server: Server| Server {
        not_before: Some(time(9 * 3_600)),
        want: Want::Later,
        lifetime: Some(HOUR),
        ..server.gpus(8)
    };
    let mut cluster = check(Cluster::new([gpu_node("n1", 8)]).server("nine", booked), &["book nine"])
        .server("stays", |server| Server { ends: Some(time(20 * 3_600)), ..server.gpus(8).granted(1, &["n1"]) })
        .server("urgent", |server| Server {
            priority: Priority::High,
            lifetime: Some(HOUR),
            ..server.gpus(8).since(10)
        });
    cluster.now = time(9 * 3_600);
    cluster.servers[0].want = Want::Run;
    cluster
}

#[test]
fn a_promised_booking_stays_first_when_its_time_comes_and_it_has_to_wait() {
    let mut cluster = booked_and_late();
    for _ in 0..2 {
        let plan = cluster.plan();
        cluster = cluster.after(&plan);
        assert!(cluster.servers[0].admission.as_ref().unwrap().booking.is_some());
        assert_eq!(cluster.servers[0].admission.as_ref().unwrap().position, Some(1));
        cluster.now = time(10 * 3_600);
    }
    cluster.servers.retain(|server| server.name != "stays");
    assert_eq!(lines(&cluster.plan()), ["grant nine on n1", "wait urgent #1 InsufficientCapacity"]);
}

#[test]
fn a_booking_that_asks_for_another_time_or_for_longer_is_promised_nothing() {
    let asks: [fn(&mut Server); 2] =
        [|server| server.not_before = Some(time(9 * 3_600 - 60)), |server| server.lifetime = Some(HOUR * 2)];
    for ask in asks {
        let mut cluster = booked_and_late();
        ask(&mut cluster.servers[0]);
        cluster.servers.retain(|server| server.name != "stays");
        assert_eq!(lines(&cluster.plan()), ["grant urgent on n1", "wait nine #1 InsufficientCapacity"]);
    }
}

#[test]
fn a_booking_is_kept_to_the_second() {
    let half = Duration::from_millis(500);
    let booked = |server: Server| Server {
        not_before: Some(time(9 * 3_600) + half),
        want: Want::Later,
        lifetime: Some(HOUR + half),
        ..server.gpus(8)
    };
    let after = check(Cluster::new([gpu_node("n1", 8)]).server("nine", booked), &["book nine"]);
    assert!(after.servers[0].booking().is_some());
    check(after, &[]);
}

#[test]
fn what_is_lent_can_be_asked_back_whatever_its_owner_says_by_then() {
    let quota = Quota { devices: Some(4), ..Quota::default() };
    let team = |borrow| Account { borrow, ..Account::of(quota.clone(), None) };
    let mut cluster = Cluster::new([gpu_node("n1", 8)]).server("lent", |server| Server {
        preemptible: true,
        lifetime: Some(HOUR * 8),
        ..server.gpus(8).team("team-text")
    });
    cluster.accounts.teams.insert("team-text".parse().unwrap(), team(None));
    cluster.accounts.teams.insert("team-vision".parse().unwrap(), team(Some(0)));
    let mut cluster = check(cluster, &["grant lent on n1"]);
    let granted = cluster.servers[0].admission.clone().unwrap();
    assert_eq!((granted.borrowed, granted.placement), (Some(true), Some(Placement::WholeNode)));
    cluster.servers[0].preemptible = false;
    cluster.servers[0].ends = Some(time(9 * 3_600));
    cluster.now = time(2 * 3_600);
    let cluster =
        cluster.server("back", |server| Server { lifetime: Some(HOUR), ..server.gpus(4).team("team-vision") });
    assert_eq!(lines(&cluster.plan())[0], "preempt lent");
}
