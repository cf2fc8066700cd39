//! Publishes the address of `serve` to other processes in the container, as a file in the state directory.

use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::atomic_write::write_atomic;
use crate::process_id::ProcessId;

const FILE: &str = "serve.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServeEndpoint {
    pub serve: ProcessId,
    pub listen: SocketAddr,
}

impl ServeEndpoint {
    pub fn new(listen: SocketAddr) -> Self {
        Self { serve: ProcessId::current(), listen }
    }

    pub fn store(&self, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        write_atomic(&directory.join(FILE), 0o644, |file| file.write_all(&text))
    }

    /// Returns the endpoint, unless its process has exited.
    pub fn load(directory: &Path) -> Option<Self> {
        let endpoint: Self = serde_json::from_slice(&fs::read(directory.join(FILE)).ok()?).ok()?;
        endpoint.serve.may_exist().then_some(endpoint)
    }

    /// Returns the address for connections from inside the container.
    pub fn loopback_address(&self) -> SocketAddr {
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
    fn unspecified_address_is_reached_on_loopback() {
        let address = |listen: &str| ServeEndpoint::new(listen.parse().unwrap()).loopback_address().to_string();
        assert_eq!(address("0.0.0.0:22"), "127.0.0.1:22");
        assert_eq!(address("[::]:22"), "[::1]:22");
        assert_eq!(address("10.0.0.1:22"), "10.0.0.1:22");
    }

    #[test]
    fn endpoint_of_exited_process_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let endpoint = ServeEndpoint::new("127.0.0.1:22".parse().unwrap());
        endpoint.store(dir.path()).unwrap();
        assert_eq!(ServeEndpoint::load(dir.path()), Some(endpoint.clone()));
        let start_ticks = endpoint.serve.start_ticks.map(|ticks| ticks - 1);
        ServeEndpoint { serve: ProcessId { start_ticks, ..endpoint.serve }, ..endpoint }.store(dir.path()).unwrap();
        assert_eq!(ServeEndpoint::load(dir.path()), None);
    }
}
