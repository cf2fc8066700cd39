//! The time from the answer to a request until its object exists, for single requests.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use odc_api::v1alpha1::DevServer;
use odc_tests::api_client::ApiClient;
use odc_tests::wait;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::fixture::{Fixture, TIMEOUT, server_body};
use super::peer::POLL_INTERVAL_SECONDS;
use super::statistics::{figure, mean, milliseconds, percentile};
use crate::Report;

/// Fraction of the golden ratio: its multiples are distributed evenly over the phases of a period.
const PHASE: f64 = 0.618_033_988_75;

/// When objects were reported by a watch.
struct Arrivals {
    times: Arc<Mutex<HashMap<String, Instant>>>,
    _task: JoinSet<()>,
}

impl Arrivals {
    /// Starts to watch servers.
    async fn watch(servers: Api<PartialObjectMeta<DevServer>>) -> anyhow::Result<Self> {
        let times = Arc::new(Mutex::new(HashMap::new()));
        let (synced, mut is_synced) = watch::channel(false);
        let (mut task, inserted) = (JoinSet::new(), times.clone());
        task.spawn(async move {
            let mut events = std::pin::pin!(watcher(servers, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(server)) => {
                        let mut times = inserted.lock().unwrap_or_else(PoisonError::into_inner);
                        times.entry(server.name_any()).or_insert_with(Instant::now);
                    }
                    Ok(Event::InitDone) => drop(synced.send_replace(true)),
                    // The watcher reconnects after an error.
                    _ => {}
                }
            }
        });
        tokio::time::timeout(TIMEOUT, is_synced.wait_for(|synced| *synced)).await??;
        Ok(Self { times, _task: task })
    }

    fn get(&self, name: &str) -> Option<Instant> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }
}

/// Sends single requests, one per period at a different phase, and returns the times until their objects exist in
/// milliseconds. A time is negative if the watch reports the object before the answer arrives.
pub(super) async fn measure(
    fixture: &Fixture<'_>,
    clients: &[ApiClient],
    prefix: &str,
    (count, period): (usize, Duration),
) -> anyhow::Result<Vec<f64>> {
    let arrivals = Arrivals::watch(Api::all(fixture.service.plane.client.clone())).await?;
    let (started, mut tasks) = (tokio::time::Instant::now(), JoinSet::new());
    for number in 0..count {
        let (client, name) = (clients[number % clients.len()].clone(), format!("{prefix}{number}"));
        let at = started + period.mul_f64(number as f64 + (number as f64 * PHASE).fract());
        tasks.spawn(async move {
            tokio::time::sleep_until(at).await;
            let response = client.post("/devservers", &server_body(&name)).await?;
            anyhow::ensure!(response.status == 202, "{response:?}");
            Ok((name, Instant::now()))
        });
    }
    let mut answered = Vec::new();
    for sent in tasks.join_all().await {
        answered.push(sent?);
    }
    let all = wait::until("objects of all requests", TIMEOUT, async || {
        let times = answered.iter().map(|(name, answered)| Some((*answered, arrivals.get(name)?)));
        times.collect::<Option<Vec<_>>>().ok_or_else(|| anyhow::anyhow!("objects are missing"))
    })
    .await?;
    let signed = |(answered, exists): (Instant, Instant)| {
        milliseconds(exists.saturating_duration_since(answered))
            - milliseconds(answered.saturating_duration_since(exists))
    };
    Ok(all.into_iter().map(signed).collect())
}

/// Adds the times of ODC and of the peer.
pub(super) fn table(report: &mut Report, odc: &[f64], peer: &[f64]) -> anyhow::Result<()> {
    writeln!(
        report.text,
        "| from 202 until the DevServer exists | requests | mean | p50 | p99 | longest |\n|---|--:|--:|--:|--:|--:|"
    )?;
    let figures = |times: &[f64]| [mean(times), percentile(times, 50), percentile(times, 99), percentile(times, 100)];
    let poll = format!("processor, reads every {POLL_INTERVAL_SECONDS} s");
    for (name, times) in [("`odc worker`, notified", odc), (poll.as_str(), peer)] {
        let cells = figures(times).map(|time| format!("{} ms", figure(time))).join(" | ");
        writeln!(report.text, "| {name} | {} | {cells} |", times.len())?;
    }
    let ratios: Vec<String> = figures(peer).iter().zip(figures(odc)).map(|(peer, odc)| figure(peer / odc)).collect();
    writeln!(report.text, "| processor / worker | | {} |\n", ratios.join(" | "))?;
    Ok(())
}
