//! The service layer beside programs that work in the usual way, in one run on one control plane and one database:
//! `odc api` beside `FastAPI`, uvicorn and asyncpg with a look-up and an update of the API key per request, `odc worker` beside
//! a loop over PGMQ's functions and a poll of the queue.

mod fixture;
mod heartbeats;
mod meter;
mod peer;
mod pickup;
mod pipeline;
mod python;
mod requests;
mod statistics;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use odc_tests::sql::{self, administrator};
use odc_tests::{Service, database, with_service};
use sqlx::PgConnection;

use crate::Report;
use fixture::Fixture;
use peer::{Handler, Processor};
use requests::{CONCURRENCY, PREFIXES, Target};
use statistics::figure;

/// Numbers of requests, messages and rounds.
pub(crate) struct Sizes {
    /// Each may send 400 requests at once, then 100 per second, and have 400 pending requests.
    users: usize,
    /// Servers that beat.
    servers: usize,
    heartbeat_seconds: usize,
    rounds: usize,
    /// Requests of a measurement, of which a round has two per server.
    reads: usize,
    accepts: usize,
    pickups: usize,
    polled_pickups: usize,
    pipeline_rounds: usize,
    messages: usize,
}

impl Sizes {
    pub(crate) const FULL: Self = Self {
        users: 40,
        servers: 200,
        heartbeat_seconds: 30,
        rounds: 5,
        reads: 2000,
        accepts: 300,
        pickups: 200,
        polled_pickups: 100,
        pipeline_rounds: 5,
        messages: 1000,
    };

    /// Tests the benchmark itself.
    pub(crate) const SHORT: Self = Self {
        users: 8,
        servers: 40,
        heartbeat_seconds: 3,
        rounds: 1,
        reads: 200,
        accepts: 50,
        pickups: 20,
        polled_pickups: 20,
        pipeline_rounds: 1,
        messages: 100,
    };
}

/// Commits of the commit rate.
const COMMITS: usize = 500;
/// Processors that consume what the peer has accepted.
const DRAIN_PROCESSORS: usize = 4;
const PICKUP_PERIOD: Duration = Duration::from_millis(100);
/// Many per poll, so that the measurement ends within minutes.
const POLLED_PICKUP_PERIOD: Duration = Duration::from_millis(600);

/// Returns the report in Markdown.
pub(crate) async fn run(sizes: &Sizes) -> anyhow::Result<Report> {
    let python = python::environment()?;
    with_service(async |service| {
        let sql = &mut administrator(service.database).await?;
        let fixture = Fixture::create(service, sizes, python, sql).await?;
        let mut report = Report::default();
        describe(&mut report, sql).await?;
        measure(service, &fixture, sql, &mut report).await?;
        Ok(report)
    })
    .await
}

async fn measure(
    service: &Service<'_>,
    fixture: &Fixture<'_>,
    sql: &mut PgConnection,
    report: &mut Report,
) -> anyhow::Result<()> {
    fixture.create_servers(fixture.sizes.servers).await?;
    let mut api = service.api().start().await?;
    let clients = fixture.sign_in(&api).await?;
    let peer_api = fixture.peers.start_api(service, fixture.user(0)).await?;
    let peer_clients = fixture.peer_clients(&peer_api.client);
    reserve_servers(fixture, sql).await?;

    let pid = api.pid().context("odc api is running")?;
    let odc = Target::new(clients.clone(), pid, PREFIXES[0]);
    let peer = Target::new(peer_clients.clone(), peer_api.pid()?, PREFIXES[1]);
    requests::measure(fixture, &odc, &peer, report).await?;
    requests::check(report, sql, fixture, &odc, &peer).await?;
    heartbeats::measure(fixture, &clients, pid, report).await?;

    // What was accepted is executed.
    let worker = service.worker().start().await?;
    fixture.wait_requests_ended(sql).await?;
    let created = fixture.servers_with_prefix(PREFIXES[0]).await?;
    let template = created.first().context("the worker has created no server")?;
    let mut processors =
        try_join_all((0..DRAIN_PROCESSORS).map(|_| fixture.peers.start_processor(Handler::Create(template), false)))
            .await?;
    for processor in &mut processors {
        processor.begin().await?;
    }
    try_join_all(processors.iter_mut().map(Processor::wait_drained)).await?;
    drop(processors);
    for target in [&odc, &peer] {
        fixture.check_consumed(report, sql, ("accepted requests", target.prefix(), target.accepted())).await?;
    }
    fixture.delete_servers().await?;

    let (prefix, count) = ("notified-", fixture.sizes.pickups);
    let notified = pickup::measure(fixture, &clients, prefix, (count, PICKUP_PERIOD)).await?;
    fixture.wait_requests_ended(sql).await?;
    fixture.check_consumed(report, sql, ("pickup by the worker", prefix, count)).await?;
    let mut processor = fixture.peers.start_processor(Handler::Create(template), true).await?;
    processor.begin().await?;
    let (prefix, count) = ("polled-", fixture.sizes.polled_pickups);
    let polled = pickup::measure(fixture, &peer_clients, prefix, (count, POLLED_PICKUP_PERIOD)).await?;
    fixture.check_consumed(report, sql, ("pickup by the processor", prefix, count)).await?;
    pickup::table(report, &notified, &polled)?;
    fixture.delete_servers().await?;

    // The rest of the service would only add load.
    drop((worker, processor, peer_api));
    api.stop().await?;
    pipeline::measure(fixture, template, sql, report).await
}

/// Adds what the figures depend on.
async fn describe(report: &mut Report, sql: &mut PgConnection) -> anyhow::Result<()> {
    let started = Instant::now();
    for number in 0..COMMITS {
        sql::execute(sql, &format!("INSERT INTO peer.commits VALUES ({number})")).await?;
    }
    let rate = COMMITS as f64 / started.elapsed().as_secs_f64();
    writeln!(
        report.text,
        "PostgreSQL stores its data in `{}` and commits {} rows per second one by one. `odc api` and the peer, uvicorn with one process, \
         uvloop, httptools and 8 connections to the database, serve HTTPS with the same certificate to the same client, which has \
         {CONCURRENCY} requests in flight and shares the cores with them. The loop over PGMQ's functions is one Python process per \
         consumer; it stores no result and no audit entry, and does not project. Medians of the rounds; ratios are medians of \
         paired ratios, with their range.\n",
        database::directory().display(),
        figure(rate),
    )?;
    Ok(())
}

/// Stores the servers that both APIs return in the table of the peer.
async fn reserve_servers(fixture: &Fixture<'_>, sql: &mut PgConnection) -> anyhow::Result<()> {
    for (number, user) in fixture.users.iter().enumerate() {
        let (name, spec) = (fixture::server_name(number), fixture::server_body("").to_string());
        let statement = format!(
            "INSERT INTO peer.reservations (reservation_id, user_id, name, spec, status)
            SELECT gen_random_uuid(), user_id, '{name}', '{spec}', 'active' FROM peer.api_users WHERE username = '{user}'"
        );
        sql::execute(sql, &statement).await?;
    }
    Ok(())
}
