//! Heartbeats of many servers, each of which beats once per second.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use http::Method;
use odc_tests::api_client::ApiClient;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at};

use super::fixture::{Fixture, server_name};
use super::meter::Meter;
use super::statistics::{figure, milliseconds, percentile};
use crate::Report;

const INTERVAL: Duration = Duration::from_secs(1);
/// Goal for the 99th percentile of the time to the answer, recorded only.
const P99_MILLISECONDS: f64 = 100.0;

/// Measures heartbeats of all servers that the fixture has created.
pub(super) async fn measure(
    fixture: &Fixture<'_>,
    clients: &[ApiClient],
    pid: u32,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (servers, seconds) = (fixture.sizes.servers, fixture.sizes.heartbeat_seconds);
    let meter = Meter::start(fixture, vec![pid])?;
    let (started, mut tasks) = (tokio::time::Instant::now(), JoinSet::new());
    for number in 0..servers {
        let client = clients[number % clients.len()].clone();
        // Evenly distributed.
        let first = started + INTERVAL.mul_f64(number as f64 / servers as f64);
        tasks.spawn(async move { beat(&client, &server_name(number), first, seconds).await });
    }
    let mut latencies = Vec::new();
    for sent in tasks.join_all().await {
        latencies.extend(sent?);
    }
    let cpu = meter.elapsed()?;
    let beats = latencies.len();
    report.goal(beats == servers * seconds, || format!("{beats} heartbeats, expected {}", servers * seconds));
    writeln!(
        report.text,
        "| {servers} servers, a heartbeat per second each | p50 | p99 | longest | CPU time of `odc api` per heartbeat | of PostgreSQL \
         |\n|--:|--:|--:|--:|--:|--:|"
    )?;
    let [p50, p99, longest] = [50, 99, 100].map(|percent| figure(percentile(&latencies, percent)));
    let per_beat = |time: Duration| figure(milliseconds(time) / beats as f64);
    writeln!(
        report.text,
        "| {beats} heartbeats, all answered 202 | {p50} ms | {p99} ms (goal, not a gate: < {P99_MILLISECONDS} ms) | {longest} ms | {} ms | {} ms \
         |\n",
        per_beat(cpu.processes),
        per_beat(cpu.postgres),
    )?;
    Ok(())
}

/// Sends heartbeats of one server. Returns the times to the answers in milliseconds.
async fn beat(client: &ApiClient, server: &str, first: tokio::time::Instant, count: usize) -> anyhow::Result<Vec<f64>> {
    let mut interval = interval_at(first, INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (path, mut latencies) = (format!("/devservers/{server}/heartbeat"), Vec::new());
    for _ in 0..count {
        interval.tick().await;
        let sent = Instant::now();
        let response = client.send(Method::POST, &path, None, &[]).await?;
        latencies.push(milliseconds(sent.elapsed()));
        anyhow::ensure!(response.status == 202, "{response:?}");
    }
    Ok(latencies)
}
