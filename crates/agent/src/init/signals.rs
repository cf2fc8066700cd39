//! The signals sent to process 1, and what each means to the server.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::pipe;
use signal_hook::low_level::siginfo::Origin;

/// What images that boot systemd are stopped with: SIGRTMIN+3, as container runtimes count.
const HALT: i32 = 37;

#[derive(Debug)]
pub struct Signals {
    /// Woken by a child's end too, of which nothing else is kept: the kernel merges those.
    delivery: SignalDelivery<UnixStream, WithOrigin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Stop,
    Forward(Signal),
}

impl Signals {
    /// From here on no signal is lost. Handlers are used rather than a blocked mask, because children would inherit that.
    pub fn catch() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        pipe::register(SIGCHLD, write.try_clone()?)?;
        let caught = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, HALT];
        let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), caught)?;
        Ok(Self { delivery })
    }

    /// Waits for a signal, a child's end or the timeout.
    pub fn wait(&self, timeout: Option<Duration>) {
        // A time too long for the kernel is as good as none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // An interrupted wait is a wait that is over; there is nothing else that could go wrong.
        let _ =
            poll(&mut [PollFd::from_borrowed_fd(self.delivery.get_read().as_fd(), PollFlags::IN)], timeout.as_ref());
    }

    /// All that came since the last call.
    pub fn take(&mut self) -> Vec<Meaning> {
        self.delivery.pending().map(|origin| meaning(origin.signal, is_outside(&origin))).collect()
    }
}

/// The sender has no number here if it is not in the container.
fn is_outside(origin: &Origin) -> bool {
    origin.process.is_some_and(|sender| sender.pid == 0)
}

/// Outside the container, only its runtime knows process 1, and it sends a signal for one reason: to stop it. Which one is
/// up to the image (`STOPSIGNAL`): SIGQUIT with nginx, SIGINT with PostgreSQL, SIGWINCH with Apache. From inside, the same
/// signals are meant for the entrypoint, which believes to be process 1.
fn meaning(signal: i32, outside: bool) -> Meaning {
    match Signal::from_named_raw(signal) {
        Some(signal) if !outside && signal != Signal::TERM => Meaning::Forward(signal),
        _ => Meaning::Stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_from_outside_is_a_request_to_stop_whatever_the_image_calls_it() {
        for signal in [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, HALT] {
            assert_eq!(meaning(signal, true), Meaning::Stop, "{signal}");
        }
    }

    #[test]
    fn a_signal_from_inside_is_the_entrypoints_unless_it_ends_servers() {
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH] {
            let forwarded = Signal::from_named_raw(signal).unwrap();
            assert_eq!(meaning(signal, false), Meaning::Forward(forwarded), "{signal}");
        }
        for signal in [SIGTERM, HALT] {
            assert_eq!(meaning(signal, false), Meaning::Stop, "{signal}");
        }
    }
}
