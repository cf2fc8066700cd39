//! A client's connection as the library reads it: in large pieces, and with an end that can be brought about from
//! outside. The library itself may be waiting for the client at that time, so telling it to end would not help.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::serve::flow::{self, Pace};
use crate::serve::inbox::Inboxes;

/// Several packets. Only as much of it is ever touched as came at once.
const BUFFER: usize = 256 << 10;

/// Between two looks at the network while a client is ahead of its processes. It is allowed next to nothing, but that it
/// could send as fast as it is read.
const REST: Duration = Duration::from_millis(2);

pub struct Intake {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    taken: usize,
    rest: Option<Pin<Box<Sleep>>>,
    /// Others had their turn since something was read.
    gave_way: bool,
    inboxes: Inboxes,
    cut: Cut,
}

/// Ends a connection, whatever it is waiting for.
#[derive(Clone, Debug, Default)]
pub struct Cut(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    cut: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Cut {
    pub fn now(&self) {
        let mut waiting = self.waiting();
        waiting.cut = true;
        let wakers = [waiting.reader.take(), waiting.writer.take()];
        drop(waiting);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Whether both end the same connection.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn is_cut(&self) -> bool {
        self.waiting().cut
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intake {
    pub fn new(stream: TcpStream, inboxes: Inboxes, cut: Cut) -> Self {
        Self { stream, buffer: Vec::new(), filled: 0, taken: 0, rest: None, gave_way: false, inboxes, cut }
    }

    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match flow::pace(self.inboxes.worst(), self.gave_way) {
            Pace::GiveWay => {
                self.gave_way = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Pace::Rest => ready!(self.rest.get_or_insert_with(|| Box::pin(sleep(REST))).as_mut().poll(cx)),
            Pace::Read => {}
        }
        self.rest = None;
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER];
        }
        let mut room = ReadBuf::new(&mut self.buffer);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut room);
        (self.taken, self.filled) = (0, room.filled().len());
        self.gave_way = self.filled == 0;
        polled
    }
}

impl AsyncRead for Intake {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.taken == self.filled {
            self.cut.waiting().reader = Some(cx.waker().clone());
            if self.cut.is_cut() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.fill(cx))?;
        }
        let count = buf.remaining().min(self.filled - self.taken);
        buf.put_slice(&self.buffer[self.taken..self.taken + count]);
        self.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Intake {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.cut.waiting().writer = Some(cx.waker().clone());
        if self.cut.is_cut() {
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
