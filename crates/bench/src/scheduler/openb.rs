//! A public trace of a GPU cluster, for stays that are real and for placement on nodes that are.

use std::path::Path;

use anyhow::Context as _;

use super::workload::Stay;

/// One in a hundred stays longer, up to months. These are services, not reservations: they would be nearly all of the work,
/// and no trace of a few days would ever be under the load it is made for.
pub(super) const LONGEST: i64 = 24 * 3_600;

pub(super) struct Trace {
    pub nodes: Vec<Node>,
    /// In the order they came.
    pub pods: Vec<Pod>,
    /// Stays of at most a day, of the earlier and the later half of the pods. The earlier half is for tuning, the later one
    /// for nothing but the result.
    pub earlier: Vec<Stay>,
    pub later: Vec<Stay>,
    /// How many stays the earlier half has, and those of the later one, with those of more than a day.
    pub earlier_all: usize,
    pub later_all: Vec<Stay>,
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
    came: i64,
    pub cpu: i64,
    pub memory: i64,
    pub stay: Stay,
    /// The models of device it can use, with `|` between them; none for any.
    pub models: String,
}

impl Pod {
    pub fn takes(&self, model: &str) -> bool {
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
    pods.sort_by_key(|pod| pod.came);
    let stays = |pods: &[Pod]| pods.iter().map(|pod| pod.stay).collect::<Vec<_>>();
    let short = |stays: &[Stay]| stays.iter().copied().filter(|stay| stay.seconds <= LONGEST).collect::<Vec<_>>();
    let (earlier, later) = pods.split_at(pods.len() / 2);
    let (earlier, later_all) = (stays(earlier), stays(later));
    let earlier_all = earlier.len();
    Ok(Trace { nodes, earlier: short(&earlier), later: short(&later_all), earlier_all, later_all, pods })
}

fn node(line: &str) -> Option<Node> {
    let cells: Vec<&str> = line.split(',').collect();
    let number = |at: usize| cells.get(at)?.parse::<i64>().ok();
    let (cpu, memory, devices) = (number(1)?, number(2)?, number(3).filter(|devices| *devices > 0)?);
    Some(Node { name: (*cells.first()?).to_owned(), cpu, memory, devices, model: (*cells.get(4)?).to_owned() })
}

/// Shares of a device are rounded up to one; pods without a device are left out.
fn pod(line: &str) -> Option<Pod> {
    let cells: Vec<&str> = line.split(',').collect();
    let number = |at: usize| cells.get(at)?.parse::<i64>().ok();
    let (cpu, memory, devices) = (number(1)?, number(2)?, number(3)?);
    let (came, gone) = (number(8)?, number(9)?);
    let seconds = gone - number(10).unwrap_or(came);
    let (stay, models) = (Stay { devices, seconds }, (*cells.get(5)?).to_owned());
    (devices > 0 && seconds > 0).then_some(Pod { came, cpu, memory, stay, models })
}
