//! The operator: keeps what people asked for true, in the cluster and nowhere else.
//!
//! Drivers read, ask `odc-core`, and write what it says. Nothing needed for correctness lives in this process: what it
//! keeps are copies of the cluster and hints that cost a question when lost.

pub mod agents;
mod apply;
mod cache;
mod client;
mod clock;
mod config;
mod context;
mod devserver;
mod driver;
mod error;
mod facts;
#[cfg(test)]
mod fake;
mod flavor;
mod follow;
mod health;
mod kept_secret;
mod keys;
mod lease;
mod metrics;
mod missing;
mod own;
mod queue;
mod queue_api;
mod reflect;
mod registry;
mod report;
mod request;
mod requeue;
mod snapshot;
mod team;
mod unreadable;
mod user;
mod watch;

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, select_all};
use kube::Client;
use kube::runtime::reflector;
use tokio::sync::{Notify, mpsc};

pub use config::{Config, Options};

use clock::Clock;
use context::{Admitting, Children, Cluster, Context, Flavors, Hints, Neighbours, Triggers};
use driver::driver;
use health::Health;
use lease::{Candidate, Lead};
use report::Reporter;

/// Servers driven at once.
const SERVERS_AT_ONCE: u16 = 32;
const USERS_AT_ONCE: u16 = 4;
const LEASE: &str = "odc-operator";

/// Runs until asked to stop, or until another process leads.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let clock = Clock::new();
    let client = client::new(&config, &clock).await?;
    let health = Health::default();
    let identity = identity();
    let candidate = Candidate::new(&client, &config.namespace, LEASE, identity.clone());
    let serving = health::serve(config.metrics_address, health.clone());
    let work = async {
        tracing::info!(identity, "waiting to lead");
        let lead = tokio::select! {
            lead = candidate.acquire() => lead,
            () = asked_to_stop() => return Ok(()),
        };
        tracing::info!(epoch = lead.epoch, "leading");
        health.metrics.leading.set(1);
        let ended = lead_on(config, client, clock, &lead, &identity, &health, &candidate).await;
        health.metrics.leading.set(0);
        ended
    };
    tokio::select! {
        ended = serving => ended,
        ended = work => ended,
    }
}

/// Does everything a leader does, until it leads no more or is asked to stop.
async fn lead_on(
    config: Config,
    client: Client,
    clock: Clock,
    lead: &Lead,
    identity: &str,
    health: &Health,
    candidate: &Candidate,
) -> anyhow::Result<()> {
    let (work, ctx) = work(config, client, clock, lead.clone(), identity, health)?;
    let complete = watch::complete(&ctx);
    health.catching_up(true);
    let readiness = async {
        complete.await?;
        health.catching_up(false);
        tracing::info!("everything was seen");
        std::future::pending::<anyhow::Result<()>>().await
    };
    tokio::select! {
        () = candidate.keep(lead) => anyhow::bail!("another process leads, or the API server is away; ending"),
        ended = readiness => ended,
        ((), _, _) = select_all(work) => anyhow::bail!("a part of the operator ended by itself"),
        () = asked_to_stop() => {
            // Nobody decides any more, and what was decided is left to the next one, who begins when our last write is
            // over, and need not wait for the Lease to run out.
            if let Err(error) = candidate.release(lead).await {
                tracing::info!(error = &error as &dyn std::error::Error, "the lease was not given back");
            }
            tracing::info!("asked to stop");
            Ok(())
        }
    }
}

type Work = Vec<BoxFuture<'static, ()>>;

/// Every loop of a leader, wired up.
fn work(
    config: Config,
    client: Client,
    clock: Clock,
    lead: Lead,
    identity: &str,
    health: &Health,
) -> anyhow::Result<(Work, Arc<Context>)> {
    let (servers, servers_writer) = reflector::store();
    let (users, users_writer) = reflector::store();
    let (look_at_servers, servers_due) = mpsc::unbounded_channel();
    let (look_at_users, users_due) = mpsc::unbounded_channel();
    let (look_at_namespaces, namespaces_due) = mpsc::unbounded_channel();
    let (own, own_servers) = reflect::own();
    let user_settings = odc_core::user::Settings {
        namespace: config.namespace.clone(),
        account: config.service_account.clone(),
        closed: config.closed_ranges.clone(),
    };
    let since = clock.now();
    let ctx = Arc::new(Context {
        reporter: Reporter::new(client.clone(), identity),
        client,
        clock,
        lead,
        config,
        user_settings,
        metrics: health.metrics.clone(),
        cluster: Cluster {
            servers: servers.clone(),
            users: users.clone(),
            flavors: Flavors::default(),
            teams: cache::Cache::default(),
            pods: cache::Cache::default(),
            nodes: cache::Cache::default(),
            missing: missing::Missing::default(),
            claims: cache::Cache::default(),
            volumes: cache::Cache::default(),
            classes: cache::Cache::default(),
            attach_limits: cache::Cache::default(),
            runtimes: cache::Cache::default(),
            namespaces: cache::Cache::default(),
            children: Children::default(),
            neighbours: Neighbours::default(),
        },
        since,
        authority: tokio::sync::watch::Sender::default(),
        calls: agents::Calls::new()?,
        plans: tokio::sync::Mutex::default(),
        refusals: unreadable::Refusals::default(),
        hints: Hints::default(),
        admitting: Admitting::default(),
        triggers: Triggers {
            servers: look_at_servers,
            users: look_at_users,
            namespaces: look_at_namespaces,
            teams: Notify::new(),
            queue: Notify::new(),
            flavors: Notify::new(),
            own,
        },
    });
    let mut all = watch::all(&ctx, watch::Writers { servers: servers_writer, own_servers, users: users_writer });
    let servers = driver(&ctx, servers, servers_due, SERVERS_AT_ONCE, devserver::reconcile, devserver::on_error);
    let users = driver(&ctx, users, users_due, USERS_AT_ONCE, user::reconcile, user::on_error);
    let loops: [BoxFuture<'static, ()>; 4] = [
        queue::run(ctx.clone()).boxed(),
        flavor::run(ctx.clone()).boxed(),
        team::run(ctx.clone()).boxed(),
        user::clear_abandoned(ctx.clone(), namespaces_due).boxed(),
    ];
    let decisions = [servers, users].into_iter().chain(loops).chain(queue_api::all(&ctx));
    // Nothing is decided before everything was seen once.
    all.extend(decisions.map(|decision| {
        let ctx = ctx.clone();
        async move {
            if watch::complete(&ctx).await.is_ok() {
                decision.await;
            }
        }
        .boxed()
    }));
    Ok((all, ctx))
}

/// Unique, also when a pod is replaced under its own name.
fn identity() -> String {
    let host = std::env::var("ODC_POD_NAME").unwrap_or_else(|_| "odc-operator".into());
    format!("{host}_{:016x}", rand::random::<u64>())
}

async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
}
