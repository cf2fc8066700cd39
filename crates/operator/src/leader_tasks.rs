//! The tasks of a leader: watches, controllers, loops and the queue API, wired to one [`Context`].

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use kube::Client;
use kube::runtime::reflector;

use crate::agents::AgentCalls;
use crate::api_server_clock::Clock;
use crate::cache::assumed::assumed_channel;
use crate::cache::cluster::ClusterCache;
use crate::config::Config;
use crate::context::Context;
use crate::controller::run_controller;
use crate::events::EventRecorder;
use crate::flavor::PendingHistories;
use crate::health::Health;
use crate::invalid_objects::InvalidServers;
use crate::leader::Leadership;
use crate::soft_state::SoftStates;
use crate::validated_servers::ValidatedServers;
use crate::work_queues::WorkQueues;
use crate::{devserver, disk, flavor, queue_api, scheduler, team, user, watches};

const MAX_CONCURRENT_SERVERS: u16 = 32;
const MAX_CONCURRENT_USERS: u16 = 4;
const MAX_CONCURRENT_DISKS: u16 = 16;

/// A task that runs as long as this process is leader. It returns its name if it ends.
pub type Task = BoxFuture<'static, &'static str>;

/// Names a task.
pub fn task(name: &'static str, run: impl Future<Output = ()> + Send + 'static) -> Task {
    run.map(move |()| name).boxed()
}

/// Builds all tasks of a leader. Nothing runs until they are polled.
pub fn build(
    config: Config,
    client: Client,
    clock: Clock,
    leadership: Leadership,
    identity: &str,
    health: &Health,
) -> anyhow::Result<(Vec<Task>, Arc<Context>)> {
    let (servers, servers_writer) = reflector::store();
    let (users, users_writer) = reflector::store();
    let (disks, disks_writer) = reflector::store();
    let (work_queues, receivers) = WorkQueues::new();
    let (assumed_servers, assumed_receiver) = assumed_channel();
    let (assumed_disks, assumed_disks_receiver) = assumed_channel();
    let user_settings = odc_core::user::Settings {
        namespace: config.namespace.clone(),
        service_account: config.service_account.clone(),
        blocked_cidrs: config.blocked_cidrs.clone(),
    };
    let leader_since = clock.now();
    let ctx = Arc::new(Context {
        events: EventRecorder::new(client.clone(), identity),
        client,
        clock,
        leadership,
        config,
        user_settings,
        metrics: health.metrics.clone(),
        cluster: ClusterCache::new(servers.clone(), users.clone(), disks.clone()),
        assumed_servers,
        assumed_disks,
        leader_since,
        control_ca: tokio::sync::watch::Sender::default(),
        agent_calls: AgentCalls::new()?,
        planner: tokio::sync::Mutex::default(),
        pending_histories: PendingHistories::default(),
        invalid_servers: InvalidServers::default(),
        soft_states: SoftStates::default(),
        validated_servers: ValidatedServers::default(),
        work_queues,
    });
    let mut tasks = watches::all(
        &ctx,
        watches::Writers {
            servers: servers_writer,
            assumed_servers: assumed_receiver,
            users: users_writer,
            disks: disks_writer,
            assumed_disks: assumed_disks_receiver,
        },
    );
    let controllers = [
        task(
            "server controller",
            run_controller(
                &ctx,
                servers,
                receivers.servers,
                MAX_CONCURRENT_SERVERS,
                devserver::reconcile,
                devserver::on_error,
            ),
        ),
        task(
            "user controller",
            run_controller(&ctx, users, receivers.users, MAX_CONCURRENT_USERS, user::reconcile, user::on_error),
        ),
        task(
            "disk controller",
            run_controller(&ctx, disks, receivers.disks, MAX_CONCURRENT_DISKS, disk::reconcile, disk::on_error),
        ),
    ];
    let loops = [
        task("scheduler", scheduler::run(ctx.clone())),
        task("flavor loop", flavor::run(ctx.clone())),
        task("team loop", team::run(ctx.clone())),
        task("disk operation loop", disk::operations::run(ctx.clone())),
        task("namespace cleanup", user::cleanup::run(ctx.clone(), receivers.namespaces)),
    ];
    // Nothing is decided from caches that are not synced.
    let after_sync = controllers.into_iter().chain(loops).chain(queue_api::tasks(&ctx));
    tasks.extend(after_sync.map(|task| {
        let ctx = ctx.clone();
        async move { if watches::wait_for_sync(&ctx).await.is_ok() { task.await } else { "cache sync" } }.boxed()
    }));
    Ok((tasks, ctx))
}
