//! Tells others in the container where `serve` listens: a file in the state directory.

use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::replace::replace;
use crate::state::process::Process;

const FILE: &str = "serve.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marker {
    pub serve: Process,
    pub listen: SocketAddr,
}

impl Marker {
    pub fn new(listen: SocketAddr) -> Self {
        Self { serve: Process::own(), listen }
    }

    pub fn store(&self, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        replace(&directory.join(FILE), 0o644, |file| file.write_all(&text))
    }

    /// Nothing, if its writer is gone.
    pub fn load(directory: &Path) -> Option<Self> {
        let marker: Self = serde_json::from_slice(&fs::read(directory.join(FILE)).ok()?).ok()?;
        marker.serve.is_there().then_some(marker)
    }

    /// Where it is reached from inside.
    pub fn address(&self) -> SocketAddr {
        let ip = match self.listen.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        SocketAddr::new(ip, self.listen.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everywhere_is_also_here() {
        let address = |listen: &str| Marker::new(listen.parse().unwrap()).address().to_string();
        assert_eq!(address("0.0.0.0:22"), "127.0.0.1:22");
        assert_eq!(address("[::]:22"), "[::1]:22");
        assert_eq!(address("10.0.0.1:22"), "10.0.0.1:22");
    }

    #[test]
    fn the_marker_of_a_process_that_is_gone_is_none() {
        let place = tempfile::tempdir().unwrap();
        let marker = Marker::new("127.0.0.1:22".parse().unwrap());
        marker.store(place.path()).unwrap();
        assert_eq!(Marker::load(place.path()), Some(marker.clone()));
        let start_ticks = marker.serve.start_ticks.map(|ticks| ticks - 1);
        Marker { serve: Process { start_ticks, ..marker.serve }, ..marker }.store(place.path()).unwrap();
        assert_eq!(Marker::load(place.path()), None);
    }
}
