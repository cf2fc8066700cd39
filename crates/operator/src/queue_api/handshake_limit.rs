//! Limits concurrent TLS handshakes. A handshake costs a key exchange before the client is authenticated, so each
//! address has a limit of its own and one client cannot keep the API server from connecting.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Handshakes in progress, in total.
const MAX_HANDSHAKES: usize = 256;
/// Handshakes in progress per client. An API server opens one connection per concurrent request.
const MAX_HANDSHAKES_PER_CLIENT: usize = 32;

#[derive(Clone, Debug, Default)]
pub struct HandshakeLimiter(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A handshake in progress, until it is dropped.
#[derive(Debug)]
pub struct HandshakePermit {
    limiter: HandshakeLimiter,
    key: IpAddr,
}

impl HandshakeLimiter {
    /// Returns `None` if a limit is reached.
    pub fn try_acquire(&self, peer: IpAddr) -> Option<HandshakePermit> {
        let key = limit_key(peer);
        let mut handshakes = self.0.lock();
        if handshakes.values().sum::<usize>() >= MAX_HANDSHAKES {
            return None;
        }
        let count = handshakes.entry(key).or_default();
        if *count >= MAX_HANDSHAKES_PER_CLIENT {
            return None;
        }
        *count += 1;
        Some(HandshakePermit { limiter: self.clone(), key })
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let mut handshakes = self.limiter.0.lock();
        if let Some(count) = handshakes.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                handshakes.remove(&self.key);
            }
        }
    }
}

/// Returns the address that a client is counted by: for IPv6 the /64 prefix, because one host can use all addresses in
/// it.
fn limit_key(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        address @ IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn limit_of_one_client_does_not_affect_others() {
        let limiter = HandshakeLimiter::default();
        let (noisy, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut permits: Vec<HandshakePermit> =
            (0..MAX_HANDSHAKES_PER_CLIENT).filter_map(|_| limiter.try_acquire(noisy)).collect();
        assert_eq!(permits.len(), MAX_HANDSHAKES_PER_CLIENT);
        assert!(limiter.try_acquire(noisy).is_none());
        assert!(limiter.try_acquire(other).is_some());
        permits.pop();
        assert!(limiter.try_acquire(noisy).is_some());
    }

    #[test]
    fn total_limit_is_released_with_the_permits() {
        let limiter = HandshakeLimiter::default();
        let all: Vec<_> = (0..300).map(|number| limiter.try_acquire(Ipv4Addr::from_bits(number).into())).collect();
        assert_eq!(all.iter().flatten().count(), MAX_HANDSHAKES);
        drop(all);
        assert!(limiter.0.lock().is_empty());
    }

    #[test]
    fn ipv6_clients_are_counted_by_prefix() {
        let key = |text: &str| limit_key(text.parse().unwrap());
        assert_eq!(key("fd00:1:2:3::1"), key("fd00:1:2:3:aaaa::2"));
        assert_ne!(key("fd00:1:2:3::1"), key("fd00:1:2:4::1"));
        assert_eq!(key("::ffff:10.0.0.1"), key("10.0.0.1"));
        assert_ne!(key("10.0.0.1"), key("10.0.0.2"));
    }
}
