//! The sending side of a channel. A write waits until the client's window has room, but fails if the channel is closed,
//! where russh would wait indefinitely.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use russh::server::{Handle, Msg};
use russh::{ChannelId, ChannelWriteHalf, Sig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::serve::ssh::receive_buffer::{Reader, ReceiveBuffer, ReceiveBuffers};

/// RFC 4254, section 5.2.
const SSH_EXTENDED_DATA_STDERR: u32 = 1;

/// OpenSSH clients ignore exit-signal and report 255, so they are sent 128+N as exit-status instead. Other clients
/// support exit-signal, and one of them rejects both together.
const OPENSSH_VERSION_PREFIX: &[u8] = b"SSH-2.0-OpenSSH";

pub struct ChannelWriter {
    id: ChannelId,
    channel: ChannelWriteHalf<Msg>,
    handle: Handle,
    pub input: Arc<ReceiveBuffer>,
    buffers: ReceiveBuffers,
    exit_status_only: bool,
}

/// The client closed the channel, or the connection is lost.
#[derive(Debug)]
pub struct ChannelClosed;

impl ChannelWriter {
    /// Opens the receive buffer if it is not open yet.
    pub fn new(channel: ChannelWriteHalf<Msg>, handle: Handle, buffers: ReceiveBuffers) -> Self {
        let id = channel.id();
        let input = buffers.open(id);
        Self { id, channel, handle, input, buffers, exit_status_only: false }
    }

    /// Adapts to the client with this version string.
    #[must_use]
    pub fn with_client_version(self, version: &[u8]) -> Self {
        Self { exit_status_only: version.starts_with(OPENSSH_VERSION_PREFIX), ..self }
    }

    pub async fn write(&self, data: Bytes) -> Result<(), ChannelClosed> {
        tokio::select! {
            sent = self.channel.data_bytes(data) => sent.map_err(|_| ChannelClosed),
            () = self.input.closed() => Err(ChannelClosed),
        }
    }

    pub async fn write_stderr(&self, data: Bytes) -> Result<(), ChannelClosed> {
        tokio::select! {
            sent = self.channel.extended_data_bytes(SSH_EXTENDED_DATA_STDERR, data) => sent.map_err(|_| ChannelClosed),
            () = self.input.closed() => Err(ChannelClosed),
        }
    }

    pub async fn send_eof(&self) {
        // Fails only if the connection is lost; likewise below.
        let _ = self.channel.eof().await;
    }

    /// Sends how a process exited, as exit-status or exit-signal.
    pub async fn send_exit(&self, status: ExitStatus) {
        if let Some(signal) = status.signal().filter(|_| !self.exit_status_only) {
            let core_dumped = status.core_dumped();
            let signal = signal_name(signal);
            let _ = self.handle.exit_signal_request(self.id, signal, core_dumped, String::new(), String::new()).await;
            return;
        }
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        self.send_exit_status(u32::try_from(code).unwrap_or(255)).await;
    }

    pub async fn send_exit_status(&self, code: u32) {
        let _ = self.channel.exit_status(code).await;
    }

    pub async fn close(&self) {
        let _ = self.channel.close().await;
        self.buffers.remove(self.id);
    }

    /// Returns both directions as one stream, for subsystems.
    pub fn stream(self: &Arc<Self>) -> ChannelStream {
        ChannelStream { reader: Reader::new(Arc::clone(&self.input)), writer: Arc::clone(self), pending: None }
    }
}

/// Returns the name of a signal in RFC 4254, section 6.10. Signals without one get the name that OpenSSH uses.
fn signal_name(signal: i32) -> Sig {
    use signal_hook::consts;
    match signal {
        consts::SIGABRT => Sig::ABRT,
        consts::SIGALRM => Sig::ALRM,
        consts::SIGFPE => Sig::FPE,
        consts::SIGHUP => Sig::HUP,
        consts::SIGILL => Sig::ILL,
        consts::SIGINT => Sig::INT,
        consts::SIGKILL => Sig::KILL,
        consts::SIGPIPE => Sig::PIPE,
        consts::SIGQUIT => Sig::QUIT,
        consts::SIGSEGV => Sig::SEGV,
        consts::SIGTERM => Sig::TERM,
        consts::SIGUSR1 => Sig::USR1,
        consts::SIGUSR2 => Sig::Custom("USR2".to_owned()),
        _ => Sig::Custom("SIG@openssh.com".to_owned()),
    }
}

pub struct ChannelStream {
    reader: Reader,
    writer: Arc<ChannelWriter>,
    /// A write in progress and its length.
    pending: Option<(usize, PendingWrite)>,
}

type PendingWrite = Pin<Box<dyn Future<Output = Result<(), ChannelClosed>> + Send>>;

impl AsyncRead for ChannelStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buf)
    }
}

impl AsyncWrite for ChannelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let writer = Arc::clone(&self.writer);
        let (count, write) = self.pending.get_or_insert_with(|| {
            let data = Bytes::copy_from_slice(buf);
            (data.len(), Box::pin(async move { writer.write(data).await }))
        });
        let count = *count;
        let written = std::task::ready!(write.as_mut().poll(cx));
        self.pending = None;
        Poll::Ready(written.map(|()| count).map_err(|ChannelClosed| io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
