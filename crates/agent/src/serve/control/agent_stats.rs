//! Resource usage of the agent itself.

use std::fs;
use std::time::Duration;

use odc_control::{Line, Signals, Stats};
use rustix::param::{clock_ticks_per_second, page_size};

use crate::serve::activity::proc_stat;

pub fn stats(signals: &Signals) -> Stats {
    let sample = fs::read("/proc/self/stat").ok().and_then(|stat| proc_stat::parse(std::process::id(), &stat));
    let ticks = sample.map(|sample| sample.own_ticks).unwrap_or_default();
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    let tick =
        Duration::from_secs(1).checked_div(u32::try_from(clock_ticks_per_second()).unwrap_or(100)).unwrap_or_default();
    Stats {
        version: Line::new(env!("CARGO_PKG_VERSION")),
        up_seconds: signals.up_seconds,
        memory_bytes: resident.saturating_mul(u64::try_from(page_size()).unwrap_or_default()),
        cpu_milliseconds: ticks.saturating_mul(u64::try_from(tick.as_millis()).unwrap_or_default()),
        open_files: fs::read_dir("/proc/self/fd").map_or(0, |files| u32::try_from(files.count()).unwrap_or(u32::MAX)),
        sessions: signals.sessions.open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_and_files_are_reported() {
        let Stats { version, memory_bytes, open_files, .. } = stats(&Signals::default());
        assert_eq!(version.as_str(), env!("CARGO_PKG_VERSION"));
        assert!(memory_bytes > 1 << 20 && open_files >= 3);
    }
}
