//! Messages per second from a full queue to objects, with 1 and 16 consumers.

use std::fmt::Write as _;
use std::time::Instant;

use futures_util::future::try_join_all;
use odc_api::v1alpha1::DevServer;
use odc_tests::sql::{self, count, value};
use odc_tests::wait;
use sqlx::PgConnection;

use super::fixture::{Fixture, TIMEOUT};
use super::meter::{CpuTime, Meter};
use super::peer::{Handler, Processor, QUEUE};
use super::statistics::{figure, median, milliseconds, ratio_cell};
use crate::Report;

const CONSUMERS: [usize; 2] = [1, 16];

/// What consumes the messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    Worker,
    /// The loop over PGMQ's functions, with the same creation of an object.
    LoopWithCreate,
    /// The loop over PGMQ's functions, which does nothing with a message.
    Loop,
}

impl System {
    const ALL: [Self; 3] = [Self::Worker, Self::LoopWithCreate, Self::Loop];

    const fn title(self) -> &'static str {
        match self {
            Self::Worker => "`odc worker`",
            Self::LoopWithCreate => "`pgmq.read`, create, `pgmq.delete`",
            Self::Loop => "`pgmq.read`, `pgmq.delete`",
        }
    }
}

/// Rate, and milliseconds of CPU time per message of the consumers and of PostgreSQL.
type Figures = [f64; 3];

/// Measures all systems with all numbers of consumers, in alternating order. `template` is a server that the worker has
/// created.
pub(super) async fn measure(
    fixture: &Fixture<'_>,
    template: &DevServer,
    sql: &mut PgConnection,
    report: &mut Report,
) -> anyhow::Result<()> {
    let cases: Vec<(usize, System)> =
        CONSUMERS.into_iter().flat_map(|consumers| System::ALL.map(|system| (consumers, system))).collect();
    let mut results: Vec<Vec<Figures>> = vec![vec![]; cases.len()];
    for round in 0..fixture.sizes.pipeline_rounds {
        let mut order: Vec<usize> = (0..cases.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let (consumers, system) = cases[index];
            let prefix = format!("m{round}-{index}-");
            let figures = match system {
                System::Worker => worker(fixture, consumers, &prefix, sql).await?,
                System::LoopWithCreate => {
                    pgmq_loop(fixture, consumers, Handler::Create(template), &prefix, sql).await?
                }
                System::Loop => pgmq_loop(fixture, consumers, Handler::None, &prefix, sql).await?,
            };
            results[index].push(figures);
            let objects = if system == System::Loop { 0 } else { fixture.sizes.messages };
            let what = format!("{} with {consumers} consumers", system.title());
            fixture.check_consumed(report, sql, (&what, &prefix, objects)).await?;
            fixture.delete_servers().await?;
        }
    }
    table(report, fixture, &cases, &results)
}

/// Measures `odc worker` from the commit of all messages until the last result is committed.
async fn worker(
    fixture: &Fixture<'_>,
    concurrency: usize,
    prefix: &str,
    sql: &mut PgConnection,
) -> anyhow::Result<Figures> {
    let messages = fixture.sizes.messages;
    let worker = fixture.service.worker().setting("ODC_WORKER_CONCURRENCY", &concurrency.to_string()).start().await?;
    wait::until("listening worker that writes the projection", TIMEOUT, async || {
        for metric in ["odc_worker_listening", "odc_projection_writer"] {
            anyhow::ensure!(worker.metric(metric).await? > 0.0, "{metric}");
        }
        Ok(())
    })
    .await?;
    let pid = worker.pid().unwrap_or_default();
    let meter = Meter::start(fixture, vec![pid])?;
    send_requests(fixture, prefix, sql).await?;
    let started = value(sql, "clock_timestamp()").await?;
    fixture.wait_requests_ended(sql).await?;
    let seconds = format!("SELECT extract(epoch FROM max(finished_at) - '{started}') FROM requests");
    let seconds: f64 = value(sql, &seconds).await?.parse()?;
    // Writing the projection belongs to the work.
    wait::until_count("projected servers", messages, TIMEOUT, async || {
        Ok(usize::try_from(count(sql, &format!("devservers WHERE name LIKE '{prefix}%'")).await?)?)
    })
    .await?;
    Ok(figures(messages, seconds, meter.elapsed()?))
}

