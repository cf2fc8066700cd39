//! The options of prompts and their text. No I/O.

use std::fmt;

use jiff::Timestamp;
use kube::ResourceExt as _;
use odc_api::duration::Duration;
use odc_api::queue::AvailableSize;
use odc_api::v1alpha1::DevServerFlavor;

use crate::clock;
use crate::command::avail;
use crate::command::list;
use crate::model::queue::format_start_short;
use crate::model::server::ServerSummary;
use crate::output::duration::format_duration;
use crate::output::sanitize;

/// A line of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub text: String,
    /// The index of the object.
    pub index: usize,
    /// Why it cannot be chosen.
    pub disabled: Option<String>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Cells that the prompt needs beside a row.
const MARGIN: usize = 4;

/// Returns the header and one aligned row per flavor.
pub fn flavors(
    flavors: &[DevServerFlavor],
    availability: &avail::AvailabilityData,
    user: Option<&str>,
    spot: bool,
    width: usize,
) -> (String, Vec<Row>) {
    let shown: Vec<usize> = (0..flavors.len()).filter(|index| spot || !flavors[*index].spec.spot).collect();
    let table = avail::table(shown.iter().map(|index| &flavors[*index]), availability, clock::now());
    let text = plain(&table.render(false, true, Some(width.saturating_sub(MARGIN))));
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default().to_owned();
    let rows = lines.zip(shown).map(|(line, index)| {
        let flavor = &flavors[index];
        let allowed = |name: &str| {
            flavor
                .spec
                .maintenance
                .as_ref()
                .is_some_and(|maintenance| maintenance.allow.iter().any(|allowed| allowed.as_str() == name))
        };
        let maintenance = flavor.spec.maintenance.as_ref().filter(|_| !user.is_some_and(allowed));
        let disabled = maintenance
            .map(|maintenance| format!("Flavor {} is in maintenance: {}", flavor.name_any(), maintenance.message));
        Row { text: line.to_owned(), index, disabled }
    });
    (header, rows.collect())
}

/// Returns one row per server, as in `devctl list`.
pub fn servers(servers: &[ServerSummary], width: usize, now: Timestamp) -> Vec<Row> {
    let text = plain(&list::table(servers, false, now).render(false, false, Some(width.saturating_sub(MARGIN))));
    text.lines().enumerate().map(|(index, line)| Row { text: line.to_owned(), index, disabled: None }).collect()
}

/// Returns the nodes of a multi-node server.
pub fn nodes(server: &ServerSummary) -> Vec<String> {
    let row = |number: u32| {
        let name = format!("{}-{number}", server.name());
        let pod = server.status.pods.iter().find(|pod| pod.name == name);
        let node = pod.and_then(|pod| pod.node.as_deref()).map(|node| format!("  on {node}")).unwrap_or_default();
        let first = if number == 0 { "  (first node, with the home directory)" } else { "" };
        sanitize(&format!("{name}{node}{first}")).into_owned()
    };
    (0..server.nodes()).map(row).collect()
}

/// A number of GPUs and nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    pub gpus: u32,
    pub nodes: u32,
    /// When it would start.
    pub start: String,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = match (self.gpus, self.nodes) {
            (0, _) => "none".to_owned(),
            (gpus, 1) => gpus.to_string(),
            (gpus, nodes) => format!("{} on {nodes} nodes", gpus * nodes),
        };
        if self.start.is_empty() { f.write_str(&count) } else { write!(f, "{count:<16}  {}", self.start) }
    }
}

/// The most nodes the prompt offers; `--nodes` accepts more.
const MAX_OFFERED_NODES: u32 = 6;

/// Returns the sizes a flavor offers: GPUs per node, and nodes.
pub fn offered(flavor: &DevServerFlavor) -> Vec<(u32, u32)> {
    let Some(device) = &flavor.spec.device else { return Vec::new() };
    let mut counts: Vec<u32> =
        if device.counts.is_empty() { powers_of_two(device.per_node) } else { device.counts.clone() };
    counts.sort_unstable();
    let total = flavor.status.as_ref().and_then(|status| status.total).unwrap_or(0);
    let nodes = total / i64::from(device.per_node);
    let multi_node =
        (2..=MAX_OFFERED_NODES).filter(|size| i64::from(*size) <= nodes).map(|nodes| (device.per_node, nodes));
    counts.into_iter().map(|count| (count, 1)).chain(multi_node).collect()
}

