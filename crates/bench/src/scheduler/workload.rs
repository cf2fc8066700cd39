//! Traces generated from real or generated runtimes, reproducible by seed.

use odc_core::sim::{Line, Rng, read};
use serde_json::json;

/// Devices of a server and its actual runtime.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runtime {
    pub devices: i64,
    pub seconds: i64,
}

pub(super) struct Workload<'a> {
    pub runtimes: &'a [Runtime],
    pub nodes: usize,
    pub requests: usize,
    /// Requested devices in percent of the capacity.
    pub load: i64,
    pub seed: u64,
    /// A change of behavior for the second half.
    pub shift: Option<Shift>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Shift {
    /// A quarter of the runtime, and four times as many requests.
    ShorterRuns,
    /// Servers run for their lifetime.
    FullLifetime,
}

const PER_NODE: i64 = 8;
const HOUR: i64 = 3_600;
/// Lifetimes in hours that users choose from.
const PRESETS: [i64; 12] = [1, 2, 4, 8, 12, 24, 48, 72, 168, 336, 720, 2_160];

/// Returns the smallest preset that is not below a runtime.
pub(super) fn lifetime(runtime: i64) -> i64 {
    let found = PRESETS.into_iter().map(|hours| hours * HOUR).find(|preset| *preset >= runtime);
    found.unwrap_or_else(|| (runtime / (720 * HOUR) + 1) * 720 * HOUR)
}

/// Generates runtimes: many short, few long, in all sizes.
pub(super) fn generated_runtimes() -> Vec<Runtime> {
    let mut rng = Rng(0x5DEE_CE66_D1CE_4E5B);
    let sizes = [1, 1, 1, 1, 2, 2, 4, 8];
    let runtime = |_| {
        let exponent = rng.below(9);
        let seconds = 300 * (1 << exponent) + rng.number(1_200);
        Runtime { devices: *rng.choose(&sizes).unwrap_or(&1), seconds }
    };
    (0..4_000).map(runtime).collect()
}

impl Workload<'_> {
    pub fn trace(&self) -> anyhow::Result<Vec<(usize, Line)>> {
        let mut text = String::new();
        let mut add = |line: serde_json::Value| text += &format!("{line}\n");
        for node in 0..self.nodes {
            let name = format!("node-{node:03}");
            add(json!({"t": 0, "node": {"name": name, "devices": {"gpu": PER_NODE}, "cpu": 128, "memoryGi": 1024}}));
        }
        add(json!({"t": 0, "flavor": {"name": "gpu", "device": "gpu", "cpuPerDevice": 8, "memoryGiPerDevice": 64}}));
        for team in 0..4 {
            add(json!({"t": 0, "team": {"name": format!("team-{team}")}}));
        }
        for user in 0..24 {
            add(json!({"t": 0, "user": {"name": format!("user-{user}"), "team": format!("team-{}", user % 4)}}));
        }
        let work: i64 = self.runtimes.iter().map(|runtime| runtime.devices * runtime.seconds).sum();
        let mean = work / i64::try_from(self.runtimes.len())?.max(1);
        let capacity = i64::try_from(self.nodes)? * PER_NODE;
        // Mean seconds between two requests for the given load.
        let interval = u64::try_from((mean * 100 / (capacity * self.load.max(1))).max(1))?;
        let mut rng = Rng(self.seed);
        let mut t = 0;
        for number in 0..self.requests {
            let shift = self.shift.filter(|_| number >= self.requests / 2);
            let interval = if matches!(shift, Some(Shift::ShorterRuns)) { interval / 4 } else { interval };
            t += i64::try_from(rng.below(2 * interval + 1))?;
            let Some(runtime) = rng.choose(self.runtimes).copied() else { break };
            let actual = match shift {
                None => runtime.seconds,
                Some(Shift::ShorterRuns) => runtime.seconds / 4,
                Some(Shift::FullLifetime) => lifetime(runtime.seconds),
            };
            let request = json!({
                "id": format!("r{number}"), "user": format!("user-{}", rng.below(24)), "flavor": "gpu",
                "count": runtime.devices, "lifetimeSeconds": lifetime(runtime.seconds), "actualSeconds": actual.max(1),
            });
            add(json!({"t": t, "request": request}));
        }
        Ok(read(&text)?)
    }
}
