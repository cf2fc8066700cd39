//! A public trace of a GPU cluster, for stays that are real and for placement on nodes that are.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use odc_core::scheduler::Policy;
use odc_core::sim::{self, Options};
use serde_json::json;

use super::workload::{Stay, lifetime};

/// One in a hundred stays longer, up to months. These are services, not reservations: they would be nearly all of the work,
/// and no trace of a few days would ever be under the load it is made for.
const LONGEST: i64 = 24 * 3_600;

pub(super) struct Trace {
    nodes: Vec<(String, i64, String)>,
    pods: Vec<Pod>,
    /// Stays of at most a day, of the earlier and the later half of the pods in the order they came. The earlier half is for
    /// tuning, the later one for nothing but the result.
    pub earlier: Vec<Stay>,
    pub later: Vec<Stay>,
}

struct Pod {
    name: String,
    came: i64,
    stay: Stay,
    models: Vec<String>,
}

pub(super) fn read(directory: &Path) -> anyhow::Result<Trace> {
    let table = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let nodes = table("nodes.csv")?.lines().skip(1).filter_map(node).collect();
    let mut pods: Vec<Pod> = table("pods.csv")?.lines().skip(1).filter_map(pod).collect();
    pods.sort_by_key(|pod| pod.came);
    let stays = |pods: &[Pod]| pods.iter().map(|pod| pod.stay).filter(|stay| stay.seconds <= LONGEST).collect();
    let (earlier, later) = pods.split_at(pods.len() / 2);
    let (earlier, later) = (stays(earlier), stays(later));
    Ok(Trace { nodes, pods, earlier, later })
}

fn node(line: &str) -> Option<(String, i64, String)> {
    let cells: Vec<&str> = line.split(',').collect();
    let devices = cells.get(3)?.parse().ok().filter(|devices| *devices > 0)?;
    Some(((*cells.first()?).to_owned(), devices, (*cells.get(4)?).to_owned()))
}

/// Shares of a device are rounded up to one; pods without a device are left out.
fn pod(line: &str) -> Option<Pod> {
    let cells: Vec<&str> = line.split(',').collect();
    let number = |at: usize| cells.get(at)?.parse::<i64>().ok();
    let (devices, came, gone) = (number(3)?, number(8)?, number(9)?);
    let seconds = gone - number(10).unwrap_or(came);
    let models = cells.get(5)?.split('|').filter(|model| !model.is_empty()).map(str::to_owned).collect();
    let stay = Stay { devices, seconds };
    (devices > 0 && seconds > 0).then(|| Pod { name: cells[0].to_owned(), came, stay, models })
}

/// All pods on all nodes, as they came.
pub(super) fn place(trace: &Trace) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut add = |line: serde_json::Value| text += &format!("{line}\n");
    for (name, devices, model) in &trace.nodes {
        let labels = json!({"model": model});
        add(
            json!({"t": 0, "node": {"name": name, "devices": {"gpu": devices}, "cpu": 1_000, "memoryGi": 10_000, "labels": labels}}),
        );
    }
    let flavor = |models: &[String]| if models.len() == 1 { models[0].clone() } else { "any".to_owned() };
    let kinds: BTreeSet<String> = trace.pods.iter().map(|pod| flavor(&pod.models)).collect();
    for kind in &kinds {
        let selector = if kind == "any" { json!({}) } else { json!({"model": kind}) };
        add(json!({"t": 0, "flavor": {"name": kind, "device": "gpu", "nodeSelector": selector}}));
    }
    for pod in &trace.pods {
        let request = json!({
            "id": pod.name, "user": "all", "flavor": flavor(&pod.models), "count": pod.stay.devices,
            "lifetimeSeconds": lifetime(pod.stay.seconds), "actualSeconds": pod.stay.seconds,
        });
        add(json!({"t": pod.came, "request": request}));
    }
    let played = sim::simulate(
        &sim::read(&text)?,
        &Policy::default(),
        Options { bare: true, ..Options::default() },
        &mut |_| {},
    )?;
    let waited = played
        .requests
        .iter()
        .filter(|request| request.runs.first().is_none_or(|run| run.started_at > request.queued_at));
    let (waited, totals) = (waited.count(), &played.totals);
    let mut report = String::new();
    writeln!(
        report,
        "Placement of openb's {} pods with devices on its {} nodes: {waited} had to wait, {:.1} % of the devices used, \
         {:.1} % of the free ones on nodes that were partly used, {} over-commits.\n",
        played.requests.len(),
        trace.nodes.len(),
        totals.utilisation * 100.0,
        totals.fragmentation * 100.0,
        totals.overcommits
    )?;
    Ok(report)
}
