//! `devctl port-forward`: forwards local ports over SSH. Unlike `kubectl port-forward` it reaches ports that listen on
//! loopback only, supports half-closed connections, and counts as activity of the server.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::Stdio;

use clap::Args;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::cli::shared::{NodeArg, RequiredServerArg, WakeOption};
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::signals::Signals;
use crate::ssh::connect::{WaitOptions, resolve_ready};
use crate::ssh::options::{SshOptions, SshOverrides};
use crate::ssh::{process, remote};

#[derive(Args, Debug)]
pub struct PortForwardArgs {
    #[command(flatten)]
    pub server: RequiredServerArg,
    /// Ports: REMOTE, LOCAL:REMOTE, or :REMOTE for any free local port
    #[arg(value_name = "PORT", required = true)]
    pub ports: Vec<String>,
    /// Local address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub address: IpAddr,
    #[command(flatten)]
    pub node: NodeArg,
    #[command(flatten)]
    pub wake: WakeOption,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PortPair {
    /// 0 for any free port.
    local: u16,
    remote: u16,
}

pub async fn run(ctx: &ClusterContext, args: PortForwardArgs) -> Result<()> {
    let pairs = args.ports.iter().map(|text| parse_pair(text)).collect::<Result<Vec<_>>>()?;
    let pairs = pairs.into_iter().map(|pair| check_local_port(args.address, pair)).collect::<Result<Vec<_>>>()?;
    let options = WaitOptions { no_wake: args.wake.no_wake, timeout: None };
    let ready = resolve_ready(ctx, Some(&args.server.name), args.node.node, options).await?;
    let alias = ready.host.alias();
    ready.pin_host_key(&alias)?;
    let options = SshOptions::new(&ctx.global, &ctx.settings, ctx.target(), &SshOverrides::NO_AGENT)?;
    let mut command = Command::new("ssh");
    command.args(options.flags(None)).args(["-N", "-T", "-oExitOnForwardFailure=yes", "-l", ctx.login_name()]);
    // OpenSSH runs LocalCommand when it listens. Its output is the only one on standard output.
    command.args(["-oPermitLocalCommand=yes", "-oLocalCommand=echo"]);
    for pair in &pairs {
        command.arg(format!("-L{}:127.0.0.1:{}", SocketAddr::new(args.address, pair.local), pair.remote));
    }
    command.arg("--").arg(alias).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut signals = Signals::new()?;
    let mut child = command.spawn().map_err(|error| process::spawn_error(&command, &error))?;
    let mut stdout = child.stdout.take();
    let name = ready.server.name();
    let announce = async {
        if let Some(stdout) = &mut stdout
            && matches!(stdout.read(&mut [0; 16]).await, Ok(1..))
        {
            for pair in &pairs {
                let local = SocketAddr::new(args.address, pair.local);
                ctx.ui.info(format!("Forwarding {local} to port {} of {name}", pair.remote));
            }
            ctx.ui.info("Press Ctrl-C to stop");
        }
        std::future::pending().await
    };
    let status = tokio::select! {
        status = process::wait_forwarding_signals(child) => status?,
        never = announce => never,
    };
    match process::exit_code(status) {
        0 => Ok(()),
        // Ctrl-C is the regular way to stop; OpenSSH exits with 255.
        _ if signals.is_interrupted() => Ok(()),
        255 => Err(remote::diagnose(ctx, &ready).await.unwrap_or_else(|| {
            Error::failed(format!("lost the connection to server {name}"))
                .with_hint("run the command again when the server is ready")
        })),
        code => Err(Error::remote(code)),
    }
}

/// Parses `REMOTE`, `LOCAL:REMOTE` or `:REMOTE`.
fn parse_pair(text: &str) -> Result<PortPair> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let pair = match text.split_once(':') {
        None => port(text).map(|port| PortPair { local: port, remote: port }),
        Some(("" | "0", remote)) => port(remote).map(|remote| PortPair { local: 0, remote }),
        Some((local, remote)) => port(local).zip(port(remote)).map(|(local, remote)| PortPair { local, remote }),
    };
    pair.ok_or_else(|| {
        Error::usage(format!("invalid port {text:?}"))
            .with_hint("use 8888, 9000:8888 for another local port, or :8888 for any free local port")
    })
}

/// Checks that a local port is free, or chooses one. OpenSSH reports a port that is taken later.
fn check_local_port(address: IpAddr, pair: PortPair) -> Result<PortPair> {
    let in_use = |error: std::io::Error| {
        let PortPair { local, remote } = pair;
        Error::conflict(format!("cannot listen on local port {local}: {error}")).with_hint(format!(
            "choose another such as {}:{remote}, or :{remote} for any free port",
            local.wrapping_add(1).max(1024)
        ))
    };
    let listener = TcpListener::bind((address, pair.local)).map_err(in_use)?;
    let local = listener.local_addr().map_err(in_use)?.port();
    Ok(PortPair { local, ..pair })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_local_and_remote_ports() {
        assert_eq!(parse_pair("8888").unwrap(), PortPair { local: 8888, remote: 8888 });
        assert_eq!(parse_pair("9000:8888").unwrap(), PortPair { local: 9000, remote: 8888 });
        assert_eq!(parse_pair(":8888").unwrap(), PortPair { local: 0, remote: 8888 });
        for invalid in ["", "0", "x", "8888:", "1:2:3", "70000", "8888:0"] {
            assert!(parse_pair(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn used_local_port_is_rejected() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let port = TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
        let listener = TcpListener::bind((address, port)).unwrap();
        let error = check_local_port(address, PortPair { local: port, remote: 80 }).unwrap_err();
        assert!(error.hint.unwrap().contains(":80"));
        drop(listener);
        assert_ne!(check_local_port(address, PortPair { local: 0, remote: 80 }).unwrap().local, 0);
    }
}
