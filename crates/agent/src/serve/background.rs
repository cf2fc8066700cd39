//! Background tasks of `serve`. They run until the runtime shuts down.

use std::io;
use std::sync::Arc;

use crate::serve::activity::{oom, pollers};
use crate::serve::context::Context;
use crate::serve::control::socket;
use crate::serve::forward::agent_socket;

/// Spawns all background tasks. On an error the socket for user commands is missing; the other tasks run.
pub fn spawn_tasks(ctx: &Arc<Context>) -> io::Result<()> {
    ctx.lifecycle.restore_keep_alive(&ctx.activity);
    tokio::spawn(update_warnings(Arc::clone(ctx)));
    tokio::spawn(poll_cpu(Arc::clone(ctx)));
    tokio::spawn(pollers::poll_gpus(Arc::clone(&ctx.activity)));
    tokio::spawn(poll_oom_kills(Arc::clone(ctx)));
    tokio::spawn(supervise_jupyter(Arc::clone(ctx)));
    tokio::spawn(poll_jupyter_kernels(Arc::clone(ctx)));
    tokio::spawn(remove_stale_agent_sockets(Arc::clone(ctx)));
    tokio::spawn(socket::serve(socket::listen(&ctx.state_dir)?, Arc::clone(ctx)));
    Ok(())
}

async fn update_warnings(ctx: Arc<Context>) {
    loop {
        ctx.lifecycle.update_warnings(&ctx.activity, |text| ctx.broadcast.send(text));
        ctx.lifecycle.wait_for_change().await;
    }
}

async fn poll_cpu(ctx: Arc<Context>) {
    pollers::poll_cpu(Arc::clone(&ctx.activity), || ctx.lifecycle.jupyter.pid()).await;
}

async fn poll_oom_kills(ctx: Arc<Context>) {
    let Some(file) = oom::counter_file() else { return };
    let reported = ctx.lifecycle.reported_oom_kills(|| oom::read_count(&file).unwrap_or_default());
    let report = |kills| {
        let text = ctx.lifecycle.report_oom(kills);
        ctx.broadcast.send(&text);
        ctx.logger.log(text);
    };
    pollers::poll_oom(&ctx.activity, &file, reported, report).await;
}

async fn supervise_jupyter(ctx: Arc<Context>) {
    ctx.lifecycle.jupyter.run().await;
}

async fn poll_jupyter_kernels(ctx: Arc<Context>) {
    ctx.lifecycle.jupyter.poll_kernels(|kernels| ctx.activity.record_jupyter(kernels)).await;
}

async fn remove_stale_agent_sockets(ctx: Arc<Context>) {
    agent_socket::remove_stale(&ctx.state_dir).await;
}
