//! The agent's SSH server beside OpenSSH's on the same loopback, with the same client, cipher and key exchange; and what it
//! takes in memory, disk and time.
//!
//! Whatever else the machine does hits both alike: they take turns, each first as often as the other.

pub(crate) mod cost;
mod servers;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use servers::{Place, Running, Server};

/// What OpenSSH's client asks for first, and what is fastest on most machines. Both sides have both.
const CIPHERS: [&str; 2] = ["chacha20-poly1305@openssh.com", "aes128-gcm@openssh.com"];
/// The best that all versions of OpenSSH and the agent have in common.
pub(crate) const KEY_EXCHANGE: &str = "curve25519-sha256";

const BULK: u64 = 1 << 30;
/// Of both ways, with each cipher, for each server.
const TRANSFERS: usize = 6;
const LOGINS: usize = 40;
const SESSIONS: usize = 20;
const STARTS: usize = 20;
const ASKS: u32 = 200;

/// As it stands in `docs/performance.md`.
pub(crate) async fn run() -> anyhow::Result<String> {
    let agent = PathBuf::from(std::env::var_os("ODC_AGENT").context("ODC_AGENT names the agent to measure")?);
    let place = Place::new()?;
    let mut report = String::new();
    beside_openssh(&place, &agent, &mut report)?;
    writeln!(report, "\n| | goal | measured |\n|---|---|---|")?;

    let (stripped, shipped) = cost::sizes(&agent, place.path())?;
    writeln!(report, "| executable, stripped | ≤ 12 MiB | {:.1} MiB (as built {:.1}) |", mib(stripped), mib(shipped))?;

    let mut starts = (0..STARTS).map(|_| time_to_listen(&place, &agent)).collect::<anyhow::Result<Vec<_>>>()?;
    writeln!(report, "| listening after start | ≤ 20 ms | {:.1} ms |", milliseconds(median(&mut starts)))?;

    let server = Server::agent(&agent, &place)?;
    let fresh = server.memory()?;
    server.log_in(&place, CIPHERS[0])?;
    let idle = server.memory()?;
    writeln!(report, "| memory, idle | ≤ 10 MiB | {:.1} MiB ({:.1} before the first login) |", mib(idle), mib(fresh))?;

    let sessions = open_sessions(&server, &place)?;
    let more = server.memory()?.saturating_sub(idle) / SESSIONS as u64;
    writeln!(report, "| memory for each session with a terminal | ≤ 1 MiB | {:.2} MiB |", mib(more))?;
    drop(sessions);
    drop(server);

    let each = cost::of_an_ask(&agent, &place, ASKS).await?;
    writeln!(report, "| processor time of an ask, for who asks | ≤ 2 ms | {:.2} ms |", milliseconds(each))?;
    Ok(report)
}

fn beside_openssh(place: &Place, agent: &Path, report: &mut String) -> anyhow::Result<()> {
    let (ours, theirs) = (Server::agent(agent, place)?, Server::openssh(place)?);
    writeln!(report, "{}; key exchange {KEY_EXCHANGE}.\n", servers::version()?)?;
    writeln!(report, "| | goal | agent / sshd | agent | sshd |\n|---|---|---|---|---|")?;
    for cipher in CIPHERS {
        for (way, upwards) in [("up", true), ("down", false)] {
            let (mut our, mut their) =
                by_turns(TRANSFERS, &ours, &theirs, |server| server.transfer(place, cipher, BULK, upwards))?;
            let [our, their] = [&mut our, &mut their].map(|times| mib(BULK) / median(times).as_secs_f64());
            let short = cipher.split('@').next().unwrap_or(cipher);
            let ratio = our / their;
            writeln!(report, "| 1 GiB {way}, {short} | ≥ 0.7 | {ratio:.2} | {our:.0} MiB/s | {their:.0} MiB/s |")?;
        }
    }
    let (mut our, mut their) = by_turns(LOGINS, &ours, &theirs, |server| server.log_in(place, CIPHERS[0]))?;
    let [our, their] = [&mut our, &mut their].map(|times| milliseconds(median(times)));
    writeln!(report, "| `ssh host true` | ≤ 1.5 | {:.2} | {our:.0} ms | {their:.0} ms |", our / their)?;
    Ok(())
}

/// A B B A, and so on.
fn by_turns(
    times: usize,
    ours: &Server,
    theirs: &Server,
    mut measure: impl FnMut(&Server) -> anyhow::Result<Duration>,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let (mut our, mut their) = (Vec::new(), Vec::new());
    for turn in 0..times {
        if turn % 2 == 0 {
            our.push(measure(ours)?);
            their.push(measure(theirs)?);
        } else {
            their.push(measure(theirs)?);
            our.push(measure(ours)?);
        }
    }
    Ok((our, their))
}

fn time_to_listen(place: &Place, agent: &Path) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let _server = Server::agent(agent, place)?;
    Ok(begun.elapsed())
}

/// Each on a connection of its own.
fn open_sessions(server: &Server, place: &Place) -> anyhow::Result<Vec<Running>> {
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(server.open_session(place)?);
    }
    Ok(sessions)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