/// Returns the sizes a flavor offers and when each would start. Without an estimate of the queue API, the text only says
/// what is free.
pub fn counts(flavor: &DevServerFlavor, sizes: &[AvailableSize], now: Timestamp) -> Vec<Count> {
    let count = |(gpus, nodes): (u32, u32)| {
        let size = sizes.iter().find(|size| (size.count, size.nodes) == (gpus, nodes));
        let start = size.map_or_else(|| start_by_status(flavor, gpus, nodes), |size| start_by_queue(size, now));
        Count { gpus, nodes, start }
    };
    offered(flavor).into_iter().map(count).collect()
}

fn start_by_queue(size: &AvailableSize, now: Timestamp) -> String {
    match format_start_short(&size.start, now) {
        Some(_) if size.start.now => "free now".to_owned(),
        Some(start) => start,
        // The message says why it never starts.
        None => size.message.clone().unwrap_or_else(|| "start time unknown".to_owned()),
    }
}

fn start_by_status(flavor: &DevServerFlavor, gpus: u32, nodes: u32) -> String {
    let status = flavor.status.clone().unwrap_or_default();
    let (free, block, whole) = (status.free.unwrap_or(0), status.largest_block, status.whole_nodes_free);
    match nodes {
        1 if i64::from(gpus) <= block.unwrap_or(0) => "free now".to_owned(),
        1 if free >= i64::from(gpus) => "queued: enough free GPUs, but not on one node".to_owned(),
        2.. if i64::from(nodes) <= whole.unwrap_or(0) => "free now".to_owned(),
        _ => queued(status.free, status.queue_length),
    }
}

fn queued(free: Option<i64>, queue: Option<i64>) -> String {
    match queue.unwrap_or(0) {
        0 => format!("queued: {} free", free.unwrap_or(0)),
        pending => format!("queued: {} free, {pending} servers ahead", free.unwrap_or(0)),
    }
}

fn powers_of_two(max: u32) -> Vec<u32> {
    let mut all: Vec<u32> =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count <= max).collect();
    if all.last() != Some(&max) {
        all.push(max);
    }
    all
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    pub lifetime: Duration,
    pub default: bool,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.lifetime))
    }
}

/// Offered lifetimes, in minutes.
const PRESETS: &[u64] = &[15, 30, 60, 120, 240, 480, 720, 1440];
/// Further lifetimes of flavors without GPUs, in minutes.
const LONG_PRESETS: &[u64] = &[2880, 10_080, 43_200];
/// In minutes.
const DEFAULT_PRESET: u64 = 480;

