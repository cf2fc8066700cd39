//! The subsystem `odc-control`, which is restricted to the control principal: requests of the operator and their
//! replies.

pub mod agent_stats;
pub mod socket;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use odc_control::{Line, LineDecoder, Reply, Request, read_request, write_reply};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::serve::context::Context;

/// Time to wait for a starting Jupyter server before replying.
const JUPYTER_START_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_QUIESCE_SECONDS: u64 = 3600;
const MAX_FLUSH_SECONDS: u64 = 60;
const MAX_REPORTED_INVALID_KEYS: usize = 20;

/// Serves the requests of the operator until EOF.
pub async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send, ctx: Arc<Context>) -> io::Result<()> {
    serve_requests(stream, |request| handle(request, &ctx)).await
}

/// Serves requests, one per line, until EOF. An overlong line ends the stream, because the start of the next request is
/// unknown.
pub async fn serve_requests<F>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    handle: impl Fn(Request) -> F,
) -> io::Result<()>
where
    F: Future<Output = Reply>,
{
    let mut decoder = LineDecoder::default();
    let mut chunk = vec![0; 16 << 10];
    loop {
        let line = match decoder.next_line() {
            Ok(Some(line)) => line,
            Ok(None) => {
                match stream.read(&mut chunk).await? {
                    0 => return Ok(()),
                    count => decoder.push(&chunk[..count]),
                }
                continue;
            }
            Err(too_long) => {
                send(&mut stream, &Reply::refused(too_long.to_string())).await?;
                return stream.shutdown().await;
            }
        };
        let reply = match read_request(&line) {
            Ok(request) => handle(request).await,
            Err(error) => error.into(),
        };
        send(&mut stream, &reply).await?;
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), reply: &Reply) -> io::Result<()> {
    let line = write_reply(reply).or_else(|_| write_reply(&Reply::refused("reply too long")));
    stream.write_all(&line.map_err(io::Error::other)?).await?;
    stream.flush().await
}

pub async fn handle(request: Request, ctx: &Arc<Context>) -> Reply {
    let lifecycle = &ctx.lifecycle;
    match request {
        Request::Signals => Reply::Signals(Box::new(ctx.activity.signals())),
        Request::SetDeadline { remaining_seconds, idle } => {
            lifecycle.set_deadline(remaining_seconds.map(Duration::from_secs), idle);
            match lifecycle.quiesce.cancel() {
                Ok(()) => Reply::Done,
                Err(error) => Reply::refused(format!("cannot record the cancelled stop: {error}")),
            }
        }
        Request::Notify { kind, text } => {
            if let Some(text) = lifecycle.notify(kind, text.as_ref()) {
                ctx.broadcast.send(&text);
            }
            Reply::Done
        }
        Request::SetAccess(access) => match ctx.access.set(&access) {
            Ok(update) => {
                for line in &update.invalid {
                    ctx.logger.log(format!("ignored {line}"));
                }
                if let Some(error) = &update.persist_error {
                    ctx.logger.log(format!("cannot persist the access list: {error}"));
                }
                let invalid = update.invalid.iter().take(MAX_REPORTED_INVALID_KEYS).map(Line::new).collect();
                Reply::AccessSet { invalid }
            }
            Err(error) => Reply::refused(error.to_string()),
        },
        Request::Jupyter { on } => {
            lifecycle.jupyter.set_enabled(on);
            Reply::Jupyter(lifecycle.jupyter.wait_settled(JUPYTER_START_TIMEOUT).await)
        }
        Request::Quiesce { within_seconds } => {
            let timeout = Duration::from_secs(within_seconds.clamp(1, MAX_QUIESCE_SECONDS));
            let quiesce = Arc::clone(&lifecycle.quiesce);
            // A separate task continues if the operator disconnects.
            match tokio::spawn(async move { quiesce.run(timeout).await }).await {
                Ok(quiesced) => Reply::Quiesced(Box::new(quiesced)),
                Err(error) => Reply::refused(format!("quiesce failed: {error}")),
            }
        }
        Request::Flush { within_seconds } => {
            let timeout = Duration::from_secs(within_seconds.clamp(1, MAX_FLUSH_SECONDS));
            Reply::Flushed(Box::new(lifecycle.quiesce.flush(timeout).await))
        }
        Request::Stats => Reply::Stats(agent_stats::stats(&ctx.activity.signals())),
        Request::SetIdleStatus { status } => {
            lifecycle.set_idle_status(status);
            Reply::Done
        }
        Request::KeepAlive { seconds, reason } => match lifecycle.keep_alive(&ctx.activity, seconds, reason) {
            Ok(()) => Reply::Done,
            Err(too_long) => Reply::refused(too_long.to_string()),
        },
        Request::Heartbeat => {
            ctx.activity.record_heartbeat();
            Reply::Done
        }
        Request::Status => Reply::Status(Box::new(ctx.status())),
    }
}

#[cfg(test)]
mod tests;
