use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const INIT: u32 = 1;
const SERVE: u32 = 5;
const LEADER: u32 = 20;

fn process(pid: u32, parent: u32, session: u32) -> Sample {
    Sample { pid, parent, session, start: 100, own: 0, reaped: 0, name: format!("p{pid}").into() }
}

fn leaders() -> BTreeSet<u32> {
    BTreeSet::from([LEADER])
}

fn roots(leaders: &BTreeSet<u32>) -> Roots<'_> {
    Roots { init: INIT, serve: SERVE, leaders, notebook: Some(30) }
}

/// A server with one session, an entrypoint, a notebook, and something that was brought in from outside.
fn server() -> Vec<Sample> {
    vec![
        process(INIT, 0, 1),
        process(SERVE, INIT, 1),
        process(6, SERVE, 1),       // nvidia-smi
        process(LEADER, SERVE, 20), // a shell
        process(21, LEADER, 20),
        process(22, INIT, 20), // nohup, after its shell
        process(23, 21, 23),   // setsid below the shell
        process(10, INIT, 1),  // the entrypoint
        process(11, 10, 11),
        process(12, INIT, 1),  // an orphan of the entrypoint
        process(30, SERVE, 1), // the notebook
        process(31, 30, 31),   // a kernel
        process(40, 0, 40),    // kubectl exec
        process(41, INIT, 41), // a daemon of unknown descent
        process(50, 999, 1),   // its parent was missed
    ]
}

#[test]
fn every_process_has_an_origin() {
    let leaders = leaders();
    let origins = origins(&server(), &roots(&leaders));
    let of = |wanted: Origin| {
        let mut pids: Vec<u32> = origins.iter().filter(|(_, origin)| **origin == wanted).map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    };
    assert_eq!(of(Origin::Agent), [1, 5, 6]);
    assert_eq!(of(Origin::Session), [20, 21, 22, 23]);
    assert_eq!(of(Origin::Entrypoint), [10, 11, 12]);
    assert_eq!(of(Origin::Other), [30, 31, 40, 41, 50]);
}

/// Lets time pass, and gives what was used of each origin and by whom.
fn after(change: impl FnOnce(&mut Vec<Sample>)) -> HashMap<Origin, Growth> {
    let leaders = leaders();
    let mut look = Look::default();
    let mut samples = server();
    assert!(look.next(&samples, &roots(&leaders), 1000, |_| false).values().all(|growth| growth.ticks == 0));
    change(&mut samples);
    look.next(&samples, &roots(&leaders), 2500, |pid| pid == 41)
}

fn find(samples: &mut [Sample], pid: u32) -> &mut Sample {
    samples.iter_mut().find(|sample| sample.pid == pid).unwrap()
}

fn ticks(growth: &HashMap<Origin, Growth>, origin: Origin) -> (u64, Option<&str>) {
    growth.get(&origin).map_or((0, None), |growth| (growth.ticks, growth.busiest()))
}

#[test]
fn what_grew_is_counted_where_it_belongs() {
    let growth = after(|samples| {
        find(samples, 21).own += 70;
        find(samples, 22).own += 80;
        find(samples, 10).own += 5;
        find(samples, 6).own += 1000;
        find(samples, SERVE).own += 1000;
    });
    assert_eq!(ticks(&growth, Origin::Session), (150, Some("p22")));
    assert_eq!(ticks(&growth, Origin::Entrypoint), (5, Some("p10")));
    assert_eq!(ticks(&growth, Origin::Other), (0, None));
}

#[test]
fn a_new_process_counts_from_its_start_and_one_that_was_missed_does_not() {
    let growth = after(|samples| {
        samples.push(Sample { start: 1200, own: 9, ..process(60, LEADER, 20) });
        samples.push(Sample { start: 900, own: 700, ..process(61, LEADER, 20) });
    });
    assert_eq!(ticks(&growth, Origin::Session), (9, Some("p60")));
}

#[test]
fn another_process_of_the_same_number_is_another() {
    let growth = after(|samples| *find(samples, 21) = Sample { start: 2000, own: 3, ..process(21, LEADER, 20) });
    assert_eq!(ticks(&growth, Origin::Session).0, 3);
}

#[test]
fn children_too_short_to_be_seen_are_seen_in_their_parent() {
    let growth = after(|samples| find(samples, LEADER).reaped += 300);
    assert_eq!(ticks(&growth, Origin::Session).0, 300);
}

#[test]
fn the_end_of_a_process_counts_nothing_twice() {
    let leaders = leaders();
    let mut look = Look::default();
    let mut samples = server();
    find(&mut samples, 21).own = 5000;
    look.next(&samples, &roots(&leaders), 1000, |_| false);
    samples.retain(|sample| sample.pid != 21);
    find(&mut samples, LEADER).reaped += 5002;
    let growth = look.next(&samples, &roots(&leaders), 2500, |_| false);
    assert_eq!(ticks(&growth, Origin::Session).0, 2);
}

#[test]
fn a_daemon_that_knows_its_session_belongs_there_from_then_on() {
    let leaders = leaders();
    let mut look = Look::default();
    let mut samples = server();
    look.next(&samples, &roots(&leaders), 1000, |_| false);
    find(&mut samples, 41).own += 90;
    let growth = look.next(&samples, &roots(&leaders), 2500, |pid| pid == 41);
    assert_eq!(ticks(&growth, Origin::Session), (90, Some("p41")));
    find(&mut samples, 41).own += 80;
    let growth = look.next(&samples, &roots(&leaders), 4000, |_| false);
    assert_eq!(ticks(&growth, Origin::Session), (80, Some("p41")));
}

#[test]
fn a_twentieth_of_a_core_is_busy() {
    let over = Duration::from_secs(15);
    assert!(is_busy(75, 100, over));
    assert!(!is_busy(74, 100, over));
    assert!(!is_busy(0, 100, Duration::ZERO));
}

#[test]
fn ten_thousand_processes_are_no_burden() {
    let leaders = leaders();
    // The worst shape: one long line of parents.
    let samples: Vec<Sample> = (100..10_100).rev().map(|pid| process(pid, pid - 1, pid)).collect();
    let mut look = Look::default();
    let begun = Instant::now();
    look.next(&samples, &roots(&leaders), 1000, |_| false);
    look.next(&samples, &roots(&leaders), 2500, |_| false);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

proptest! {
    #[test]
    fn any_shape_of_processes_gives_everybody_an_origin(
        shape in prop::collection::vec((0u32..40, 0u32..40, 0u32..40, 0u64..9, any::<u64>(), any::<u64>()), 0..40),
    ) {
        let leaders = leaders();
        let samples: Vec<Sample> = shape.into_iter()
            .map(|(pid, parent, session, start, own, reaped)| Sample { start, own, reaped, ..process(pid, parent, session) })
            .collect();
        let origins = origins(&samples, &roots(&leaders));
        prop_assert!(samples.iter().all(|sample| origins.contains_key(&sample.pid)));
        let mut look = Look::default();
        look.next(&samples, &roots(&leaders), 1, |_| true);
        look.next(&samples, &roots(&leaders), 2, |_| true);
    }
}
