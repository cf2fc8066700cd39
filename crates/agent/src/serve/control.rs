//! The subsystem `odc-control`, which only the control principal reaches: the operator's requests and our replies.

pub mod stats;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use odc_control::{Frames, Line, Reply, Request, read_request, write_reply};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::serve::served::Served;

/// A notebook server that starts within this time is told of at once.
const NOTEBOOK: Duration = Duration::from_secs(2);
/// Longer than any stop may take.
const LONGEST_QUIESCE: u64 = 3600;
/// More are not read by anybody.
const UNUSABLE_TOLD: usize = 20;

/// Answers until the other side is done, one request after the other.
pub async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send, served: Arc<Served>) -> io::Result<()> {
    converse(stream, |request| answer(request, &served)).await
}

/// One line, one request; one reply, one line. Ends when the other side does, and after a line that is too long, because
/// nobody knows where the next would begin.
pub async fn converse<F>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    answer: impl Fn(Request) -> F,
) -> io::Result<()>
where
    F: Future<Output = Reply>,
{
    let mut frames = Frames::default();
    let mut piece = vec![0; 16 << 10];
    loop {
        let line = match frames.take() {
            Ok(Some(line)) => line,
            Ok(None) => {
                match stream.read(&mut piece).await? {
                    0 => return Ok(()),
                    count => frames.push(&piece[..count]),
                }
                continue;
            }
            Err(too_long) => {
                send(&mut stream, &Reply::refused(too_long.to_string())).await?;
                return stream.shutdown().await;
            }
        };
        let reply = match read_request(&line) {
            Ok(request) => answer(request).await,
            Err(misunderstood) => misunderstood.into(),
        };
        send(&mut stream, &reply).await?;
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), reply: &Reply) -> io::Result<()> {
    let line = write_reply(reply).or_else(|_| write_reply(&Reply::refused("the answer would be too long")));
    stream.write_all(&line.map_err(io::Error::other)?).await?;
    stream.flush().await
}

pub async fn answer(request: Request, served: &Arc<Served>) -> Reply {
    let steward = &served.steward;
    match request {
        Request::Signals => Reply::Signals(Box::new(served.activity.signals())),
        Request::SetDeadline { remaining_seconds, idle } => {
            steward.set_deadline(remaining_seconds.map(Duration::from_secs), idle);
            match steward.quiesce.call_off() {
                Ok(()) => Reply::Done,
                Err(error) => Reply::refused(format!("that a stop was called off could not be kept: {error}")),
            }
        }
        Request::Notify { about, text } => {
            if let Some(text) = steward.notify(about, text.as_ref()) {
                served.terminals.tell_all(&text);
            }
            Reply::Done
        }
        Request::SetAccess(access) => match served.access.set(access) {
            Ok(changed) => {
                for line in &changed.unusable {
                    served.journal.say(format!("not used: {line}"));
                }
                if let Some(reason) = &changed.not_kept {
                    served.journal.say(format!("who may log in is lost if the agent is started again: {reason}"));
                }
                let unusable = changed.unusable.iter().take(UNUSABLE_TOLD).map(Line::new).collect();
                Reply::AccessSet { unusable }
            }
            Err(refused) => Reply::refused(refused.to_string()),
        },
        Request::Jupyter { on } => {
            steward.notebook.want(on);
            Reply::Jupyter(steward.notebook.settled(NOTEBOOK).await)
        }
        Request::Quiesce { within_seconds } => {
            let within = Duration::from_secs(within_seconds.clamp(1, LONGEST_QUIESCE));
            let quiesce = Arc::clone(&steward.quiesce);
            // In a task of its own: it goes on if whoever asked hangs up.
            match tokio::spawn(async move { quiesce.run(within).await }).await {
                Ok(quiesced) => Reply::Quiesced(Box::new(quiesced)),
                Err(error) => Reply::refused(format!("it could not be finished: {error}")),
            }
        }
        Request::Stats => Reply::Stats(stats::stats(&served.activity.signals())),
        Request::TellIdle { verdict } => {
            steward.tell_idle(verdict);
            Reply::Done
        }
        Request::KeepAlive { seconds, reason } => match steward.keep_alive(&served.activity, seconds, reason) {
            Ok(()) => Reply::Done,
            Err(too_long) => Reply::refused(too_long.to_string()),
        },
        Request::Heartbeat { source: _ } => {
            served.activity.heartbeat();
            Reply::Done
        }
        Request::Status => Reply::Status(Box::new(steward.status(served))),
    }
}

#[cfg(test)]
mod tests;
