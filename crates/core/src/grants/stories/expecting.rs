//! When people are told to expect their turn.

use std::time::Duration;

use super::*;
use crate::grants::Planner;
use crate::grants::outlook::Quotas;
use crate::grants::outlook::{Change, Planned, Prospect};
use crate::scheduler::Cause;

const HOUR: i64 = 3_600;

/// One node, taken by a server that may stay for an hour from now on, and one that waits for it.
fn full() -> Cluster {
    Cluster::new([gpu_node("n1", 8)])
        .server("runs", |server| Server {
            ends: Some(time(2 * HOUR)),
            lifetime: Some(Duration::from_secs(7_200)),
            ..server.gpus(8).granted(1, &["n1"])
        })
        .server("waits", |server| Server { lifetime: Some(Duration::from_secs(7_200)), ..server.gpus(8) })
}

fn eta(cluster: &Cluster) -> (i64, i64) {
    let admission = cluster.servers[1].admission.as_ref().unwrap();
    let eta = admission.eta.as_ref().unwrap();
    let after = |at: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time| at.0.as_second() - cluster.now.as_second();
    (after(&eta.p50), after(&eta.p90))
}

fn carried_out(cluster: Cluster) -> Cluster {
    let plan = cluster.plan();
    cluster.after(&plan)
}

#[test]
fn who_waits_is_told_when_to_expect_their_turn_and_when_at_the_latest() {
    let (plan, outlook) = (full().plan(), full().outlook());
    let latest = outlook.eta("uid-waits").and_then(|eta| eta.latest);
    assert_eq!(latest, Some(time(2 * HOUR).as_second()));
    let (half, most) = eta(&full().after(&plan));
    assert!(0 < half && half <= most && half <= HOUR, "{half} {most}");
}

#[test]
fn an_expectation_stays_while_it_is_about_right() {
    let mut cluster = carried_out(full());
    for seconds in [1, 30, 120] {
        cluster.now = time(HOUR + seconds);
        assert_eq!(cluster.plan().decisions.iter().map(|decision| &decision.name).collect::<Vec<_>>(), [""; 0]);
    }
}

#[test]
fn an_expectation_moves_when_somebody_stays_longer() {
    let before = carried_out(full());
    let mut cluster = before.clone();
    cluster.servers[0].ends = Some(time(10 * HOUR));
    let after = carried_out(cluster);
    assert!(eta(&after).1 > eta(&before).1, "{:?} {:?}", eta(&before), eta(&after));
}

#[test]
fn a_planned_start_that_moved_says_why_until_it_is_back_where_it_was() {
    let moved = |planner: &Planner| {
        let standings = planner.outlook().standings();
        let standing = standings.iter().find(|standing| standing.server.id == "uid-waits").unwrap();
        standing.moved.map(|moved| (moved.from, moved.to, moved.why))
    };
    let [first, extended, shorter] = [2, 10, 2].map(|hours| time(hours * HOUR));
    let (mut cluster, mut planner) = (full(), Planner::default());
    assert!(cluster.plan_with(&mut planner).moved.is_empty());
    assert_eq!(moved(&planner), None);
    cluster.servers[0].ends = Some(extended);
    let plan = cluster.plan_with(&mut planner);
    let later = Some((first.as_second(), Some(extended.as_second()), Cause::Extended));
    assert_eq!((plan.moved.len(), moved(&planner)), (1, later));
    // It is remembered while it waits, and counted once.
    cluster.now = time(HOUR + 60);
    assert!(cluster.plan_with(&mut planner).moved.is_empty());
    assert_eq!(moved(&planner), later);
    cluster.servers[0].ends = Some(shorter);
    assert!(cluster.plan_with(&mut planner).moved.is_empty());
    assert_eq!(moved(&planner), None);
}

#[test]
fn nothing_is_promised_where_nobody_knows_an_end() {
    let mut cluster = full();
    cluster.servers[0].ends = None;
    let plan = cluster.plan();
    assert_eq!(cluster.outlook().eta("uid-waits").map(|eta| eta.latest), None);
    assert!(cluster.after(&plan).servers[1].admission.as_ref().unwrap().eta.is_none());
}

