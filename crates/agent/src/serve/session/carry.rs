//! Carries bytes between a client and what it runs, until both are done.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::serve::activity::Activity;
use crate::serve::inbox::Inbox;
use crate::serve::outbox::{Gone, Outbox};
use crate::serve::session::process::Leader;
use crate::serve::session::terminal::Terminal;
use crate::serve::terminals::Words;

const PIECE: usize = 32 << 10;

/// To a process, which would otherwise have to be woken for every packet or two.
const PIPE: usize = 256 << 10;

/// After the end of a process, its last words are waited for no longer than this. Others may still have its terminal or
/// pipes and say something at any time; of a terminal nobody wants to hear that, and of pipes its end need not wait.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Ends a task with its owner.
struct Bound(JoinHandle<()>);

impl Drop for Bound {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// As sshd does it: the client learns how the process ended, but the channel stays until the last one that could write to
/// it is gone. The end of the data comes last, because a client that knows it may close the channel, and then there is no
/// way to tell it how the process ended.
pub async fn pipes(
    mut child: Child,
    leader: &Leader,
    outbox: &Arc<Outbox>,
    activity: &Arc<Activity>,
) -> Result<(), Gone> {
    // What was sent is delivered, also when the client has left: it ends with the process, if not before.
    if let Some(stdin) = child.stdin.take() {
        tokio::spawn(feed(Arc::clone(&outbox.inbox), stdin, Arc::clone(activity)));
    }
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let outputs = async { tokio::join!(drain(stdout, outbox, activity, false), drain(stderr, outbox, activity, true)) };
    tokio::pin!(outputs);
    let status = tokio::select! {
        (out, err) = &mut outputs => {
            out.and(err)?;
            let status = ended(&mut child, outbox).await?;
            leader.ended();
            finish(outbox, status).await;
            return Ok(());
        }
        status = child.wait() => status.map_err(|_| Gone)?,
        () = outbox.inbox.closed() => return Err(Gone),
    };
    leader.ended();
    if let Ok((out, err)) = timeout(LAST_WORDS, &mut outputs).await {
        out.and(err)?;
        finish(outbox, status).await;
        return Ok(());
    }
    outbox.exit(status).await;
    // Somebody it left behind may keep its output open for days; the client need not.
    let (out, err) = tokio::select! {
        ended = outputs => ended,
        () = outbox.inbox.closed() => return Err(Gone),
    };
    out.and(err)?;
    outbox.end().await;
    Ok(())
}

async fn finish(outbox: &Outbox, status: ExitStatus) {
    outbox.exit(status).await;
    outbox.end().await;
}

async fn ended(child: &mut Child, outbox: &Outbox) -> Result<ExitStatus, Gone> {
    tokio::select! {
        status = child.wait() => status.map_err(|_| Gone),
        () = outbox.inbox.closed() => Err(Gone),
    }
}

/// What the client sends, until it has no more or the process wants no more.
async fn feed(inbox: Arc<Inbox>, mut stdin: ChildStdin, activity: Arc<Activity>) {
    // It works with less, as where a user has too much in pipes already.
    let _ = fcntl_setpipe_size(&stdin, PIPE);
    while let Some(piece) = inbox.next().await {
        activity.transferred();
        if stdin.write_all(&piece).await.is_err() {
            break;
        }
    }
    drop(stdin);
    inbox.discard().await;
}

async fn drain(
    output: Option<impl AsyncRead + Unpin>,
    outbox: &Outbox,
    activity: &Activity,
    error: bool,
) -> Result<(), Gone> {
    let Some(mut output) = output else { return Ok(()) };
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(PIECE);
        match output.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) if error => outbox.send_error(buffer.split().freeze()).await?,
            Ok(_) => outbox.send(buffer.split().freeze()).await?,
        }
        activity.transferred();
    }
}

/// The channel ends with the process, whoever else still has the terminal.
pub async fn terminal(
    mut child: Child,
    leader: &Leader,
    terminal: Arc<Terminal>,
    mut words: Words,
    outbox: &Arc<Outbox>,
    activity: &Arc<Activity>,
) -> Result<(), Gone> {
    let typed = type_in(Arc::clone(outbox), Arc::clone(&terminal), Arc::clone(activity));
    let _input = Bound(tokio::spawn(typed));
    let mut buffer = vec![0; PIECE];
    let mut status = None;
    let mut last_words = Instant::now();
    loop {
        tokio::select! {
            count = terminal.read(&mut buffer) => match count {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    activity.terminal_output();
                    outbox.send(Bytes::copy_from_slice(&buffer[..count])).await?;
                }
            },
            text = words.next() => outbox.send(text).await?,
            ended = child.wait(), if status.is_none() => {
                leader.ended();
                status = Some(ended.map_err(|_| Gone)?);
                last_words = Instant::now() + LAST_WORDS;
            }
            () = sleep_until(last_words), if status.is_some() => break,
            () = outbox.inbox.closed() => return Err(Gone),
        }
    }
    let status = match status {
        Some(status) => status,
        None => ended(&mut child, outbox).await?,
    };
    leader.ended();
    finish(outbox, status).await;
    Ok(())
}

/// That the client has no more to type is nothing a terminal could be told.
async fn type_in(outbox: Arc<Outbox>, terminal: Arc<Terminal>, activity: Arc<Activity>) {
    while let Some(piece) = outbox.inbox.next().await {
        activity.terminal_input();
        if terminal.write_all(&piece).await.is_err() {
            break;
        }
    }
    outbox.inbox.discard().await;
}
