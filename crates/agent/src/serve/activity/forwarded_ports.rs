//! Traffic of forwarded ports.

use std::collections::HashMap;
use std::time::Duration;

use odc_control::Forwarded;

use crate::serve::activity::last_seen::seconds_since;

/// A client may scan all ports through the server.
const MAX_PORTS: usize = 256;

const MAX_REPORTED_PORTS: usize = 32;

#[derive(Debug, Default)]
pub struct Ports(HashMap<u16, Port>);

#[derive(Clone, Copy, Debug)]
struct Port {
    bytes: u64,
    at: Duration,
}

impl Ports {
    pub fn record(&mut self, port: u16, bytes: u64, now: Duration) {
        if let Some(existing) = self.0.get_mut(&port) {
            existing.bytes = existing.bytes.saturating_add(bytes);
            existing.at = now;
            return;
        }
        if self.0.len() >= MAX_PORTS
            && let Some(oldest) = self.0.iter().min_by_key(|(_, port)| port.at).map(|(number, _)| *number)
        {
            self.0.remove(&oldest);
        }
        self.0.insert(port, Port { bytes, at: now });
    }

    pub fn last_active(&self) -> Option<Duration> {
        self.0.values().map(|port| port.at).max()
    }

    /// Returns the most recently active ports.
    pub fn report(&self, now: Duration) -> Vec<Forwarded> {
        let mut ports: Vec<_> = self.0.iter().collect();
        ports.sort_by_key(|(number, port)| (std::cmp::Reverse(port.at), **number));
        ports.truncate(MAX_REPORTED_PORTS);
        let report = |(number, port): (&u16, &Port)| Forwarded {
            port: *number,
            bytes: port.bytes,
            last_seen_seconds_ago: Some(seconds_since(port.at, now)),
        };
        ports.into_iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_ports_are_reported_and_old_ones_dropped() {
        let mut ports = Ports::default();
        let at = |seconds| Duration::from_secs(seconds);
        ports.record(80, 5, at(1));
        ports.record(80, 6, at(2));
        assert_eq!(ports.report(at(12)), [Forwarded { port: 80, bytes: 11, last_seen_seconds_ago: Some(10) }]);
        for port in 1000..1000 + u16::try_from(MAX_PORTS).unwrap() {
            ports.record(port, 1, at(u64::from(port)));
        }
        assert_eq!(ports.0.len(), MAX_PORTS);
        assert!(!ports.0.contains_key(&80));
        let report = ports.report(at(2000));
        assert_eq!((report.len(), report[0].port), (MAX_REPORTED_PORTS, 1255));
        assert_eq!(ports.last_active(), Some(at(1255)));
    }
}
