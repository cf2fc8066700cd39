//! Ports for processes that are started later.
//!
//! The kernel assigns ports of its ephemeral range to other sockets at any time, so a port that was free may be in use when
//! the process binds it. Ports below that range are used only by programs that ask for them.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Below the default ephemeral range of Linux (32768) and the range of Kubernetes node ports (30000).
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;
const MAX_ATTEMPTS: u32 = 1000;

/// Returns a listener on a random port of loopback. Close it right before the process is started.
pub fn reserve() -> io::Result<TcpListener> {
    let mut result = Err(io::ErrorKind::AddrInUse.into());
    for _ in 0..MAX_ATTEMPTS {
        // Each RandomState has other keys.
        let offset = RandomState::new().build_hasher().finish() % u64::from(COUNT);
        let port = FIRST + u16::try_from(offset).unwrap_or_default();
        result = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        match &result {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            _ => break,
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_distinct_and_outside_the_ephemeral_range() {
        let listeners: Vec<TcpListener> = (0..100).map(|_| reserve().unwrap()).collect();
        for listener in &listeners {
            assert!((FIRST..FIRST + COUNT).contains(&listener.local_addr().unwrap().port()));
        }
    }
}
