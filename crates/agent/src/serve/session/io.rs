//! Copies data between a channel and the process of a session until both are done.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::serve::activity::Activity;
use crate::serve::notify::broadcast::Subscription;
use crate::serve::session::process::SessionProcess;
use crate::serve::session::pty::Pty;
use crate::serve::ssh::channel_writer::{ChannelClosed, ChannelWriter};
use crate::serve::ssh::receive_buffer::ReceiveBuffer;

const CHUNK_SIZE: usize = 32 << 10;

/// Size of the stdin pipe. With the default size, the process would be woken for every other packet.
const PIPE_SIZE: usize = 256 << 10;

/// Time to wait for remaining output after the process has exited. Background processes may hold its terminal or pipes
/// open indefinitely. Later output of a terminal is dropped; that of pipes is still copied, but the exit status is not
/// delayed.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Copies the pipes of a command.
///
/// As in sshd, the exit status is sent when the process exits, but the channel stays open until the last process that
/// has the output open exits. EOF is sent last, because a client may close the channel on EOF, and then the exit status
/// could not be sent.
pub async fn copy_pipes(
    mut child: Child,
    process: &SessionProcess,
    writer: &Arc<ChannelWriter>,
    activity: &Arc<Activity>,
) -> Result<(), ChannelClosed> {
    // Not aborted with this function: data that was sent before the client closed the channel is delivered. The task
    // finishes when the process exits.
    if let Some(stdin) = child.stdin.take() {
        tokio::spawn(copy_stdin(Arc::clone(&writer.input), stdin, Arc::clone(activity)));
    }
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let outputs = async {
        tokio::join!(
            copy_output(stdout, writer, activity, Output::Stdout),
            copy_output(stderr, writer, activity, Output::Stderr)
        )
    };
    tokio::pin!(outputs);
    let status = tokio::select! {
        (stdout, stderr) = &mut outputs => {
            stdout.and(stderr)?;
            let status = wait(&mut child, writer).await?;
            process.set_exited();
            send_exit(writer, status).await;
            return Ok(());
        }
        status = child.wait() => status.map_err(|_| ChannelClosed)?,
        () = writer.input.closed() => return Err(ChannelClosed),
    };
    process.set_exited();
    if let Ok((stdout, stderr)) = timeout(DRAIN_TIMEOUT, &mut outputs).await {
        stdout.and(stderr)?;
        send_exit(writer, status).await;
        return Ok(());
    }
    writer.send_exit(status).await;
    let (stdout, stderr) = tokio::select! {
        results = outputs => results,
        () = writer.input.closed() => return Err(ChannelClosed),
    };
    stdout.and(stderr)?;
    writer.send_eof().await;
    Ok(())
}

async fn send_exit(writer: &ChannelWriter, status: ExitStatus) {
    writer.send_exit(status).await;
    writer.send_eof().await;
}

/// Waits until the process exits or the channel is closed.
async fn wait(child: &mut Child, writer: &ChannelWriter) -> Result<ExitStatus, ChannelClosed> {
    tokio::select! {
        status = child.wait() => status.map_err(|_| ChannelClosed),
        () = writer.input.closed() => Err(ChannelClosed),
    }
}

/// Copies the client's data until EOF, or until the process closes its stdin.
async fn copy_stdin(input: Arc<ReceiveBuffer>, mut stdin: ChildStdin, activity: Arc<Activity>) {
    // May fail if the user exceeds the limit on pipe buffers; the default size works too.
    let _ = fcntl_setpipe_size(&stdin, PIPE_SIZE);
    while let Some(chunk) = input.next().await {
        activity.record_transfer();
        if stdin.write_all(&chunk).await.is_err() {
            break;
        }
    }
    drop(stdin);
    input.discard().await;
}

#[derive(Clone, Copy)]
enum Output {
    Stdout,
    Stderr,
}

async fn copy_output(
    pipe: Option<impl AsyncRead + Unpin>,
    writer: &ChannelWriter,
    activity: &Activity,
    output: Output,
) -> Result<(), ChannelClosed> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK_SIZE);
        match (pipe.read_buf(&mut buffer).await, output) {
            (Ok(0) | Err(_), _) => return Ok(()),
            (Ok(_), Output::Stdout) => writer.write(buffer.split().freeze()).await?,
            (Ok(_), Output::Stderr) => writer.write_stderr(buffer.split().freeze()).await?,
        }
        activity.record_transfer();
    }
}

/// Copies a terminal. The channel is closed when the process exits, even if background processes use the terminal.
pub async fn copy_pty(
    mut child: Child,
    process: &SessionProcess,
    pty: Arc<Pty>,
    mut broadcasts: Subscription,
    writer: &Arc<ChannelWriter>,
    activity: &Arc<Activity>,
) -> Result<(), ChannelClosed> {
    let input = copy_input(Arc::clone(writer), Arc::clone(&pty), Arc::clone(activity));
    let _input = AbortOnDropHandle::new(tokio::spawn(input));
    let mut buffer = vec![0; CHUNK_SIZE];
    let mut status = None;
    let mut drain_deadline = Instant::now();
    loop {
        tokio::select! {
            count = pty.read(&mut buffer) => match count {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    activity.record_terminal_output();
                    writer.write(Bytes::copy_from_slice(&buffer[..count])).await?;
                }
            },
            text = broadcasts.next() => writer.write(text).await?,
            exited = child.wait(), if status.is_none() => {
                process.set_exited();
                status = Some(exited.map_err(|_| ChannelClosed)?);
                drain_deadline = Instant::now() + DRAIN_TIMEOUT;
            }
            () = sleep_until(drain_deadline), if status.is_some() => break,
            () = writer.input.closed() => return Err(ChannelClosed),
        }
    }
    let status = match status {
        Some(status) => status,
        None => wait(&mut child, writer).await?,
    };
    process.set_exited();
    send_exit(writer, status).await;
    Ok(())
}

/// Copies the client's input to the terminal. EOF is not passed on: a terminal has no such state.
async fn copy_input(writer: Arc<ChannelWriter>, pty: Arc<Pty>, activity: Arc<Activity>) {
    while let Some(chunk) = writer.input.next().await {
        activity.record_terminal_input();
        if pty.write_all(&chunk).await.is_err() {
            break;
        }
    }
    writer.input.discard().await;
}
