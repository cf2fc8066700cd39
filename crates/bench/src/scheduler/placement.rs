//! Placement alone: openb's pods on openb's nodes, but so many of them at a time that the cluster is full. There is no
//! queue; who finds no room goes away. The same books are kept for our rule and for plain ones.

mod ours;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;

use super::openb::{LONGEST, Node, Pod, Trace};
use crate::Report;
use ours::Ours;

/// What is asked for, of the devices there are, in hundredths.
const LOADS: [i64; 3] = [70, 90, 110];
/// How often all pods come. The first half of that fills the cluster and is not counted: it must take most of a day, the
/// longest that anybody stays.
const TIMES: usize = 40;
/// Devices of the largest requests, and of the largest nodes.
const LARGE: i64 = 8;

/// Where a pod is put, if anywhere.
enum Rule {
    Ours(Box<Ours>),
    FirstFit,
    /// The node with the largest part of its devices free, as kube-scheduler does unless told otherwise.
    LeastFull,
}

impl Rule {
    fn place(&mut self, number: usize, pod: &Pod, cluster: &Cluster<'_>, now: i64) -> Option<usize> {
        let mut with_room = (0..cluster.nodes.len()).filter(|at| cluster.has_room(*at, pod));
        match self {
            Self::Ours(ours) => ours.place(number, pod, now),
            Self::FirstFit => with_room.next(),
            Self::LeastFull => with_room.max_by_key(|at| (cluster.free_part(*at), Reverse(*at))),
        }
    }