/// Stores requests like an earlier one in one transaction, with their audit entries and messages, as `odc api` does.
async fn send_requests(fixture: &Fixture<'_>, prefix: &str, sql: &mut PgConnection) -> anyhow::Result<()> {
    let (users, messages) = (fixture.users.len(), fixture.sizes.messages);
    let statement = format!(
        "WITH first AS (SELECT * FROM requests ORDER BY created_at LIMIT 1), request AS (
            INSERT INTO requests (id, object_name, payload, body_hash, user_name, actor, queue, action, object_kind)
            SELECT gen_random_uuid(), '{prefix}' || n, jsonb_set(payload, '{{name}}', to_jsonb('{prefix}' || n)), body_hash,
                'u' || n % {users}, 'u' || n % {users}, queue, action, object_kind
            FROM first, generate_series(1, {messages}) n
            RETURNING *
        ), entry AS (
            INSERT INTO audit_log (actor, actor_kind, user_name, action, object_kind, object_name, result, request_id)
            SELECT actor, 'ApiKey', user_name, action, object_kind, object_name, 'Accepted', id FROM request
        )
        SELECT pgmq.send(queue, jsonb_build_object('version', 1, 'request', id)) FROM request"
    );
    Ok(sql::execute(sql, &statement).await?)
}

/// Measures processes that each consume one message at a time with PGMQ's functions.
async fn pgmq_loop(
    fixture: &Fixture<'_>,
    consumers: usize,
    handler: Handler<'_>,
    prefix: &str,
    sql: &mut PgConnection,
) -> anyhow::Result<Figures> {
    let (users, messages) = (fixture.users.len(), fixture.sizes.messages);
    let mut processors = try_join_all((0..consumers).map(|_| fixture.peers.start_processor(handler, false))).await?;
    let statement = format!(
        "SELECT pgmq.send('{QUEUE}', jsonb_build_object('user', 'u' || n % {users}, 'name', '{prefix}' || n))
        FROM generate_series(1, {messages}) n"
    );
    sql::execute(sql, &statement).await?;
    let pids = processors.iter().map(Processor::pid).collect::<anyhow::Result<Vec<_>>>()?;
    let (meter, started) = (Meter::start(fixture, pids)?, Instant::now());
    for processor in &mut processors {
        processor.begin().await?;
    }
    let consumed: usize = try_join_all(processors.iter_mut().map(Processor::wait_drained)).await?.iter().sum();
    let seconds = started.elapsed().as_secs_f64();
    anyhow::ensure!(consumed == messages, "the processors consumed {consumed} of {messages} messages");
    Ok(figures(messages, seconds, meter.elapsed()?))
}

fn figures(messages: usize, seconds: f64, cpu: CpuTime) -> Figures {
    let messages = messages as f64;
    [messages / seconds, milliseconds(cpu.processes) / messages, milliseconds(cpu.postgres) / messages]
}

fn table(
    report: &mut Report,
    fixture: &Fixture<'_>,
    cases: &[(usize, System)],
    results: &[Vec<Figures>],
) -> anyhow::Result<()> {
    writeln!(
        report.text,
        "| messages: {}, rounds: {} | consumers | messages/s | rate of `odc worker` / this | CPU time of the consumers per message | of \
         PostgreSQL per message |\n|---|--:|--:|--:|--:|--:|",
        fixture.sizes.messages, fixture.sizes.pipeline_rounds
    )?;
    let column = |index: usize, figure: usize| results[index].iter().map(|round| round[figure]).collect::<Vec<_>>();
    for (index, (consumers, system)) in cases.iter().enumerate() {
        let worker = cases.iter().position(|case| *case == (*consumers, System::Worker)).unwrap_or(index);
        let ratio = match system {
            System::Worker => String::new(),
            System::LoopWithCreate | System::Loop => ratio_cell(&column(worker, 0), &column(index, 0)),
        };
        let [rate, cpu, database] = [0, 1, 2].map(|figure_index| figure(median(&column(index, figure_index))));
        writeln!(report.text, "| {} | {consumers} | {rate} | {ratio} | {cpu} ms | {database} ms |", system.title())?;
    }
    Ok(())
}
