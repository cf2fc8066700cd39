use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const INIT: u32 = 1;
const SERVE: u32 = 5;
const LEADER: u32 = 20;

fn process(pid: u32, parent: u32, session: u32) -> Sample {
    Sample { pid, parent, session, start_ticks: 100, own_ticks: 0, children_ticks: 0, name: format!("p{pid}").into() }
}

fn leaders() -> BTreeSet<u32> {
    BTreeSet::from([LEADER])
}

fn roots(session_leaders: &BTreeSet<u32>) -> Roots<'_> {
    Roots { init: INIT, serve: SERVE, session_leaders, jupyter: Some(30) }
}

/// A server with one session, an entrypoint, a Jupyter server, and a process from `kubectl exec`.
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
        process(30, SERVE, 1), // the Jupyter server
        process(31, 30, 31),   // a kernel
        process(40, 0, 40),    // kubectl exec
        process(41, INIT, 41), // a daemon of unknown origin
        process(50, 999, 1),   // its parent was not sampled
    ]
}

#[test]
fn origin_follows_ancestors_and_sessions() {
    let leaders = leaders();
    let origins = origins(&server(), &roots(&leaders));
    let pids_of = |wanted: Origin| {
        let mut pids: Vec<u32> = origins.iter().filter(|(_, origin)| **origin == wanted).map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    };
    assert_eq!(pids_of(Origin::Agent), [1, 5, 6]);
    assert_eq!(pids_of(Origin::Session), [20, 21, 22, 23]);
    assert_eq!(pids_of(Origin::Entrypoint), [10, 11, 12]);
    assert_eq!(pids_of(Origin::Other), [30, 31, 40, 41, 50]);
}

/// Returns the usage between the initial samples and the changed ones.
fn usage_after(change: impl FnOnce(&mut Vec<Sample>)) -> HashMap<Origin, CpuUsage> {
    let leaders = leaders();
    let mut cpu = CpuSampler::default();
    let mut samples = server();
    assert!(cpu.sample(&samples, &roots(&leaders), 1000, |_| false).values().all(|usage| usage.ticks == 0));
    change(&mut samples);
    cpu.sample(&samples, &roots(&leaders), 2500, |pid| pid == 41)
}

fn find(samples: &mut [Sample], pid: u32) -> &mut Sample {
    samples.iter_mut().find(|sample| sample.pid == pid).unwrap()
}

fn ticks(usage: &HashMap<Origin, CpuUsage>, origin: Origin) -> (u64, Option<&str>) {
    usage.get(&origin).map_or((0, None), |usage| (usage.ticks, usage.busiest()))
}

#[test]
fn usage_is_summed_by_origin() {
    let usage = usage_after(|samples| {
        find(samples, 21).own_ticks += 70;
        find(samples, 22).own_ticks += 80;
        find(samples, 10).own_ticks += 5;
        find(samples, 6).own_ticks += 1000;
        find(samples, SERVE).own_ticks += 1000;
    });
    assert_eq!(ticks(&usage, Origin::Session), (150, Some("p22")));
    assert_eq!(ticks(&usage, Origin::Entrypoint), (5, Some("p10")));
    assert_eq!(ticks(&usage, Origin::Other), (0, None));
}

#[test]
fn usage_of_new_process_counts_only_if_started_since_the_last_sample() {
    let usage = usage_after(|samples| {
        samples.push(Sample { start_ticks: 1200, own_ticks: 9, ..process(60, LEADER, 20) });
        samples.push(Sample { start_ticks: 900, own_ticks: 700, ..process(61, LEADER, 20) });
    });
    assert_eq!(ticks(&usage, Origin::Session), (9, Some("p60")));
}

#[test]
fn reused_pid_is_another_process() {
    let usage = usage_after(|samples| {
        *find(samples, 21) = Sample { start_ticks: 2000, own_ticks: 3, ..process(21, LEADER, 20) }
    });
    assert_eq!(ticks(&usage, Origin::Session).0, 3);
}

#[test]
fn short_lived_children_count_through_their_parent() {
    let usage = usage_after(|samples| find(samples, LEADER).children_ticks += 300);
    assert_eq!(ticks(&usage, Origin::Session).0, 300);
}

#[test]
fn usage_of_exited_process_is_not_counted_twice() {
    let leaders = leaders();
    let mut cpu = CpuSampler::default();
    let mut samples = server();
    find(&mut samples, 21).own_ticks = 5000;
    cpu.sample(&samples, &roots(&leaders), 1000, |_| false);
    samples.retain(|sample| sample.pid != 21);
    find(&mut samples, LEADER).children_ticks += 5002;
    let usage = cpu.sample(&samples, &roots(&leaders), 2500, |_| false);
    assert_eq!(ticks(&usage, Origin::Session).0, 2);
}

#[test]
fn daemon_with_session_environment_stays_in_the_session() {
    let leaders = leaders();
    let mut cpu = CpuSampler::default();
    let mut samples = server();
    cpu.sample(&samples, &roots(&leaders), 1000, |_| false);
    find(&mut samples, 41).own_ticks += 90;
    let usage = cpu.sample(&samples, &roots(&leaders), 2500, |pid| pid == 41);
    assert_eq!(ticks(&usage, Origin::Session), (90, Some("p41")));
    find(&mut samples, 41).own_ticks += 80;
    let usage = cpu.sample(&samples, &roots(&leaders), 4000, |_| false);
    assert_eq!(ticks(&usage, Origin::Session), (80, Some("p41")));
}

#[test]
fn five_percent_of_a_core_is_busy() {
    let interval = Duration::from_secs(15);
    assert!(is_busy(75, 100, interval));
    assert!(!is_busy(74, 100, interval));
    assert!(!is_busy(0, 100, Duration::ZERO));
}

#[test]
fn number_of_visits_is_linear_in_the_number_of_processes() {
    let leaders = leaders();
    // The worst case: one long chain of parents, children first.
    let samples: Vec<Sample> = (100..10_100).rev().map(|pid| process(pid, pid - 1, pid)).collect();
    let (origins, visits) = origins_with_visits(&samples, &roots(&leaders));
    assert_eq!(origins.len(), samples.len());
    assert!(visits <= 2 * samples.len(), "{visits}");
}

proptest! {
    #[test]
    fn every_process_gets_an_origin(
        shape in prop::collection::vec((0u32..40, 0u32..40, 0u32..40, 0u64..9, any::<u64>(), any::<u64>()), 0..40),
    ) {
        let leaders = leaders();
        let samples: Vec<Sample> = shape.into_iter()
            .map(|(pid, parent, session, start_ticks, own_ticks, children_ticks)| {
                Sample { start_ticks, own_ticks, children_ticks, ..process(pid, parent, session) }
            })
            .collect();
        let origins = origins(&samples, &roots(&leaders));
        prop_assert!(samples.iter().all(|sample| origins.contains_key(&sample.pid)));
        let mut cpu = CpuSampler::default();
        cpu.sample(&samples, &roots(&leaders), 1, |_| true);
        cpu.sample(&samples, &roots(&leaders), 2, |_| true);
    }
}
