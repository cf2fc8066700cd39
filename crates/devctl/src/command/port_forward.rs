//! `devctl port-forward`: ports of a server on this machine, over SSH. What listens only inside the server is reached
//! too, each direction of a connection can end on its own, and the server sees that somebody uses it.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::Stdio;

use futures_util::FutureExt as _;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::args::PortForward;
use crate::failure::{Failure, Result};
use crate::remote;
use crate::ssh::arrive::{Patience, arrive};
use crate::ssh::client;
use crate::ssh::route::{Wishes, route};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    /// 0 for any that is free.
    local: u16,
    remote: u16,
}

pub async fn run(app: &App, args: PortForward) -> Result<()> {
    let pairs = args.ports.iter().map(|text| pair(text)).collect::<Result<Vec<_>>>()?;
    let pairs = pairs.into_iter().map(|pair| free(args.address, pair)).collect::<Result<Vec<_>>>()?;
    let patience = Patience { no_wake: args.sleeping.no_wake, limit: None };
    let there = arrive(app, Some(&args.server.name), args.place.node, patience).await?;
    let alias = there.host.alias();
    there.pin(&alias)?;
    let wishes = Wishes { forward_agent: Some(false), identity: None };
    let route = route(&app.global, &app.settings, app.place(), &wishes)?;
    let mut command = Command::new("ssh");
    command.args(route.options(None)).args(["-N", "-T", "-oExitOnForwardFailure=yes", "-l", app.login()]);
    // OpenSSH runs this when it listens; with nothing else on its standard output, that tells us.
    command.args(["-oPermitLocalCommand=yes", "-oLocalCommand=echo"]);
    for pair in &pairs {
        command.arg(format!("-L{}:127.0.0.1:{}", SocketAddr::new(args.address, pair.local), pair.remote));
    }
    command.arg("--").arg(alias).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| Failure::failed(format!("signals cannot be watched: {error}")))?;
    let mut child = command.spawn().map_err(|error| client::not_started(&command, &error))?;
    let mut listening = child.stdout.take();
    let name = there.server.name();
    let told = async {
        if let Some(listening) = &mut listening
            && matches!(listening.read(&mut [0; 16]).await, Ok(1..))
        {
            for pair in &pairs {
                let here = SocketAddr::new(args.address, pair.local);
                app.talk.say(format!("{here} is port {} of {name}", pair.remote));
            }
            app.talk.say("Ctrl-C ends it.");
        }
        std::future::pending().await
    };
    let status = tokio::select! {
        status = client::attend(child) => status?,
        never = told => never,
    };
    match client::code(status) {
        0 => Ok(()),
        // Ctrl-C, by which this command is meant to end; OpenSSH calls that an end like any other.
        _ if interrupt.recv().now_or_never().is_some() => Ok(()),
        255 => Err(remote::why_not(app, &there).await.unwrap_or_else(|| {
            Failure::failed(format!("the connection to {name} ended")).advise("Start it again when the server is back.")
        })),
        code => Err(Failure::remote(code)),
    }
}

/// `REMOTE`, `LOCAL:REMOTE` or `:REMOTE`.
fn pair(text: &str) -> Result<Pair> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let parsed = match text.split_once(':') {
        None => port(text).map(|same| Pair { local: same, remote: same }),
        Some(("" | "0", remote)) => port(remote).map(|remote| Pair { local: 0, remote }),
        Some((local, remote)) => port(local).zip(port(remote)).map(|(local, remote)| Pair { local, remote }),
    };
    parsed.ok_or_else(|| {
        Failure::usage(format!("{text:?} names no port"))
            .advise("Write 8888, 9000:8888 for another port here, or :8888 for any that is free.")
    })
}

/// A port that can be listened on here. Somebody may take it before OpenSSH does; then that says so.
fn free(address: IpAddr, pair: Pair) -> Result<Pair> {
    let taken = |error: std::io::Error| {
        let Pair { local, remote } = pair;
        Failure::conflict(format!("port {local} of this machine cannot be listened on: {error}")).advise(format!(
            "Take another: {}:{remote}, or :{remote} for any that is free.",
            local.wrapping_add(1).max(1024)
        ))
    };
    let listener = TcpListener::bind((address, pair.local)).map_err(taken)?;
    let local = listener.local_addr().map_err(taken)?.port();
    Ok(Pair { local, ..pair })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_the_same_or_not() {
        assert_eq!(pair("8888").unwrap(), Pair { local: 8888, remote: 8888 });
        assert_eq!(pair("9000:8888").unwrap(), Pair { local: 9000, remote: 8888 });
        assert_eq!(pair(":8888").unwrap(), Pair { local: 0, remote: 8888 });
        for bad in ["", "0", "x", "8888:", "1:2:3", "70000", "8888:0"] {
            assert!(pair(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_that_is_taken_says_so_before_anything_is_done() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let taken = TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
        let holder = TcpListener::bind((address, taken)).unwrap();
        let failure = free(address, Pair { local: taken, remote: 80 }).unwrap_err();
        assert!(failure.advice.unwrap().contains(":80"));
        drop(holder);
        assert_ne!(free(address, Pair { local: 0, remote: 80 }).unwrap().local, 0);
    }
}
