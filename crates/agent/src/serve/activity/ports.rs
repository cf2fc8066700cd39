//! What was carried to and from the server's ports.

use std::collections::HashMap;
use std::time::Duration;

use odc_control::Forwarded;

use crate::serve::activity::mark::ago;

/// Somebody may scan all ports through us.
const MOST: usize = 256;

/// More than anybody reads.
const TOLD: usize = 32;

#[derive(Debug, Default)]
pub struct Ports(HashMap<u16, Port>);

#[derive(Clone, Copy, Debug)]
struct Port {
    bytes: u64,
    at: Duration,
}

impl Ports {
    pub fn carried(&mut self, port: u16, bytes: u64, now: Duration) {
        if let Some(known) = self.0.get_mut(&port) {
            known.bytes = known.bytes.saturating_add(bytes);
            known.at = now;
            return;
        }
        if self.0.len() >= MOST
            && let Some(oldest) = self.0.iter().min_by_key(|(_, port)| port.at).map(|(number, _)| *number)
        {
            self.0.remove(&oldest);
        }
        self.0.insert(port, Port { bytes, at: now });
    }

    pub fn newest(&self) -> Option<Duration> {
        self.0.values().map(|port| port.at).max()
    }

    /// The newest first.
    pub fn told(&self, now: Duration) -> Vec<Forwarded> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(number, port)| (std::cmp::Reverse(port.at), **number));
        all.truncate(TOLD);
        let told = |(number, port): (&u16, &Port)| Forwarded {
            port: *number,
            bytes: port.bytes,
            last_seen_seconds_ago: Some(ago(port.at, now)),
        };
        all.into_iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_told_and_the_oldest_forgotten() {
        let mut ports = Ports::default();
        let at = |seconds| Duration::from_secs(seconds);
        ports.carried(80, 5, at(1));
        ports.carried(80, 6, at(2));
        assert_eq!(ports.told(at(12)), [Forwarded { port: 80, bytes: 11, last_seen_seconds_ago: Some(10) }]);
        for port in 1000..1000 + u16::try_from(MOST).unwrap() {
            ports.carried(port, 1, at(u64::from(port)));
        }
        assert_eq!(ports.0.len(), MOST);
        assert!(!ports.0.contains_key(&80));
        let told = ports.told(at(2000));
        assert_eq!((told.len(), told[0].port), (TOLD, 1255));
        assert_eq!(ports.newest(), Some(at(1255)));
    }
}