/// Returns the lifetimes within the limits of a flavor.
pub fn lifetimes(flavor: &DevServerFlavor) -> Vec<Preset> {
    let long: &[u64] = if flavor.spec.device.is_none() { LONG_PRESETS } else { &[] };
    let limits = &flavor.spec.limits;
    let max = [limits.lifetime, limits.total].into_iter().flatten().min();
    let preset = |minutes: &u64| Preset {
        lifetime: Duration::from_std(std::time::Duration::from_secs(minutes * 60)),
        default: *minutes == DEFAULT_PRESET,
    };
    let all = PRESETS.iter().chain(long).map(preset);
    let allowed: Vec<Preset> = all.filter(|preset| max.is_none_or(|max| preset.lifetime <= max)).collect();
    if allowed.iter().any(|preset| preset.default) || allowed.is_empty() {
        return allowed;
    }
    // The default exceeds the limit: default to the longest allowed.
    let last = allowed.len() - 1;
    allowed.into_iter().enumerate().map(|(at, preset)| Preset { default: at == last, ..preset }).collect()
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use odc_api::queue::StartEstimate;
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

    fn labels(flavor: &DevServerFlavor) -> Vec<String> {
        counts(flavor, &[], Timestamp::UNIX_EPOCH).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn counts_show_the_start_time_of_the_queue_api() {
        let later = |seconds| Time(Timestamp::from_second(seconds).unwrap());
        let size = |count, nodes, start, message: Option<&str>| AvailableSize {
            count,
            nodes,
            start,
            message: message.map(str::to_owned),
        };
        let sizes = [
            size(1, 1, StartEstimate { now: true, ..StartEstimate::default() }, None),
            size(4, 1, StartEstimate { p50: Some(later(4800)), ..StartEstimate::default() }, Some("None is free.")),
            size(8, 2, StartEstimate::default(), Some("No node has more than 4.")),
        ];
        let all = counts(&gpu(6, 3, 0, 0), &sizes, Timestamp::UNIX_EPOCH);
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(all[0], "1                 free now");
        assert_eq!(all[2], "4                 in about 1h20m");
        assert_eq!(all[3], "8                 queued: 6 free", "no estimate");
        assert_eq!(all[4], "16 on 2 nodes     No node has more than 4.");
    }

    #[test]
    fn counts_without_estimates_show_free_gpus() {
        let all = labels(&gpu(6, 3, 0, 0));
        assert_eq!(all[0], "1                 free now");
        assert_eq!(all[2], "4                 queued: enough free GPUs, but not on one node");
        assert_eq!(all[3], "8                 queued: 6 free");
        assert_eq!(all[4], "16 on 2 nodes     queued: 6 free");
        assert_eq!(labels(&gpu(0, 0, 0, 3))[0], "1                 queued: 0 free, 3 servers ahead");
        assert_eq!(labels(&gpu(16, 8, 2, 0)).last().unwrap(), "16 on 2 nodes     free now");
        assert!(labels(&DevServerFlavor::test_cpu()).is_empty());
    }

    #[test]
    fn flavor_in_maintenance_is_disabled_except_for_allowed_users() {
        let mut flavor = gpu(8, 8, 1, 0);
        flavor.spec.maintenance =
            Some(Maintenance { message: "New drivers.".into(), allow: vec!["bob".parse().unwrap()] });
        let all = [flavor];
        let disabled = |user| flavors(&all, &None, Some(user), false, 80).1[0].disabled.clone();
        assert_eq!(disabled("ada").as_deref(), Some("Flavor flavor-gpu is in maintenance: New drivers."));
        assert_eq!(disabled("bob"), None);
    }

    #[test]
    fn spot_flavors_are_hidden_by_default() {
        let mut spot = gpu(8, 8, 1, 0);
        spot.spec.spot = true;
        let all = [DevServerFlavor::test_cpu(), spot];
        assert_eq!(flavors(&all, &None, None, false, 80).1.len(), 1);
        assert_eq!(flavors(&all, &None, None, true, 80).1.iter().map(|row| row.index).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn nodes_are_offered_in_order() {
        let server = serde_json::json!({"metadata": {"name": "gang"}, "spec": {"home": {}, "nodes": 2},
            "status": {"pods": [{"name": "gang-1", "node": "gpu-7"}]}});
        let server: ServerSummary = serde_json::from_value(server).unwrap();
        assert_eq!(nodes(&server), ["gang-0  (first node, with the home directory)", "gang-1  on gpu-7"]);
    }

    #[test]
    fn presets_respect_limits_and_have_a_default() {
        let labels = |flavor: &DevServerFlavor| lifetimes(flavor).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(labels(&DevServerFlavor::test()), ["15m", "30m", "1h", "2h", "4h", "8h", "12h", "24h"]);
        assert_eq!(labels(&DevServerFlavor::test_cpu())[8..], ["2d", "7d", "30d"]);
        let short = lifetimes(&DevServerFlavor::test().limits("4h", "4h", "4h"));
        assert!(short.last().unwrap().default && short.len() == 5);
        assert!(lifetimes(&DevServerFlavor::test())[5].default);
    }

    #[test]
    fn counts_without_a_list_are_powers_of_two_and_the_whole_node() {
        assert_eq!(powers_of_two(8), [1, 2, 4, 8]);
        assert_eq!(powers_of_two(6), [1, 2, 4, 6]);
    }
}
