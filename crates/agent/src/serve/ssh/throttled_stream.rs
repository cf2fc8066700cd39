//! The TCP stream of a connection as russh reads it: in large chunks, throttled by [`flow_control`], and closable from
//! outside. russh may be blocked on a write to the client, so asking it to disconnect is not sufficient.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::serve::ssh::flow_control::{self, ReadAction};
use crate::serve::ssh::receive_buffer::ReceiveBuffers;

/// Several packets. Only the pages that are read into are ever touched.
const READ_BUFFER_SIZE: usize = 256 << 10;

/// Delay between reads while input is not consumed. The client has a minimal window, but could use it at any rate.
const THROTTLE_DELAY: Duration = Duration::from_millis(2);

pub struct ThrottledStream {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    consumed: usize,
    delay: Option<Pin<Box<Sleep>>>,
    /// Other tasks ran since the last read.
    yielded: bool,
    buffers: ReceiveBuffers,
    disconnect: Disconnect,
}

/// Closes a connection, whatever it is waiting for.
#[derive(Clone, Debug, Default)]
pub struct Disconnect(Arc<Mutex<DisconnectState>>);

#[derive(Debug, Default)]
struct DisconnectState {
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Disconnect {
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Reports whether both belong to the same connection.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn is_closed(&self) -> bool {
        self.state().closed
    }

    fn state(&self) -> MutexGuard<'_, DisconnectState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThrottledStream {
    pub fn new(stream: TcpStream, buffers: ReceiveBuffers, disconnect: Disconnect) -> Self {
        Self { stream, buffer: Vec::new(), filled: 0, consumed: 0, delay: None, yielded: false, buffers, disconnect }
    }

    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match flow_control::read_action(self.buffers.largest(), self.yielded) {
            ReadAction::Yield => {
                self.yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            ReadAction::Delay => {
                ready!(self.delay.get_or_insert_with(|| Box::pin(sleep(THROTTLE_DELAY))).as_mut().poll(cx));
            }
            ReadAction::Read => {}
        }
        self.delay = None;
        if self.buffer.is_empty() {
            self.buffer = vec![0; READ_BUFFER_SIZE];
        }
        let mut buffer = ReadBuf::new(&mut self.buffer);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        (self.consumed, self.filled) = (0, buffer.filled().len());
        self.yielded = self.filled == 0;
        polled
    }
}

impl AsyncRead for ThrottledStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.consumed == self.filled {
            self.disconnect.state().reader = Some(cx.waker().clone());
            if self.disconnect.is_closed() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.fill(cx))?;
        }
        let count = buf.remaining().min(self.filled - self.consumed);
        buf.put_slice(&self.buffer[self.consumed..self.consumed + count]);
        self.consumed += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ThrottledStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.disconnect.state().writer = Some(cx.waker().clone());
        if self.disconnect.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
