//! The public openb trace of a GPU cluster, for real runtimes and nodes.

use std::path::Path;

use anyhow::Context as _;

use super::workload::Runtime;

/// Longer runtimes are excluded. These are 1 % of the pods, run up to months, and are services: they would dominate the
/// work, so that a trace of a few days would not reach its load.
pub(super) const MAX_RUNTIME: i64 = 24 * 3_600;

pub(super) struct Trace {
    pub nodes: Vec<Node>,
    /// In order of arrival.
    pub pods: Vec<Pod>,
    /// Runtimes of at most a day, of the earlier half of the pods for tuning, and of the later half for results.
    pub earlier: Vec<Runtime>,
    pub later: Vec<Runtime>,
    /// The number of all runtimes of the earlier half.
    pub earlier_all: usize,
    /// All runtimes of the later half.
    pub later_all: Vec<Runtime>,
}

/// CPU in thousandths of a core, memory in MiB.
pub(super) struct Node {
    pub name: String,
    pub cpu: i64,
    pub memory: i64,
    pub devices: i64,
    pub model: String,
}

pub(super) struct Pod {
    created_at: i64,
    pub cpu: i64,
    pub memory: i64,
    pub runtime: Runtime,
    /// The device models it can use, separated by `|`; empty for any.
    pub models: String,
}

impl Pod {
    pub fn accepts(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.split('|').any(|one| one == model)
    }
}

pub(super) fn read(directory: &Path) -> anyhow::Result<Trace> {
    let table = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let nodes = table("nodes.csv")?.lines().skip(1).filter_map(node).collect();
    let mut pods: Vec<Pod> = table("pods.csv")?.lines().skip(1).filter_map(pod).collect();
    pods.sort_by_key(|pod| pod.created_at);
    let runtimes = |pods: &[Pod]| pods.iter().map(|pod| pod.runtime).collect::<Vec<_>>();
    let short =
        |all: &[Runtime]| all.iter().copied().filter(|runtime| runtime.seconds <= MAX_RUNTIME).collect::<Vec<_>>();
    let (earlier, later) = pods.split_at(pods.len() / 2);
    let (earlier, later_all) = (runtimes(earlier), runtimes(later));
    let earlier_all = earlier.len();
    Ok(Trace { nodes, earlier: short(&earlier), later: short(&later_all), earlier_all, later_all, pods })
}

fn node(line: &str) -> Option<Node> {
    let cells: Vec<&str> = line.split(',').collect();
    let number = |column: usize| cells.get(column)?.parse::<i64>().ok();
    let (cpu, memory, devices) = (number(1)?, number(2)?, number(3).filter(|devices| *devices > 0)?);
    Some(Node { name: (*cells.first()?).to_owned(), cpu, memory, devices, model: (*cells.get(4)?).to_owned() })
}

/// Parses a pod. Shares of a device are rounded up to one; pods without a device are skipped.
fn pod(line: &str) -> Option<Pod> {
    let cells: Vec<&str> = line.split(',').collect();
    let number = |column: usize| cells.get(column)?.parse::<i64>().ok();
    let (cpu, memory, devices) = (number(1)?, number(2)?, number(3)?);
    let (created_at, deleted_at) = (number(8)?, number(9)?);
    let seconds = deleted_at - number(10).unwrap_or(created_at);
    let (runtime, models) = (Runtime { devices, seconds }, (*cells.get(5)?).to_owned());
    (devices > 0 && seconds > 0).then_some(Pod { created_at, cpu, memory, runtime, models })
}
