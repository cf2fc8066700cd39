//! An address at which the API server reaches an aggregated API served by a test.

use std::net::{TcpListener, UdpSocket};
use std::process::Command;

/// Seconds after which the kernel removes an address that a killed test has left.
const ADDRESS_LIFETIME: &str = "900";

/// An address of this machine that is valid in an `EndpointSlice`, which rejects loopback addresses.
pub struct EndpointAddress {
    pub ip: String,
    pub port: String,
    /// The address was added to the loopback interface. It is not reachable from outside.
    added: bool,
}

impl EndpointAddress {
    pub fn allocate() -> anyhow::Result<Self> {
        let [third, fourth] = rand::random::<[u8; 2]>();
        // From the benchmarking range of RFC 2544.
        let ip = format!("198.18.{third}.{}", fourth.clamp(1, 254));
        let lifetime = ["valid_lft", ADDRESS_LIFETIME, "preferred_lft", ADDRESS_LIFETIME];
        let added = is_root() && change_address("add", &ip, &lifetime).is_ok();
        let ip = if added { ip } else { host_address()? };
        let port = TcpListener::bind((ip.as_str(), 0))?.local_addr()?.port().to_string();
        Ok(Self { ip, port, added })
    }
}

/// Returns the source address of outgoing connections. Sends nothing.
fn host_address() -> anyhow::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect("198.18.0.1:9")?;
    Ok(socket.local_addr()?.ip().to_string())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn change_address(verb: &str, ip: &str, options: &[&str]) -> anyhow::Result<()> {
    let prefix = format!("{ip}/32");
    let status = Command::new("ip").args(["address", verb, &prefix, "dev", "lo"]).args(options).status()?;
    anyhow::ensure!(status.success(), "ip address {verb} {prefix} dev lo: {status}");
    Ok(())
}

impl Drop for EndpointAddress {
    fn drop(&mut self) {
        if self.added {
            // If this fails, the kernel removes it later.
            let _ = change_address("del", &self.ip, &[]);
        }
    }
}
