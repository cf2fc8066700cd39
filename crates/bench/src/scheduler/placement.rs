//! Placement of openb's pods on openb's nodes at high load, without a queue: pods that do not fit are rejected. The scheduler
//! is compared with simpler strategies.

mod odc;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;

use super::openb::{MAX_RUNTIME, Node, Pod, Trace};
use crate::Report;
use odc::OdcPlacement;

/// Requested devices in percent of the capacity.
const LOADS: [i64; 3] = [70, 90, 110];
/// How often all pods are repeated. The first half fills the cluster and is not counted: it must take most of a day, the
/// maximum runtime.
const REPETITIONS: usize = 40;
/// Devices of the largest requests, and of the largest nodes.
const LARGE: i64 = 8;

enum Strategy {
    Odc(Box<OdcPlacement>),
    FirstFit,
    /// The node with the largest part of its devices free, the default of kube-scheduler.
    LeastAllocated,
}

impl Strategy {
    fn place(&mut self, number: usize, pod: &Pod, cluster: &Cluster<'_>, now: i64) -> Option<usize> {
        let mut fitting = (0..cluster.nodes.len()).filter(|node| cluster.fits(*node, pod));
        match self {
            Self::Odc(odc) => odc.place(number, pod, now),
            Self::FirstFit => fitting.next(),
            Self::LeastAllocated => fitting.max_by_key(|node| (cluster.free_part(*node), Reverse(*node))),
        }
    }

