//! Limits the number of connections that have not authenticated yet, as `MaxStartups` in `sshd_config(5)`.
//!
//! Unlike sshd, no new connection is rejected: an attacker could then lock the owner out by holding all slots. Instead
//! an existing connection is evicted. A client sends its version string immediately, so connections without one are
//! evicted first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::serve::ssh::throttled_stream::Disconnect;

const MAX_PRE_AUTH_CONNECTIONS: usize = 256;

/// All connections that have not authenticated, in no particular order.
#[derive(Clone, Debug, Default)]
pub struct PreAuthConnections(Arc<Mutex<Vec<Entry>>>);

#[derive(Debug)]
struct Entry {
    disconnect: Disconnect,
    version_received: bool,
}

/// Counts a connection as pre-auth until it is dropped.
#[derive(Debug)]
pub struct PreAuthGuard {
    connections: PreAuthConnections,
    disconnect: Disconnect,
}

impl PreAuthConnections {
    /// Registers a connection and evicts another one if the limit is reached.
    pub fn register(&self, random: u32) -> PreAuthGuard {
        let mut entries = self.entries();
        let version_received: Vec<bool> = entries.iter().map(|entry| entry.version_received).collect();
        if let Some(index) = eviction_candidate(&version_received, random) {
            entries.swap_remove(index).disconnect.close();
        }
        let disconnect = Disconnect::default();
        entries.push(Entry { disconnect: disconnect.clone(), version_received: false });
        PreAuthGuard { connections: self.clone(), disconnect }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PreAuthGuard {
    /// Returns the handle that closes the connection.
    pub fn disconnect_handle(&self) -> Disconnect {
        self.disconnect.clone()
    }

    /// Records that the client has sent its version string.
    pub fn version_received(&self) {
        let mut entries = self.connections.entries();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.disconnect.is_same(&self.disconnect)) {
            entry.version_received = true;
        }
    }
}

impl Drop for PreAuthGuard {
    fn drop(&mut self) {
        self.connections.entries().retain(|entry| !entry.disconnect.is_same(&self.disconnect));
    }
}

/// Returns the index of the connection to evict for a new one, if the limit is reached: a random one, preferably
/// without a version string.
fn eviction_candidate(version_received: &[bool], random: u32) -> Option<usize> {
    if version_received.len() < MAX_PRE_AUTH_CONNECTIONS {
        return None;
    }
    let silent: Vec<usize> = (0..version_received.len()).filter(|index| !version_received[*index]).collect();
    let random = random as usize;
    Some(if silent.is_empty() { random % version_received.len() } else { silent[random % silent.len()] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_connection_is_evicted_below_the_limit() {
        assert_eq!(eviction_candidate(&[], 7), None);
        assert_eq!(eviction_candidate(&[false; MAX_PRE_AUTH_CONNECTIONS - 1], 7), None);
        assert_eq!(eviction_candidate(&[false; MAX_PRE_AUTH_CONNECTIONS], 7), Some(7));
    }

    #[test]
    fn connection_without_version_string_is_evicted_first() {
        let mut version_received = [true; MAX_PRE_AUTH_CONNECTIONS];
        version_received[9] = false;
        assert!((0..1000).all(|random| eviction_candidate(&version_received, random) == Some(9)));
    }

    proptest! {
        #[test]
        fn evicted_connection_has_no_version_string_if_one_has_none(
            version_received in
                prop::collection::vec(any::<bool>(), MAX_PRE_AUTH_CONNECTIONS..MAX_PRE_AUTH_CONNECTIONS + 9),
            random: u32,
        ) {
            let index = eviction_candidate(&version_received, random).unwrap();
            prop_assert!(!version_received[index] || version_received.iter().all(|received| *received));
        }
    }
}
