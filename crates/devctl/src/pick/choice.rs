//! What there is to choose from, and how it is said. Pure.

use std::fmt;

use jiff::Timestamp;
use kube::ResourceExt as _;
use odc_api::duration::Duration;
use odc_api::queue::Size;
use odc_api::v1alpha1::DevServerFlavor;

use crate::command::avail;
use crate::command::list;
use crate::glance::Glance;
use crate::output::harmless;
use crate::prospect::in_short;

/// A line to choose, and why it cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub text: String,
    /// Its place in what the lines were made of.
    pub index: usize,
    pub refusal: Option<String>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Beside a row stands the mark of the chosen one, and a terminal breaks a line that fills it.
const MARGIN: usize = 4;

/// A title and a line for each flavor, aligned.
pub fn flavors(
    flavors: &[DevServerFlavor],
    told: &avail::Told,
    me: Option<&str>,
    spot: bool,
    width: usize,
) -> (String, Vec<Row>) {
    let shown: Vec<usize> = (0..flavors.len()).filter(|index| spot || !flavors[*index].spec.spot).collect();
    let table = avail::table(shown.iter().map(|index| &flavors[*index]), told, Timestamp::now());
    let text = plain(&table.render(false, true, Some(width.saturating_sub(MARGIN))));
    let mut lines = text.lines();
    let title = lines.next().unwrap_or_default().to_owned();
    let rows = lines.zip(shown).map(|(line, index)| {
        let flavor = &flavors[index];
        let allowed = |name: &str| {
            flavor.spec.maintenance.as_ref().is_some_and(|pause| pause.allow.iter().any(|user| user.as_str() == name))
        };
        let pause = flavor.spec.maintenance.as_ref().filter(|_| !me.is_some_and(allowed));
        let refusal = pause.map(|pause| format!("{} is in maintenance: {}", flavor.name_any(), pause.message));
        Row { text: line.to_owned(), index, refusal }
    });
    (title, rows.collect())
}

/// Servers to choose from, as in a list.
pub fn servers(servers: &[Glance], width: usize, now: Timestamp) -> Vec<Row> {
    let text = plain(&list::table(servers, false, now).render(false, false, Some(width.saturating_sub(MARGIN))));
    text.lines().enumerate().map(|(index, line)| Row { text: line.to_owned(), index, refusal: None }).collect()
}

/// The nodes of a gang in their order, each with where it is.
pub fn nodes(server: &Glance) -> Vec<String> {
    let row = |number: u32| {
        let name = format!("{}-{number}", server.name());
        let pod = server.status.pods.iter().find(|pod| pod.name == name);
        let place = pod.and_then(|pod| pod.node.as_deref()).map(|node| format!("  on {node}")).unwrap_or_default();
        let first = if number == 0 { "  the first, where the home is" } else { "" };
        harmless(&format!("{name}{place}{first}")).into_owned()
    };
    (0..server.nodes()).map(row).collect()
}

/// So many GPUs on so many nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    pub gpus: u32,
    pub nodes: u32,
    pub remark: String,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (self.gpus, self.nodes) {
            (0, _) => "none".to_owned(),
            (gpus, 1) => gpus.to_string(),
            (gpus, nodes) => format!("{} on {nodes} nodes", gpus * nodes),
        };
        if self.remark.is_empty() { f.write_str(&what) } else { write!(f, "{what:<16}  {}", self.remark) }
    }
}

/// The largest gang that is offered; larger ones are asked for with flags.
const MOST_NODES: u32 = 6;

/// The sizes a flavor offers: GPUs on each node, and nodes.
pub fn offered(flavor: &DevServerFlavor) -> Vec<(u32, u32)> {
    let Some(device) = &flavor.spec.device else { return Vec::new() };
    let mut counts: Vec<u32> = if device.counts.is_empty() { powers(device.per_node) } else { device.counts.clone() };
    counts.sort_unstable();
    let total = flavor.status.as_ref().and_then(|status| status.total).unwrap_or(0);
    let nodes = total / i64::from(device.per_node);
    let gangs = (2..=MOST_NODES).filter(|size| i64::from(*size) <= nodes).map(|nodes| (device.per_node, nodes));
    counts.into_iter().map(|count| (count, 1)).chain(gangs).collect()
}

