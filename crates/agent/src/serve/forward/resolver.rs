//! Host name resolution. The C library may load NSS modules of the image, which need not be compatible with it, so a
//! separate process resolves. If that crashes, the name has no address.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::args;
use crate::process_id::SELF_EXE;

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(15);

/// RFC 1035, section 2.3.4.
const MAX_HOST_NAME: usize = 253;

pub async fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    if let Some(addresses) = parse_literal(host) {
        return Ok(addresses);
    }
    if host.is_empty() || host.len() > MAX_HOST_NAME || host.starts_with('-') || host.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut command = Command::new(SELF_EXE);
    command.args(["resolve", "--", host]).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = timeout(RESOLVE_TIMEOUT, command.output()).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.parse().ok()).collect())
}

/// Returns the addresses of a literal or of localhost.
fn parse_literal(host: &str) -> Option<Vec<IpAddr>> {
    if host.eq_ignore_ascii_case("localhost") {
        return Some(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    host.trim_start_matches('[').trim_end_matches(']').parse().ok().map(|address| vec![address])
}

/// `odc-agent resolve`.
pub fn run(args: &args::Resolve) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    for address in (args.host.as_str(), 0).to_socket_addrs()? {
        writeln!(out, "{}", address.ip())?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_localhost_need_no_lookup() {
        let text =
            |host| parse_literal(host).map(|all| all.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" "));
        assert_eq!(text("LocalHost").as_deref(), Some("127.0.0.1 ::1"));
        assert_eq!(text("10.1.2.3").as_deref(), Some("10.1.2.3"));
        assert_eq!(text("[::1]").as_deref(), Some("::1"));
        assert_eq!(text("example.com"), None);
    }
}
