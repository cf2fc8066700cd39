//! Traces made from real or made-up stays, the same for the same seed.

use odc_core::sim::{Dice, Line, read};
use serde_json::json;

/// A stay: devices and seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub devices: i64,
    pub seconds: i64,
}

pub(super) struct Workload<'a> {
    pub stays: &'a [Stay],
    pub nodes: usize,
    pub requests: usize,
    /// What is asked for, of what there is, in hundredths.
    pub load: i64,
    pub seed: u64,
    /// From the middle on people behave otherwise.
    pub shift: Option<Shift>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Shift {
    /// They stay only for a quarter of the time, and four times as many come.
    LeaveEarly,
    /// They stay as long as they may.
    StayToTheEnd,
}

const PER_NODE: i64 = 8;
const HOUR: i64 = 3_600;
/// What people choose from.
const PRESETS: [i64; 12] = [1, 2, 4, 8, 12, 24, 48, 72, 168, 336, 720, 2_160];

/// The next preset above a stay.
pub(super) fn lifetime(stay: i64) -> i64 {
    let found = PRESETS.into_iter().map(|hours| hours * HOUR).find(|preset| *preset >= stay);
    found.unwrap_or_else(|| (stay / (720 * HOUR) + 1) * 720 * HOUR)
}

/// Made-up stays: many short, few long, in all sizes.
pub(super) fn made_up() -> Vec<Stay> {
    let mut dice = Dice(0x5DEE_CE66_D1CE_4E5B);
    let sizes = [1, 1, 1, 1, 2, 2, 4, 8];
    let stay = |_| {
        let exponent = dice.roll(9);
        let seconds = 300 * (1 << exponent) + dice.number(1_200);
        Stay { devices: *dice.pick(&sizes).unwrap_or(&1), seconds }
    };
    (0..4_000).map(stay).collect()
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
        let work: i64 = self.stays.iter().map(|stay| stay.devices * stay.seconds).sum();
        let mean = work / i64::try_from(self.stays.len())?.max(1);
        let capacity = i64::try_from(self.nodes)? * PER_NODE;
        // Seconds between two requests, so that they ask for the given part of the devices.
        let between = u64::try_from((mean * 100 / (capacity * self.load.max(1))).max(1))?;
        let mut dice = Dice(self.seed);
        let mut t = 0;
        for number in 0..self.requests {
            let shift = self.shift.filter(|_| number >= self.requests / 2);
            let between = if matches!(shift, Some(Shift::LeaveEarly)) { between / 4 } else { between };
            t += i64::try_from(dice.roll(2 * between + 1))?;
            let Some(stay) = dice.pick(self.stays).copied() else { break };
            let actual = match shift {
                None => stay.seconds,
                Some(Shift::LeaveEarly) => stay.seconds / 4,
                Some(Shift::StayToTheEnd) => lifetime(stay.seconds),
            };
            let request = json!({
                "id": format!("r{number}"), "user": format!("user-{}", dice.roll(24)), "flavor": "gpu",
                "count": stay.devices, "lifetimeSeconds": lifetime(stay.seconds), "actualSeconds": actual.max(1),
            });
            add(json!({"t": t, "request": request}));
        }
        Ok(read(&text)?)
    }
}