/// What a flavor offers, each with when it would start. What the queue did not say is judged by what is free, and
/// nothing is promised.
pub fn counts(flavor: &DevServerFlavor, said: &[Size], now: Timestamp) -> Vec<Count> {
    let count = |(gpus, nodes): (u32, u32)| {
        let size = said.iter().find(|size| (size.count, size.nodes) == (gpus, nodes));
        let remark = size.map_or_else(|| by_status(flavor, gpus, nodes), |size| by_queue(size, now));
        Count { gpus, nodes, remark }
    };
    offered(flavor).into_iter().map(count).collect()
}

fn by_queue(size: &Size, now: Timestamp) -> String {
    match in_short(&size.start, now) {
        Some(_) if size.start.now => "free now".to_owned(),
        Some(starts) => starts,
        // What never starts says why.
        None => size.message.clone().unwrap_or_else(|| "nobody knows when".to_owned()),
    }
}

fn by_status(flavor: &DevServerFlavor, gpus: u32, nodes: u32) -> String {
    let status = flavor.status.clone().unwrap_or_default();
    let (free, block, whole) = (status.free.unwrap_or(0), status.largest_block, status.whole_nodes_free);
    match nodes {
        1 if i64::from(gpus) <= block.unwrap_or(0) => "free now".to_owned(),
        1 if free >= i64::from(gpus) => "waits: enough are free, but not on one node".to_owned(),
        2.. if i64::from(nodes) <= whole.unwrap_or(0) => "free now".to_owned(),
        _ => waits(status.free, status.queue_length),
    }
}

fn waits(free: Option<i64>, queue: Option<i64>) -> String {
    match queue.unwrap_or(0) {
        0 => format!("waits: {} free", free.unwrap_or(0)),
        before => format!("waits: {} free, {before} before you", free.unwrap_or(0)),
    }
}

fn powers(most: u32) -> Vec<u32> {
    let mut all: Vec<u32> =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count <= most).collect();
    if all.last() != Some(&most) {
        all.push(most);
    }
    all
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    pub length: Duration,
    pub usual: bool,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.length.as_std().as_secs() / 3600;
        match hours {
            720 => f.write_str("30 days"),
            168 => f.write_str("7 days"),
            48 => f.write_str("2 days"),
            _ => self.length.fmt(f),
        }
    }
}

const MINUTES: &[u64] = &[15, 30, 60, 120, 240, 480, 720, 1440];
/// Machines without GPUs may be kept for long.
const LONGER: &[u64] = &[2880, 10_080, 43_200];
const USUAL: u64 = 480;

