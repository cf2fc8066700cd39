//! Requests with an API key: two reads, and the acceptance of a new server.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use odc_tests::api_client::ApiClient;
use odc_tests::sql::count;
use sqlx::PgConnection;

use super::fixture::{Fixture, server_body, server_name};
use super::meter::{CpuTime, Meter};
use super::statistics::{figure, median, milliseconds, percentile, ratio_cell};
use crate::Report;

/// Requests in flight.
pub(super) const CONCURRENCY: usize = 8;
/// Names of servers that are requested from `odc api` and from the peer.
pub(super) const PREFIXES: [&str; 2] = ["odc-", "peer-"];

/// A server under test.
pub(super) struct Target {
    /// One of each user.
    clients: Vec<ApiClient>,
    pid: u32,
    prefix: &'static str,
    accepted: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Me,
    Server,
    Accept,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Me, Self::Server, Self::Accept];

    const fn title(self) -> &'static str {
        match self {
            Self::Me => "GET /me",
            Self::Server => "GET /devservers/NAME",
            Self::Accept => "POST /devservers",
        }
    }
}

/// Requests that were sent one after the other on each of [`CONCURRENCY`] connections.
#[derive(Default)]
struct Sample {
    elapsed: Duration,
    /// In milliseconds.
    latencies: Vec<f64>,
    cpu: CpuTime,
}

impl Sample {
    fn append(&mut self, other: Self) {
        self.elapsed += other.elapsed;
        self.latencies.extend(other.latencies);
        self.cpu += other.cpu;
    }

    fn figures(&self) -> [f64; 5] {
        let requests = self.latencies.len() as f64;
        [
            requests / self.elapsed.as_secs_f64(),
            percentile(&self.latencies, 50),
            percentile(&self.latencies, 99),
            milliseconds(self.cpu.processes) / requests,
            milliseconds(self.cpu.postgres) / requests,
        ]
    }
}

impl Target {
    pub(super) fn new(clients: Vec<ApiClient>, pid: u32, prefix: &'static str) -> Self {
        Self { clients, pid, prefix, accepted: AtomicUsize::new(0) }
    }

    /// Returns the number of servers that were requested.
    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Returns how the names of the requested servers begin.
    pub(super) const fn prefix(&self) -> &'static str {
        self.prefix
    }

    async fn send(&self, kind: Kind, number: usize) -> anyhow::Result<()> {
        // The server was created for the same user.
        let client = &self.clients[number % self.clients.len()];
        let user = number % self.clients.len();
        let (response, status) = match kind {
            Kind::Me => (client.get("/me").await?, 200),
            Kind::Server => (client.get(&format!("/devservers/{}", server_name(user))).await?, 200),
            Kind::Accept => {
                let name = format!("{}{}", self.prefix, self.accepted.fetch_add(1, Ordering::Relaxed));
                (client.post("/devservers", &server_body(&name)).await?, 202)
            }
        };
        anyhow::ensure!(response.status == status, "{}: {response:?}", kind.title());
        Ok(())
    }

    async fn measure(&self, fixture: &Fixture<'_>, kind: Kind, requests: usize) -> anyhow::Result<Sample> {
        let (meter, started) = (Meter::start(fixture, vec![self.pid])?, Instant::now());
        let latencies = stream::iter(0..requests)
            .map(async |number| {
                let sent = Instant::now();
                self.send(kind, number).await?;
                anyhow::Ok(milliseconds(sent.elapsed()))
            })
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await?;
        Ok(Sample { elapsed: started.elapsed(), latencies, cpu: meter.elapsed()? })
    }
}

/// Measures ODC and the peer in the order A B B A, and so on.
pub(super) async fn measure(
    fixture: &Fixture<'_>,
    odc: &Target,
    peer: &Target,
    report: &mut Report,
) -> anyhow::Result<()> {
    let sizes = fixture.sizes;
    writeln!(
        report.text,
        "| rounds: {}, requests in flight: {CONCURRENCY} | | requests/s | p50 | p99 | CPU time of the server per request | of PostgreSQL \
         per request |\n|---|---|--:|--:|--:|--:|--:|",
        sizes.rounds
    )?;
    let mut repeated = Vec::new();
    for kind in Kind::ALL {
        let requests = if kind == Kind::Accept { sizes.accepts } else { sizes.reads };
        // Connects, and fills caches.
        for target in [odc, peer] {
            target.measure(fixture, kind, target.clients.len().max(CONCURRENCY)).await?;
        }
        let mut rounds: [Vec<[f64; 5]>; 2] = [vec![], vec![]];
        for _ in 0..sizes.rounds {
            let mut samples = [Sample::default(), Sample::default()];
            let mut rates = [vec![], vec![]];
            for (index, target) in [(0, odc), (1, peer), (1, peer), (0, odc)] {
                let sample = target.measure(fixture, kind, requests).await?;
                rates[index].push(requests as f64 / sample.elapsed.as_secs_f64());
                samples[index].append(sample);
            }
            repeated.extend(rates.map(|rates| percentile(&rates, 100) / percentile(&rates, 0)));
            for (round, sample) in rounds.iter_mut().zip(&samples) {
                round.push(sample.figures());
            }
        }
        rows(report, kind, &rounds)?;
    }
    writeln!(
        report.text,
        "\nTwo measurements of the same server in one round differ by a factor of {} (median) and at most {}.\n",
        figure(median(&repeated)),
        figure(percentile(&repeated, 100)),
    )?;
    Ok(())
}

/// Adds the medians of the rounds, and their ratios.
fn rows(report: &mut Report, kind: Kind, rounds: &[Vec<[f64; 5]>; 2]) -> anyhow::Result<()> {
    let column = |system: usize, index: usize| rounds[system].iter().map(|round| round[index]).collect::<Vec<_>>();
    for (system, name) in ["ODC", "FastAPI"].into_iter().enumerate() {
        let [rate, p50, p99, cpu, database] = [0, 1, 2, 3, 4].map(|index| figure(median(&column(system, index))));
        writeln!(
            report.text,
            "| {} | {name} | {rate} | {p50} ms | {p99} ms | {cpu} ms | {database} ms |",
            kind.title()
        )?;
    }
    let ratios = [0, 1, 2, 3, 4].map(|index| ratio_cell(&column(0, index), &column(1, index)));
    writeln!(report.text, "| | ODC / FastAPI | {} |", ratios.join(" | "))?;
    Ok(())
}

/// Checks that every accepted request is stored once, with its message.
pub(super) async fn check(
    report: &mut Report,
    sql: &mut PgConnection,
    fixture: &Fixture<'_>,
    odc: &Target,
    peer: &Target,
) -> anyhow::Result<()> {
    let (odc, peer, users) = (odc.accepted() as u64, peer.accepted() as u64, fixture.users.len() as u64);
    for (rows, expected) in [
        ("requests WHERE state = 'Pending'", odc),
        ("audit_log WHERE result = 'Accepted'", odc),
        ("pgmq.q_gpu_reservations", odc),
        ("peer.reservations WHERE status = 'pending'", peer),
        ("pgmq.q_peer_reservations", peer),
        ("peer.api_keys WHERE last_used_at IS NOT NULL", users),
    ] {
        let found = count(sql, rows).await?;
        report.goal(found == expected, || format!("requests: {found} {rows}, expected {expected}"));
    }
    Ok(())
}