    fn remove(&mut self, number: usize, now: i64) {
        match self {
            Self::Odc(odc) => odc.remove(number, now),
            Self::FirstFit | Self::LeastAllocated => {}
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Used {
    cpu: i64,
    memory: i64,
    devices: i64,
}

/// The nodes and their usage.
struct Cluster<'a> {
    nodes: &'a [Node],
    used: Vec<Used>,
    /// Totals of the cluster, updated with each change.
    now: Totals,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    used: i64,
    /// Free devices on partly used nodes.
    fragmented: i64,
    /// Empty nodes of the largest kind.
    empty_nodes: i64,
}

impl Cluster<'_> {
    fn fits(&self, index: usize, pod: &Pod) -> bool {
        let (node, used) = (&self.nodes[index], self.used[index]);
        pod.accepts(&node.model)
            && used.devices + pod.runtime.devices <= node.devices
            && used.cpu + pod.cpu <= node.cpu
            && used.memory + pod.memory <= node.memory
    }

    /// Returns the free part of the devices in thousandths.
    fn free_part(&self, node: usize) -> i64 {
        (self.nodes[node].devices - self.used[node].devices) * 1_000 / self.nodes[node].devices
    }

    fn totals(&self, node: usize) -> Totals {
        let (capacity, used) = (self.nodes[node].devices, self.used[node].devices);
        let fragmented = if used > 0 { capacity - used } else { 0 };
        Totals { used, fragmented, empty_nodes: i64::from(used == 0 && capacity == LARGE) }
    }

    /// Adds a pod to a node, or removes it with a negative sign.
    fn update(&mut self, node: usize, pod: &Pod, sign: i64) {
        let before = self.totals(node);
        let used = &mut self.used[node];
        used.devices += sign * pod.runtime.devices;
        used.cpu += sign * pod.cpu;
        used.memory += sign * pod.memory;
        let after = self.totals(node);
        self.now.used += after.used - before.used;
        self.now.fragmented += after.fragmented - before.fragmented;
        self.now.empty_nodes += after.empty_nodes - before.empty_nodes;
    }
}

/// Counts of the second half.
#[derive(Default)]
struct Outcome {
    requests: i64,
    placed: i64,
    large: i64,
    large_placed: i64,
    /// Summed over all requests.
    totals: Totals,
    overcommits: u64,
}

pub(super) fn measure(trace: &Trace) -> anyhow::Result<Report> {
    let pods: Vec<&Pod> = trace.pods.iter().filter(|pod| pod.runtime.seconds <= MAX_RUNTIME).collect();
    let devices: i64 = trace.nodes.iter().map(|node| node.devices).sum();
    let mut report = Report::default();
    writeln!(
        report.text,
        "Placement of openb's {} pods with devices and runtimes of at most a day ({} longer ones excluded), in order of \
         arrival, repeated {REPETITIONS} times, evenly spread for the given load of {devices} devices on {} nodes, with CPU \
         and memory. Without a queue: pods that do not fit are rejected. The second half is counted.\n\n\
         | load | placement | placed | of those with {LARGE} devices | devices used | free devices on partly used nodes | \
         empty nodes of {LARGE} devices | overcommits (goal: 0) |\n|--:|---|--:|--:|--:|--:|--:|--:|",
        pods.len(),
        trace.pods.len() - pods.len(),
        trace.nodes.len(),
    )?;
    for load in LOADS {
        for (name, mut strategy) in [
            ("ODC", Strategy::Odc(Box::new(OdcPlacement::new(&trace.nodes, &pods)))),
            ("first fit", Strategy::FirstFit),
            ("least allocated", Strategy::LeastAllocated),
        ] {
            let outcome = simulate(&trace.nodes, &pods, load, &mut strategy)?;
            let Outcome { requests, placed, large, large_placed, totals, overcommits } = outcome;
            let percent = |part: i64, total: i64| part as f64 * 100.0 / total.max(1) as f64;
            writeln!(
                report.text,
                "| {load} % | {name} | {:.1} % | {:.1} % | {:.1} % | {:.1} % | {:.1} | {overcommits} |",
                percent(placed, requests),
                percent(large_placed, large),
                percent(totals.used, devices * requests),
                percent(totals.fragmented, devices * requests - totals.used),
                totals.empty_nodes as f64 / requests.max(1) as f64,
            )?;
            report.goal(overcommits == 0, || format!("placement {name} at {load} %: {overcommits} overcommits"));
        }
    }
    report.text.push('\n');
    Ok(report)
}

fn simulate(nodes: &[Node], pods: &[&Pod], load: i64, strategy: &mut Strategy) -> anyhow::Result<Outcome> {
    let empty_nodes = nodes.iter().filter(|node| node.devices == LARGE).count();
    let now = Totals { empty_nodes: i64::try_from(empty_nodes)?, ..Totals::default() };
    let mut cluster = Cluster { nodes, used: vec![Used::default(); nodes.len()], now };
    let work: i64 = pods.iter().map(|pod| pod.runtime.devices * pod.runtime.seconds).sum();
    let devices: i64 = nodes.iter().map(|node| node.devices).sum();
    let mut outcome = Outcome::default();
    // The end, pod and node of each run.
    let mut ends: BinaryHeap<Reverse<(i64, usize, usize)>> = BinaryHeap::new();
    let all = pods.len() * REPETITIONS;
    for (number, pod) in pods.iter().cycle().take(all).enumerate() {
        let now = i64::try_from(number)? * work / (i64::try_from(pods.len())? * devices * load / 100).max(1);
        while let Some(Reverse((_, ended, node))) = ends.peek().copied().filter(|Reverse((end, ..))| *end <= now) {
            ends.pop();
            cluster.update(node, pods[ended % pods.len()], -1);
            strategy.remove(ended, now);
        }
        let node = strategy.place(number, pod, &cluster, now);
        if let Some(node) = node {
            outcome.overcommits += u64::from(!cluster.fits(node, pod));
            cluster.update(node, pod, 1);
            ends.push(Reverse((now + pod.runtime.seconds, number, node)));
        }
        if number >= all / 2 {
            let (placed, large) = (i64::from(node.is_some()), i64::from(pod.runtime.devices == LARGE));
            outcome.requests += 1;
            outcome.placed += placed;
            outcome.large += large;
            outcome.large_placed += large * placed;
            outcome.totals.used += cluster.now.used;
            outcome.totals.fragmented += cluster.now.fragmented;
            outcome.totals.empty_nodes += cluster.now.empty_nodes;
        }
    }
    Ok(outcome)
}
