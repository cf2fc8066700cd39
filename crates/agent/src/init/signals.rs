//! Signals sent to PID 1 and their effect on the server.

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

/// Stop signal of images that run systemd. The value is that of container runtimes, which use the glibc numbering.
const SIGRTMIN_PLUS_3: i32 = 37;

#[derive(Debug)]
pub struct Signals {
    /// SIGCHLD only wakes the reader: the kernel merges pending ones, so children are reaped until none is left.
    delivery: SignalDelivery<UnixStream, WithOrigin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalAction {
    Stop,
    Forward(Signal),
}

impl Signals {
    /// Installs the handlers. Signals are not blocked instead, because children would inherit the mask.
    pub fn install() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        pipe::register(SIGCHLD, write.try_clone()?)?;
        let handled = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGRTMIN_PLUS_3];
        let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), handled)?;
        Ok(Self { delivery })
    }

    /// Waits for a signal, the exit of a child, or the timeout.
    pub fn wait(&self, timeout: Option<Duration>) {
        // A timeout that overflows means none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // The only possible error is EINTR, which ends the wait as well.
        let _ =
            poll(&mut [PollFd::from_borrowed_fd(self.delivery.get_read().as_fd(), PollFlags::IN)], timeout.as_ref());
    }

    /// Returns the actions of the signals received since the last call.
    pub fn take(&mut self) -> Vec<SignalAction> {
        self.delivery.pending().map(|origin| action(origin.signal, is_external(&origin))).collect()
    }
}

/// A sender outside the container has no PID in its namespace.
fn is_external(origin: &Origin) -> bool {
    origin.process.is_some_and(|sender| sender.pid == 0)
}

/// A signal from outside comes from the container runtime and requests a stop, whichever signal the image configures as
/// `STOPSIGNAL`: SIGQUIT for nginx, SIGINT for PostgreSQL, SIGWINCH for Apache. Inside the container, the same signals
/// are meant for the entrypoint, which would otherwise be PID 1.
fn action(signal: i32, external: bool) -> SignalAction {
    match Signal::from_named_raw(signal) {
        Some(signal) if !external && signal != Signal::TERM => SignalAction::Forward(signal),
        _ => SignalAction::Stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_external_signal_requests_a_stop() {
        for signal in [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGRTMIN_PLUS_3] {
            assert_eq!(action(signal, true), SignalAction::Stop, "{signal}");
        }
    }

    #[test]
    fn internal_signals_except_stop_signals_are_forwarded() {
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH] {
            let forwarded = Signal::from_named_raw(signal).unwrap();
            assert_eq!(action(signal, false), SignalAction::Forward(forwarded), "{signal}");
        }
        for signal in [SIGTERM, SIGRTMIN_PLUS_3] {
            assert_eq!(action(signal, false), SignalAction::Stop, "{signal}");
        }
    }
}
