//! Where the API server finds somebody who answers for a registered API.

use std::net::{TcpListener, UdpSocket};
use std::process::Command;

/// An address of this machine that the API server takes for an endpoint, as it takes no loopback one.
pub struct Address {
    pub ip: String,
    pub port: String,
    /// Nobody outside can reach it, and the kernel forgets it by itself, should this process be killed.
    added: bool,
}

impl Address {
    pub fn take() -> anyhow::Result<Self> {
        let [one, two] = rand::random::<[u8; 2]>();
        // Of the range for tests between networks.
        let ip = format!("198.18.{one}.{}", two.clamp(1, 254));
        let added = is_root() && change("add", &ip, &["valid_lft", "900", "preferred_lft", "900"]).is_ok();
        let ip = if added { ip } else { own()? };
        let port = TcpListener::bind((ip.as_str(), 0))?.local_addr()?.port().to_string();
        Ok(Self { ip, port, added })
    }
}

/// The one by which others know this machine. Nothing is sent.
fn own() -> anyhow::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect("198.18.0.1:9")?;
    Ok(socket.local_addr()?.ip().to_string())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn change(what: &str, ip: &str, more: &[&str]) -> anyhow::Result<()> {
    let whole = format!("{ip}/32");
    let done = Command::new("ip").args(["address", what, &whole, "dev", "lo"]).args(more).status()?;
    anyhow::ensure!(done.success(), "ip address {what} {whole} dev lo: {done}");
    Ok(())
}

impl Drop for Address {
    fn drop(&mut self) {
        if self.added {
            // The kernel does it later.
            let _ = change("del", &self.ip, &[]);
        }
    }
}