/// Lengths that the flavor's limits allow.
pub fn lifetimes(flavor: &DevServerFlavor) -> Vec<Preset> {
    let longer: &[u64] = if flavor.spec.device.is_none() { LONGER } else { &[] };
    let limits = &flavor.spec.limits;
    let most = [limits.lifetime, limits.total].into_iter().flatten().min();
    let preset = |minutes: &u64| Preset {
        length: Duration::from_std(std::time::Duration::from_secs(minutes * 60)),
        usual: *minutes == USUAL,
    };
    let all = MINUTES.iter().chain(longer).map(preset);
    let allowed: Vec<Preset> = all.filter(|preset| most.is_none_or(|most| preset.length <= most)).collect();
    if allowed.iter().any(|preset| preset.usual) || allowed.is_empty() {
        return allowed;
    }
    // A flavor for less than the usual time: the longest it allows.
    let last = allowed.len() - 1;
    allowed.into_iter().enumerate().map(|(at, preset)| Preset { usual: at == last, ..preset }).collect()
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use odc_api::queue::Start;
    use odc_api::v1alpha1::{DevServerFlavorStatus, Maintenance};

    use super::*;

    fn gpu(free: i64, block: i64, whole: i64, queue: i64) -> DevServerFlavor {
        let mut flavor = DevServerFlavor::test();
        flavor.status = Some(DevServerFlavorStatus {
            total: Some(16),
            free: Some(free),
            largest_block: Some(block),
            whole_nodes_free: Some(whole),
            queue_length: Some(queue),
            ..DevServerFlavorStatus::default()
        });
        flavor
    }

    fn said(flavor: &DevServerFlavor) -> Vec<String> {
        counts(flavor, &[], Timestamp::UNIX_EPOCH).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn counts_say_when_they_would_start_where_the_queue_does() {
        let later = |seconds| Time(Timestamp::from_second(seconds).unwrap());
        let size = |count, nodes, start, message: Option<&str>| Size {
            count,
            nodes,
            start,
            message: message.map(str::to_owned),
        };
        let sizes = [
            size(1, 1, Start { now: true, ..Start::default() }, None),
            size(4, 1, Start { p50: Some(later(4800)), ..Start::default() }, Some("None is free.")),
            size(8, 2, Start::default(), Some("No node has more than 4.")),
        ];
        let all = counts(&gpu(6, 3, 0, 0), &sizes, Timestamp::UNIX_EPOCH);
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(all[0], "1                 free now");
        assert_eq!(all[2], "4                 in about 1 h 20 m");
        assert_eq!(all[3], "8                 waits: 6 free", "it was not said");
        assert_eq!(all[4], "16 on 2 nodes     No node has more than 4.");
    }

    #[test]
    fn counts_say_what_is_free_and_promise_nothing_else() {
        let all = said(&gpu(6, 3, 0, 0));
        assert_eq!(all[0], "1                 free now");
        assert_eq!(all[2], "4                 waits: enough are free, but not on one node");
        assert_eq!(all[3], "8                 waits: 6 free");
        assert_eq!(all[4], "16 on 2 nodes     waits: 6 free");
        assert_eq!(said(&gpu(0, 0, 0, 3))[0], "1                 waits: 0 free, 3 before you");
        assert_eq!(said(&gpu(16, 8, 2, 0)).last().unwrap(), "16 on 2 nodes     free now");
        assert!(said(&DevServerFlavor::test_cpu()).is_empty());
    }

    #[test]
    fn a_flavor_in_maintenance_is_shown_and_refused_but_for_those_allowed() {
        let mut paused = gpu(8, 8, 1, 0);
        paused.spec.maintenance =
            Some(Maintenance { message: "New drivers.".into(), allow: vec!["bob".parse().unwrap()] });
        let all = [paused];
        let refusal = |me| flavors(&all, &None, Some(me), false, 80).1[0].refusal.clone();
        assert_eq!(refusal("ada").as_deref(), Some("flavor-gpu is in maintenance: New drivers."));
        assert_eq!(refusal("bob"), None);
    }

    #[test]
    fn spot_flavors_are_hidden_until_asked_for() {
        let mut spot = gpu(8, 8, 1, 0);
        spot.spec.spot = true;
        let all = [DevServerFlavor::test_cpu(), spot];
        assert_eq!(flavors(&all, &None, None, false, 80).1.len(), 1);
        assert_eq!(flavors(&all, &None, None, true, 80).1.iter().map(|row| row.index).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn nodes_are_offered_in_their_order() {
        let server = serde_json::json!({"metadata": {"name": "gang"}, "spec": {"home": {}, "nodes": 2},
            "status": {"pods": [{"name": "gang-1", "node": "gpu-7"}]}});
        let server: Glance = serde_json::from_value(server).unwrap();
        assert_eq!(nodes(&server), ["gang-0  the first, where the home is", "gang-1  on gpu-7"]);
    }

    #[test]
    fn presets_keep_to_the_limits_and_know_the_usual() {
        let said = |flavor: &DevServerFlavor| lifetimes(flavor).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(said(&DevServerFlavor::test()), ["15m", "30m", "1h", "2h", "4h", "8h", "12h", "24h"]);
        assert_eq!(said(&DevServerFlavor::test_cpu())[8..], ["2 days", "7 days", "30 days"]);
        let short = lifetimes(&DevServerFlavor::test().limits("4h", "4h", "4h"));
        assert!(short.last().unwrap().usual && short.len() == 5);
        assert!(lifetimes(&DevServerFlavor::test())[5].usual);
    }

    #[test]
    fn counts_without_a_list_are_powers_and_the_whole_node() {
        assert_eq!(powers(8), [1, 2, 4, 8]);
        assert_eq!(powers(6), [1, 2, 4, 6]);
    }
}
