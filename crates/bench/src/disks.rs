//! Disks on a local cluster with two nodes: restore points of small and large disks, the start of a server and of a Browse
//! operation, and many disks at once. The baseline is a server with an ephemeral home.

mod burst;
mod fixture;
mod points;
mod starts;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use odc_tests::with_scratch_cluster;

use fixture::Fixture;

/// User of the measurements of single disks.
const USER: &str = "bench";

/// Returns the report in Markdown.
pub(crate) async fn run() -> anyhow::Result<String> {
    with_scratch_cluster(async |scratch| {
        scratch.odc_local(&["up", "--nodes", "2", "--gpus", "0"]).await?.check()?;
        let cluster = scratch.cluster().await?;
        let fixture = Fixture::new(&cluster, USER).await?;
        let mut report = String::new();
        let point = Box::pin(points::measure(&fixture, &mut report)).await?;
        Box::pin(starts::measure_servers(&fixture, &mut report)).await?;
        Box::pin(starts::measure_browse(&fixture, &point, &mut report)).await?;
        Box::pin(burst::measure(&cluster, &mut report)).await?;
        Ok(report)
    })
    .await
}

/// Durations of one kind of measurement.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    /// Runs a step and adds its duration.
    async fn measure<T>(&mut self, step: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let started = Instant::now();
        let value = step.await?;
        self.0.push(started.elapsed());
        Ok(value)
    }

    /// Returns the median in seconds.
    fn median(&self) -> f64 {
        let mut times = self.0.clone();
        times.sort();
        times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64()
    }

    /// Returns the shortest and the longest time.
    fn range(&self) -> String {
        let [min, max] = [self.0.iter().min(), self.0.iter().max()].map(|time| time.copied().unwrap_or_default());
        format!("{:.2}-{:.2} s", min.as_secs_f64(), max.as_secs_f64())
    }
}

/// Writes a row with median, range, and the ratio to the median of a baseline.
fn row(report: &mut String, name: &str, times: &Times, baseline: &Times) -> anyhow::Result<()> {
    let ratio = times.median() / baseline.median();
    writeln!(report, "| {name} | {:.2} s | {} | {ratio:.2} |", times.median(), times.range())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_has_median_range_and_ratio() -> anyhow::Result<()> {
        let times = |milliseconds: &[u64]| Times(milliseconds.iter().copied().map(Duration::from_millis).collect());
        let mut report = String::new();
        row(&mut report, "disk", &times(&[3000, 1000, 2000]), &times(&[1000]))?;
        assert_eq!(report, "| disk | 2.00 s | 1.00-3.00 s | 2.00 |\n");
        Ok(())
    }
}
