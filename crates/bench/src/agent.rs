//! The agent's SSH server compared with OpenSSH's, on loopback with the same client, cipher and key exchange; its memory, size
//! and start time.
//!
//! The measurements of both servers are interleaved, so that other load on the machine affects both.

pub(crate) mod cost;
mod servers;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use servers::{ChildGuard, Fixture, Server};

/// The first choice of OpenSSH's client, and the fastest on most machines.
const CIPHERS: [&str; 2] = ["chacha20-poly1305@openssh.com", "aes128-gcm@openssh.com"];
/// Supported by the agent and all versions of OpenSSH.
pub(crate) const KEY_EXCHANGE: &str = "curve25519-sha256";

const TRANSFER_BYTES: u64 = 1 << 30;
/// Per direction, cipher and server.
const TRANSFERS: usize = 6;
const LOGINS: usize = 40;
const SESSIONS: usize = 20;
const STARTS: usize = 20;
const REQUESTS: u32 = 200;

/// Returns the report in Markdown.
pub(crate) async fn run() -> anyhow::Result<String> {
    let agent =
        PathBuf::from(std::env::var_os("ODC_AGENT").context("ODC_AGENT is not set; it must be the path of the agent")?);
    let fixture = Fixture::new()?;
    let mut report = String::new();
    compare_with_openssh(&fixture, &agent, &mut report)?;
    writeln!(report, "\n| | goal | measured |\n|---|---|---|")?;

    let (stripped, unstripped) = cost::sizes(&agent, fixture.path())?;
    writeln!(
        report,
        "| executable, stripped | ≤ 12 MiB | {:.1} MiB (as built {:.1}) |",
        mib(stripped),
        mib(unstripped)
    )?;

    let mut starts = (0..STARTS).map(|_| time_to_listen(&fixture, &agent)).collect::<anyhow::Result<Vec<_>>>()?;
    writeln!(report, "| time from start to listening | ≤ 20 ms | {:.1} ms |", milliseconds(median(&mut starts)))?;

    let server = Server::agent(&agent, &fixture)?;
    let before_login = server.memory()?;
    server.log_in(&fixture, CIPHERS[0])?;
    let idle = server.memory()?;
    writeln!(
        report,
        "| memory, idle | ≤ 10 MiB | {:.1} MiB ({:.1} before the first login) |",
        mib(idle),
        mib(before_login)
    )?;

    let sessions = open_sessions(&server, &fixture)?;
    let per_session = server.memory()?.saturating_sub(idle) / SESSIONS as u64;
    writeln!(report, "| memory per session with a PTY | ≤ 1 MiB | {:.2} MiB |", mib(per_session))?;
    drop(sessions);
    drop(server);

    let cpu = cost::cpu_per_request(&agent, &fixture, REQUESTS).await?;
    writeln!(report, "| CPU time of the operator per control request | ≤ 2 ms | {:.2} ms |", milliseconds(cpu))?;
    Ok(report)
}

fn compare_with_openssh(fixture: &Fixture, agent: &Path, report: &mut String) -> anyhow::Result<()> {
    let (agent, sshd) = (Server::agent(agent, fixture)?, Server::openssh(fixture)?);
    writeln!(report, "{}; key exchange {KEY_EXCHANGE}.\n", servers::version()?)?;
    writeln!(report, "| | goal | agent / sshd | agent | sshd |\n|---|---|---|---|---|")?;
    for cipher in CIPHERS {
        for (direction, upload) in [("upload", true), ("download", false)] {
            let (mut agent, mut sshd) = interleave(TRANSFERS, &agent, &sshd, |server| {
                server.transfer(fixture, cipher, TRANSFER_BYTES, upload)
            })?;
            let [agent, sshd] = [&mut agent, &mut sshd].map(|times| mib(TRANSFER_BYTES) / median(times).as_secs_f64());
            let short = cipher.split('@').next().unwrap_or(cipher);
            let ratio = agent / sshd;
            writeln!(
                report,
                "| 1 GiB {direction}, {short} | ≥ 0.7 | {ratio:.2} | {agent:.0} MiB/s | {sshd:.0} MiB/s |"
            )?;
        }
    }
    let (mut agent, mut sshd) = interleave(LOGINS, &agent, &sshd, |server| server.log_in(fixture, CIPHERS[0]))?;
    let [agent, sshd] = [&mut agent, &mut sshd].map(|times| milliseconds(median(times)));
    writeln!(report, "| `ssh host true` | ≤ 1.5 | {:.2} | {agent:.0} ms | {sshd:.0} ms |", agent / sshd)?;
    Ok(())
}

/// Measures both servers in the order A B B A, and so on.
fn interleave(
    rounds: usize,
    first: &Server,
    second: &Server,
    mut measure: impl FnMut(&Server) -> anyhow::Result<Duration>,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let (mut first_times, mut second_times) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            first_times.push(measure(first)?);
            second_times.push(measure(second)?);
        } else {
            second_times.push(measure(second)?);
            first_times.push(measure(first)?);
        }
    }
    Ok((first_times, second_times))
}

fn time_to_listen(fixture: &Fixture, agent: &Path) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let _server = Server::agent(agent, fixture)?;
    Ok(started.elapsed())
}

/// Opens [`SESSIONS`] sessions, each on its own connection.
fn open_sessions(server: &Server, fixture: &Fixture) -> anyhow::Result<Vec<ChildGuard>> {
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(server.open_session(fixture)?);
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
