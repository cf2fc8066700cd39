//! What the agent takes besides memory, and what it costs to ask it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use odc_api::port;
use odc_control::{Reply, Request};
use odc_operator::agents::authority::Authority;
use odc_operator::agents::dial::{Dial, Key, reach};
use russh::keys::PrivateKey;
use rustix::time::{ClockId, clock_gettime};

use super::servers::{Place, Server, UID};

/// The operator asks on one port, so this is an address of the loopback where nobody else is likely to listen.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 111, 100, 99);
const LIMIT: Duration = Duration::from_secs(10);

/// Stripped, and as it was built.
pub(crate) fn sizes(agent: &Path, place: &Path) -> anyhow::Result<(u64, u64)> {
    let stripped = place.join("stripped");
    let done = Command::new("strip").arg("-o").arg(&stripped).arg(agent).status().context("strip")?;
    ensure!(done.success(), "the agent cannot be stripped");
    Ok((fs::metadata(stripped)?.len(), fs::metadata(agent)?.len()))
}

/// Each on a connection of its own and with the operator's own code: certificate, key exchange, login, question, answer.
pub(crate) async fn of_an_ask(agent: &Path, place: &Place, count: u32) -> anyhow::Result<Duration> {
    let _server = Server::agent_at(agent, place, SocketAddr::from((ADDRESS, port::AGENT)))?;
    let signing = PrivateKey::read_openssh_file(place.path().join("keys/control_ca"))?;
    let (authority, key) = (Authority { signing, trusted: Vec::new() }, Key::fresh()?);
    let (host_key, address) = (fs::read_to_string(place.path().join("keys/host_key.pub"))?, ADDRESS.to_string());
    let begun = processor_time()?;
    for _ in 0..count {
        let now = Timestamp::now();
        let dial = Dial { authority: &authority, key: &key, uid: UID, host_key: host_key.trim(), now };
        let reached = reach(&address).await.map_err(anyhow::Error::msg)?;
        let replies = dial.ask(reached, &[Request::Signals], LIMIT).await.map_err(anyhow::Error::msg)?;
        ensure!(matches!(replies.as_slice(), [Reply::Signals(_)]), "it answers {replies:?}");
    }
    Ok(processor_time()?.saturating_sub(begun) / count)
}

/// Of all threads, in the kernel too.
fn processor_time() -> anyhow::Result<Duration> {
    Ok(Duration::try_from(clock_gettime(ClockId::ProcessCPUTime))?)
}