    fn leave(&mut self, number: usize, now: i64) {
        match self {
            Self::Ours(ours) => ours.leave(number, now),
            Self::FirstFit | Self::LeastFull => {}
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Used {
    cpu: i64,
    memory: i64,
    devices: i64,
}

/// The nodes and what is used of them.
struct Cluster<'a> {
    nodes: &'a [Node],
    used: Vec<Used>,
    /// Of the whole cluster, kept up with every change.
    now: Sums,
}

/// Devices that are used, free ones on nodes that are partly used, and nodes of the largest kind that are not used at all.
#[derive(Clone, Copy, Default)]
struct Sums {
    used: i64,
    scattered: i64,
    whole: i64,
}

impl Cluster<'_> {
    fn has_room(&self, at: usize, pod: &Pod) -> bool {
        let (node, used) = (&self.nodes[at], self.used[at]);
        pod.takes(&node.model)
            && used.devices + pod.stay.devices <= node.devices
            && used.cpu + pod.cpu <= node.cpu
            && used.memory + pod.memory <= node.memory
    }

    /// In thousandths.
    fn free_part(&self, at: usize) -> i64 {
        (self.nodes[at].devices - self.used[at].devices) * 1_000 / self.nodes[at].devices
    }

    fn sums(&self, at: usize) -> Sums {
        let (all, used) = (self.nodes[at].devices, self.used[at].devices);
        let scattered = if used > 0 { all - used } else { 0 };
        Sums { used, scattered, whole: i64::from(used == 0 && all == LARGE) }
    }

    /// Puts a pod on a node, or takes it away.
    fn change(&mut self, at: usize, pod: &Pod, sign: i64) {
        let before = self.sums(at);
        let used = &mut self.used[at];
        used.devices += sign * pod.stay.devices;
        used.cpu += sign * pod.cpu;
        used.memory += sign * pod.memory;
        let after = self.sums(at);
        self.now.used += after.used - before.used;
        self.now.scattered += after.scattered - before.scattered;
        self.now.whole += after.whole - before.whole;
    }
}

/// What was counted over the second half.
#[derive(Default)]
struct Outcome {
    asked: i64,
    placed: i64,
    large: i64,
    large_placed: i64,
    /// Over everybody who asked.
    sums: Sums,
    overcommits: u64,
}

pub(super) fn measure(trace: &Trace) -> anyhow::Result<Report> {
    let pods: Vec<&Pod> = trace.pods.iter().filter(|pod| pod.stay.seconds <= LONGEST).collect();
    let devices: i64 = trace.nodes.iter().map(|node| node.devices).sum();
    let mut report = Report::default();
    writeln!(
        report.text,
        "Placement of openb's {} pods with devices and stays of at most a day ({} longer ones left out), in their order and \
         {TIMES} times over, evenly spread so that they ask for a part of its {devices} devices on {} nodes, with the CPU and \
         memory of both. No queue: who finds no room goes away. The second half is counted.\n\n\
         | load | placement | requests placed | of those for {LARGE} devices | devices used | free ones on partly used nodes | \
         nodes of {LARGE} devices left whole | given twice (goal: 0) |\n|--:|---|--:|--:|--:|--:|--:|--:|",
        pods.len(),
        trace.pods.len() - pods.len(),
        trace.nodes.len(),
    )?;
    for load in LOADS {
        for (name, mut rule) in [
            ("ours", Rule::Ours(Box::new(Ours::new(&trace.nodes, &pods)))),
            ("first fit", Rule::FirstFit),
            ("least full first", Rule::LeastFull),
        ] {
            let outcome = play(&trace.nodes, &pods, load, &mut rule)?;
            let Outcome { asked, placed, large, large_placed, sums, overcommits } = outcome;
            let part = |of: i64, all: i64| of as f64 * 100.0 / all.max(1) as f64;
            writeln!(
                report.text,
                "| {load} % | {name} | {:.1} % | {:.1} % | {:.1} % | {:.1} % | {:.1} | {overcommits} |",
                part(placed, asked),
                part(large_placed, large),
                part(sums.used, devices * asked),
                part(sums.scattered, devices * asked - sums.used),
                sums.whole as f64 / asked.max(1) as f64,
            )?;
            report.goal(overcommits == 0, || {
                format!("placement {name} at {load} % gave something twice, {overcommits} times")
            });
        }
    }
    report.text.push('\n');
    Ok(report)
}

fn play(nodes: &[Node], pods: &[&Pod], load: i64, rule: &mut Rule) -> anyhow::Result<Outcome> {
    let whole = nodes.iter().filter(|node| node.devices == LARGE).count();
    let now = Sums { whole: i64::try_from(whole)?, ..Sums::default() };
    let mut cluster = Cluster { nodes, used: vec![Used::default(); nodes.len()], now };
    let work: i64 = pods.iter().map(|pod| pod.stay.devices * pod.stay.seconds).sum();
    let devices: i64 = nodes.iter().map(|node| node.devices).sum();
    let mut outcome = Outcome::default();
    // When whose stay is over, and where.
    let mut ends: BinaryHeap<Reverse<(i64, usize, usize)>> = BinaryHeap::new();
    let all = pods.len() * TIMES;
    for (number, pod) in pods.iter().cycle().take(all).enumerate() {
        let now = i64::try_from(number)? * work / (i64::try_from(pods.len())? * devices * load / 100).max(1);
        while let Some(Reverse((_, gone, node))) = ends.peek().copied().filter(|Reverse((end, ..))| *end <= now) {
            ends.pop();
            cluster.change(node, pods[gone % pods.len()], -1);
            rule.leave(gone, now);
        }
        let place = rule.place(number, pod, &cluster, now);
        if let Some(node) = place {
            outcome.overcommits += u64::from(!cluster.has_room(node, pod));
            cluster.change(node, pod, 1);
            ends.push(Reverse((now + pod.stay.seconds, number, node)));
        }
        if number >= all / 2 {
            let (placed, large) = (i64::from(place.is_some()), i64::from(pod.stay.devices == LARGE));
            outcome.asked += 1;
            outcome.placed += placed;
            outcome.large += large;
            outcome.large_placed += large * placed;
            outcome.sums.used += cluster.now.used;
            outcome.sums.scattered += cluster.now.scattered;
            outcome.sums.whole += cluster.now.whole;
        }
    }
    Ok(outcome)
}