#[test]
fn a_question_is_answered_as_a_request_would_be_and_changes_nothing() {
    let mut cluster = full();
    let outlook = cluster.outlook();
    let asked = Server { lifetime: Some(Duration::from_secs(600)), ..Server::test("asked", 100).gpus(4) };
    let Prospect::Later { position, eta, message, .. } = outlook.ask(&asked, cluster.now) else {
        panic!("there is no room")
    };
    assert_eq!(position, Some(2));
    assert!(message.contains("Needs 4 nvidia.com/gpu"), "{message}");
    let latest = eta.and_then(|eta| eta.latest).unwrap();
    assert!(outlook.standings().iter().all(|standing| standing.server.id != "uid-asked"));
    cluster.servers.push(asked);
    let real = cluster.outlook();
    assert_eq!(real.eta("uid-asked").and_then(|eta| eta.latest), Some(latest));

    let empty = Cluster::new([gpu_node("n1", 8)]).outlook();
    assert_eq!(empty.ask(&Server::test("asked", 100), cluster.now), Prospect::Now);
}

#[test]
fn a_question_is_answered_too_where_nobody_waits() {
    let mut cluster = full();
    let asked = cluster.servers.remove(1);
    let Prospect::Later { eta, .. } = cluster.outlook().ask(&asked, cluster.now) else { panic!("there is no room") };
    cluster.servers.push(asked);
    assert!(eta.is_some());
    assert_eq!(cluster.outlook().eta("uid-waits"), eta);
}

#[test]
fn who_waits_after_a_time_in_which_nobody_did_is_told_the_same() {
    let (mut cluster, mut planner) = (full(), Planner::default());
    let mut told = Vec::new();
    for _ in 0..2 {
        cluster.plan_with(&mut planner);
        told.push(planner.outlook().eta("uid-waits"));
        let waits = cluster.servers.remove(1);
        cluster.plan_with(&mut planner);
        assert_eq!(planner.outlook().eta("uid-waits"), None);
        cluster.servers.push(waits);
    }
    assert!(told[0].is_some());
    assert_eq!(told[0], told[1]);
}

#[test]
fn everybody_stands_where_they_were_told() {
    let cluster = full().server("behind", |server| server.gpus(1));
    let outlook = cluster.outlook();
    let stand: Vec<_> = outlook.standings().iter().map(|one| (one.server.id.clone(), one.position)).collect();
    assert_eq!(stand, [("uid-waits".to_owned(), Some(1)), ("uid-behind".to_owned(), Some(2))]);
}

#[test]
fn what_another_quota_would_change_is_worked_out_and_changes_nothing() {
    let quota = |devices: u32| Quota { devices: Some(devices), ..Quota::default() };
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .team_quota("vision", quota(2))
        .server("runs", |server| Server {
            ends: Some(time(2 * HOUR)),
            lifetime: Some(Duration::from_secs(7_200)),
            ..server.gpus(2).team("vision").granted(1, &["n1"])
        })
        .server("waits", |server| Server {
            lifetime: Some(Duration::from_secs(7_200)),
            ..server.gpus(4).team("vision")
        });
    let outlook = cluster.outlook();
    let asked = |team: &str, devices| {
        let quotas = Quotas { teams: [(team.parse().unwrap(), quota(devices))].into(), ..Quotas::default() };
        let changes = outlook.what_if(&quotas, cluster.now)?;
        let said = |change: &Change<'_>| (change.server.name.clone(), change.before, change.after);
        Ok::<_, String>(changes.iter().map(said).collect::<Vec<_>>())
    };
    assert_eq!(asked("vision", 6).unwrap(), [("dev-ada/waits".to_owned(), Planned::Unknown, Planned::Now)]);
    let later = Planned::At(time(2 * HOUR).as_second());
    assert_eq!(asked("vision", 4).unwrap(), [("dev-ada/waits".to_owned(), Planned::Unknown, later)]);
    assert_eq!(asked("vision", 2).unwrap(), []);
    assert_eq!(asked("audio", 2).unwrap_err(), "There is no team audio.");
}

#[test]
fn who_waits_is_not_told_again_because_a_number_in_the_sentence_changed() {
    let waits = |server: Server| Server { lifetime: Some(Duration::from_secs(7_200)), ..server.gpus(8) };
    let runs = |gpus: i64, node: &'static str| {
        move |server: Server| Server {
            ends: Some(time(2 * HOUR)),
            lifetime: Some(Duration::from_secs(7_200)),
            ..server.gpus(gpus).granted(1, &[node])
        }
    };
    let cluster = Cluster::new([gpu_node("n1", 8)]).server("a", runs(6, "n1")).server("waits", waits);
    let mut cluster = carried_out(cluster);
    let said = cluster.servers[1].admission.clone().unwrap();
    assert!(said.message.as_ref().unwrap().as_str().contains("at most 2"), "{said:?}");
    // One more of the same node is used until the same time: place, start and reason are the same.
    cluster = cluster.server("b", runs(1, "n1"));
    assert!(cluster.plan().decisions.iter().all(|decision| decision.name != "waits"));
}
