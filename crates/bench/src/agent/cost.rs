//! Size of the agent, and CPU cost of control requests to it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use odc_api::port;
use odc_control::{Reply, Request};
use odc_operator::agents::ssh_client::{AgentClient, ClientKey, connect};
use odc_operator::agents::ssh_control_ca::ControlCa;
use russh::keys::PrivateKey;
use rustix::time::{ClockId, clock_gettime};

use super::servers::{Fixture, Server, UID};

/// The agent port is fixed, so use a loopback address on which other programs are unlikely to listen.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 111, 100, 99);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the size of an executable, stripped and as built.
pub(crate) fn sizes(executable: &Path, directory: &Path) -> anyhow::Result<(u64, u64)> {
    let stripped = directory.join("stripped");
    let status = Command::new("strip").arg("-o").arg(&stripped).arg(executable).status().context("running strip")?;
    ensure!(status.success(), "strip failed ({status})");
    Ok((fs::metadata(stripped)?.len(), fs::metadata(executable)?.len()))
}

/// Returns the CPU time of one request with the operator's client: certificate, key exchange, login, request, reply. Every
/// request uses its own connection.
pub(crate) async fn cpu_per_request(agent: &Path, fixture: &Fixture, count: u32) -> anyhow::Result<Duration> {
    let _server = Server::agent_at(agent, fixture, SocketAddr::from((ADDRESS, port::AGENT)))?;
    let signing_key = PrivateKey::read_openssh_file(fixture.path().join("keys/control_ca"))?;
    let (ca, key) = (ControlCa { signing_key, trusted_keys: Vec::new() }, ClientKey::generate()?);
    let (host_key, address) = (fs::read_to_string(fixture.path().join("keys/host_key.pub"))?, ADDRESS.to_string());
    let before = cpu_time()?;
    for _ in 0..count {
        let now = Timestamp::now();
        let client = AgentClient { ca: &ca, key: &key, uid: UID, host_key: host_key.trim(), now };
        let stream = connect(&address).await.map_err(anyhow::Error::msg)?;
        let replies = client.request(stream, &[Request::Signals], REQUEST_TIMEOUT).await.map_err(anyhow::Error::msg)?;
        ensure!(matches!(replies.as_slice(), [Reply::Signals(_)]), "unexpected replies: {replies:?}");
    }
    Ok(cpu_time()?.saturating_sub(before) / count)
}

/// Returns the user and system time of all threads.
fn cpu_time() -> anyhow::Result<Duration> {
    Ok(Duration::try_from(clock_gettime(ClockId::ProcessCPUTime))?)
}
