//! The way back to a client on one channel. Whoever sends waits until the client has room for it, but no longer than there
//! is a client: the library would wait for ever.

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

use crate::serve::inbox::{Inbox, Inboxes, Reader};

/// Of extended data: the standard error.
const STDERR: u32 = 1;

pub struct Outbox {
    id: ChannelId,
    channel: ChannelWriteHalf<Msg>,
    handle: Handle,
    pub inbox: Arc<Inbox>,
    inboxes: Inboxes,
    codes_only: bool,
}

/// What clients of OpenSSH begin with. Theirs know nothing of signals and say 255 to them; with a code as in a shell,
/// people see which it was. Others know signals, and one of them takes both for a mistake.
const CODES_ONLY: &[u8] = b"SSH-2.0-OpenSSH";

/// The client is not there any more.
#[derive(Debug)]
pub struct Gone;

impl Outbox {
    /// The inbox must be open.
    pub fn new(channel: ChannelWriteHalf<Msg>, handle: Handle, inboxes: Inboxes) -> Self {
        let id = channel.id();
        let inbox = inboxes.open(id);
        Self { id, channel, handle, inbox, inboxes, codes_only: false }
    }

    /// With the name of the client's software.
    #[must_use]
    pub fn for_client(self, software: &[u8]) -> Self {
        Self { codes_only: software.starts_with(CODES_ONLY), ..self }
    }

    pub async fn send(&self, data: Bytes) -> Result<(), Gone> {
        tokio::select! {
            sent = self.channel.data_bytes(data) => sent.map_err(|_| Gone),
            () = self.inbox.closed() => Err(Gone),
        }
    }

    pub async fn send_error(&self, data: Bytes) -> Result<(), Gone> {
        tokio::select! {
            sent = self.channel.extended_data_bytes(STDERR, data) => sent.map_err(|_| Gone),
            () = self.inbox.closed() => Err(Gone),
        }
    }

    /// There will be no more data.
    pub async fn end(&self) {
        // Who is gone needs no end.
        let _ = self.channel.eof().await;
    }

    pub async fn exit(&self, status: ExitStatus) {
        if let Some(signal) = status.signal().filter(|_| !self.codes_only) {
            let core = status.core_dumped();
            let _ = self.handle.exit_signal_request(self.id, name(signal), core, String::new(), String::new()).await;
            return;
        }
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        self.exit_code(u32::try_from(code).unwrap_or(255)).await;
    }

    pub async fn exit_code(&self, code: u32) {
        let _ = self.channel.exit_status(code).await;
    }

    pub async fn close(&self) {
        let _ = self.channel.close().await;
        self.inboxes.remove(self.id);
    }

    /// Both ways as one, for protocols that are spoken on a channel.
    pub fn stream(self: &Arc<Self>) -> Stream {
        Stream { reader: Reader::new(Arc::clone(&self.inbox)), outbox: Arc::clone(self), writing: None }
    }
}

/// As in RFC 4254; what it does not know has no name there.
fn name(signal: i32) -> Sig {
    use signal_hook::consts as known;
    match signal {
        known::SIGABRT => Sig::ABRT,
        known::SIGALRM => Sig::ALRM,
        known::SIGFPE => Sig::FPE,
        known::SIGHUP => Sig::HUP,
        known::SIGILL => Sig::ILL,
        known::SIGINT => Sig::INT,
        known::SIGKILL => Sig::KILL,
        known::SIGPIPE => Sig::PIPE,
        known::SIGQUIT => Sig::QUIT,
        known::SIGSEGV => Sig::SEGV,
        known::SIGTERM => Sig::TERM,
        known::SIGUSR1 => Sig::USR1,
        known::SIGUSR2 => Sig::Custom("USR2".to_owned()),
        _ => Sig::Custom("SIG@openssh.com".to_owned()),
    }
}

pub struct Stream {
    reader: Reader,
    outbox: Arc<Outbox>,
    /// How much, and how that goes.
    writing: Option<(usize, Sending)>,
}

type Sending = Pin<Box<dyn Future<Output = Result<(), Gone>> + Send>>;

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outbox = Arc::clone(&self.outbox);
        let (count, sending) = self.writing.get_or_insert_with(|| {
            let data = Bytes::copy_from_slice(buf);
            (data.len(), Box::pin(async move { outbox.send(data).await }))
        });
        let count = *count;
        let sent = std::task::ready!(sending.as_mut().poll(cx));
        self.writing = None;
        Poll::Ready(sent.map(|()| count).map_err(|Gone| io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
