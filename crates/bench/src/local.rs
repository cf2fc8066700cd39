//! A local cluster with one node: time of `up` and `down`, memory and disk. The baseline is a control plane without nodes.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use odc_tests::{ScratchCluster, with_scratch_cluster};

const ROUNDS: usize = 3;

/// Returns the report in Markdown.
pub(crate) async fn run() -> anyhow::Result<String> {
    let mut baseline = Vec::new();
    let mut steps: [(&str, Vec<Duration>); 4] = [
        ("first `up`", vec![]),
        ("`up` of a running cluster", vec![]),
        ("`down`", vec![]),
        ("`up` after `down`", vec![]),
    ];
    let mut components = Vec::new();
    let mut disk = 0;
    for _ in 0..ROUNDS {
        with_scratch_cluster(async |cluster| {
            baseline.push(measure(cluster, &["up", "--nodes", "0"]).await?);
            Ok(())
        })
        .await?;
        with_scratch_cluster(async |cluster| {
            for (index, command) in [(0, "up"), (1, "up"), (2, "down"), (3, "up")] {
                steps[index].1.push(measure(cluster, &[command]).await?);
            }
            components = memory(cluster).await?;
            disk = disk_usage(&cluster.directory)?;
            Ok(())
        })
        .await?;
    }
    let baseline = median(&mut baseline);
    let mut report = format!(
        "Median of {ROUNDS} rounds; baseline, a control plane without nodes: {:.1} s.\n\n| step | time | × baseline |\n|---|---|---|\n",
        baseline.as_secs_f64()
    );
    for (name, times) in &mut steps {
        let time = median(times).as_secs_f64();
        writeln!(report, "| {name} | {time:.1} s | {:.2} |", time / baseline.as_secs_f64())?;
    }
    write!(report, "\n| component | memory |\n|---|---|\n")?;
    for (name, bytes) in &components {
        writeln!(report, "| {name} | {} MiB |", bytes >> 20)?;
    }
    writeln!(report, "| total | {} MiB |", components.iter().map(|(_, bytes)| bytes >> 20).sum::<u64>())?;
    writeln!(report, "\nState on disk: {} MiB.", disk >> 20)?;
    Ok(report)
}

async fn measure(cluster: &ScratchCluster, arguments: &[&str]) -> anyhow::Result<Duration> {
    let started = Instant::now();
    cluster.odc_local(arguments).await?.check()?;
    Ok(started.elapsed())
}

async fn memory(cluster: &ScratchCluster) -> anyhow::Result<Vec<(String, u64)>> {
    let rows: serde_json::Value = serde_json::from_str(&cluster.odc_local(&["status", "-o", "json"]).await?.check()?)?;
    let rows = rows.as_array().context("status prints a list")?;
    let row = |row: &serde_json::Value| Some((row["name"].as_str()?.to_owned(), row["memoryBytes"].as_u64()?));
    Ok(rows.iter().filter_map(row).collect())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Returns the disk usage of a directory without following links.
fn disk_usage(directory: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += metadata.blocks() * 512;
        if metadata.is_dir() {
            bytes += disk_usage(&entry.path())?;
        }
    }
    Ok(bytes)
}
