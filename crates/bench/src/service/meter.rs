//! CPU time of the processes under test and of PostgreSQL.

use std::time::Duration;

use super::fixture::Fixture;
use crate::cpu;

/// A measurement that has begun.
pub(super) struct Meter {
    processes: Vec<u32>,
    postgres: u32,
    start: CpuTime,
}

#[derive(Clone, Copy, Default)]
pub(super) struct CpuTime {
    pub processes: Duration,
    pub postgres: Duration,
}

impl Meter {
    pub(super) fn start(fixture: &Fixture<'_>, processes: Vec<u32>) -> anyhow::Result<Self> {
        let mut meter = Self { processes, postgres: fixture.postgres, start: CpuTime::default() };
        meter.start = meter.elapsed()?;
        Ok(meter)
    }

    /// Returns the CPU time since the start.
    pub(super) fn elapsed(&self) -> anyhow::Result<CpuTime> {
        let processes: Duration =
            self.processes.iter().map(|pid| cpu::process(*pid)).sum::<anyhow::Result<Duration>>()?;
        Ok(CpuTime {
            processes: processes.saturating_sub(self.start.processes),
            postgres: cpu::process_and_children(self.postgres)?.saturating_sub(self.start.postgres),
        })
    }
}

impl std::ops::AddAssign for CpuTime {
    fn add_assign(&mut self, other: Self) {
        self.processes += other.processes;
        self.postgres += other.postgres;
    }
}
