//! A cloud with one node: first start, second `up`, stop, start again; memory and disk.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use odc_tests::{OwnCloud, with_own_cloud};

const ROUNDS: usize = 3;

/// The report as Markdown, as it stands in `docs/local.md`.
pub(crate) async fn run() -> anyhow::Result<String> {
    let mut floor = Vec::new();
    let mut steps: [(&str, Vec<Duration>); 4] = [
        ("first `up`", vec![]),
        ("second `up`, all running", vec![]),
        ("`down`", vec![]),
        ("`up` after `down`", vec![]),
    ];
    let mut parts = Vec::new();
    let mut disk = 0;
    for _ in 0..ROUNDS {
        with_own_cloud(async |cloud| {
            floor.push(timed(cloud, &["up", "--nodes", "0"]).await?);
            Ok(())
        })
        .await?;
        with_own_cloud(async |cloud| {
            for (index, verb) in [(0, "up"), (1, "up"), (2, "down"), (3, "up")] {
                steps[index].1.push(timed(cloud, &[verb]).await?);
            }
            parts = memory(cloud).await?;
            disk = size(&cloud.directory)?;
            Ok(())
        })
        .await?;
    }
    let floor = median(&mut floor);
    let mut report = format!(
        "Median of {ROUNDS} rounds; control plane alone: {:.1} s.\n\n| step | time | × control plane |\n|---|---|---|\n",
        floor.as_secs_f64()
    );
    for (name, times) in &mut steps {
        let time = median(times).as_secs_f64();
        writeln!(report, "| {name} | {time:.1} s | {:.2} |", time / floor.as_secs_f64())?;
    }
    write!(report, "\n| part | memory |\n|---|---|\n")?;
    for (name, bytes) in &parts {
        writeln!(report, "| {name} | {} MiB |", bytes >> 20)?;
    }
    writeln!(report, "| all | {} MiB |", parts.iter().map(|(_, bytes)| bytes >> 20).sum::<u64>())?;
    writeln!(report, "\nState on disk: {} MiB.", disk >> 20)?;
    Ok(report)
}

async fn timed(cloud: &OwnCloud, arguments: &[&str]) -> anyhow::Result<Duration> {
    let started = Instant::now();
    cloud.odc_local(arguments).await?.good()?;
    Ok(started.elapsed())
}

async fn memory(cloud: &OwnCloud) -> anyhow::Result<Vec<(String, u64)>> {
    let rows: serde_json::Value = serde_json::from_str(&cloud.odc_local(&["status", "-o", "json"]).await?.good()?)?;
    let rows = rows.as_array().context("status gives a list")?;
    let row = |row: &serde_json::Value| Some((row["name"].as_str()?.to_owned(), row["memoryBytes"].as_u64()?));
    Ok(rows.iter().filter_map(row).collect())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// What the files take on disk, without following links.
fn size(directory: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        bytes += facts.blocks() * 512;
        if facts.is_dir() {
            bytes += size(&entry.path())?;
        }
    }
    Ok(bytes)
}
