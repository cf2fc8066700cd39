//! `devctl cp`: copies files with scp.

use clap::Args;
use tokio::process::Command;

use crate::cli::shared::WakeOption;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::ssh::connect::{ReadyServer, WaitOptions, resolve_ready};
use crate::ssh::options::{SshOptions, SshOverrides};
use crate::ssh::{process, remote};

#[derive(Args, Debug)]
pub struct CpArgs {
    /// Files to copy; NAME:PATH for a file in a server
    #[arg(value_name = "FROM", required = true, num_args = 1..,
        add = clap_complete::ArgValueCompleter::new(crate::completion::cp_endpoint))]
    pub from: Vec<String>,
    /// Destination; NAME:PATH for a path in a server
    #[arg(value_name = "TO", required = true,
        add = clap_complete::ArgValueCompleter::new(crate::completion::cp_endpoint))]
    pub to: String,
    /// Accepted for compatibility with scp; directories are always copied
    #[arg(short, long = "recursive", hide = true)]
    _recursive: bool,
    /// Preserve modification times and modes
    #[arg(short, long)]
    pub preserve: bool,
    #[command(flatten)]
    pub wake: WakeOption,
}

/// A source or destination.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Endpoint<'a> {
    Local(&'a str),
    Remote { server: &'a str, path: &'a str },
}

pub async fn run(ctx: &ClusterContext, args: CpArgs) -> Result<()> {
    let endpoints: Vec<Endpoint> = args.from.iter().chain([&args.to]).map(|text| parse_endpoint(text)).collect();
    let remotes = endpoints.iter().filter(|endpoint| matches!(endpoint, Endpoint::Remote { .. })).count();
    if remotes == 0 {
        return Err(Error::usage("neither source nor destination is in a server")
            .with_hint("use NAME:PATH for a path in a server, such as box:results"));
    }
    let options = WaitOptions { no_wake: args.wake.no_wake, timeout: None };
    let (mut operands, mut last) = (Vec::new(), None);
    for endpoint in &endpoints {
        operands.push(match endpoint {
            // A leading ./ protects names that start with a dash or contain a colon.
            Endpoint::Local(path) if path.starts_with('/') => (*path).to_owned(),
            Endpoint::Local(path) => format!("./{path}"),
            Endpoint::Remote { server, path } => {
                let ready: ReadyServer = resolve_ready(ctx, Some(server), 0, options).await?;
                let alias = ready.host.alias();
                ready.pin_host_key(&alias)?;
                last = Some(ready);
                format!("{}@{alias}:{path}", ctx.login_name())
            }
        });
    }
    let options = SshOptions::new(&ctx.global, &ctx.settings, ctx.target(), &SshOverrides::NO_AGENT)?;
    let mut command = Command::new("scp");
    // Servers cannot reach each other, so a copy between two of them goes through this machine (-3).
    command.args(options.flags(None)).arg("-r").args(args.preserve.then_some("-p")).args((remotes > 1).then_some("-3"));
    command.args(ctx.ui.quiet().then_some("-q")).arg("--").args(operands);
    let code = process::exit_code(process::run(command).await?);
    match (code, last) {
        (0, _) => Ok(()),
        (255, Some(ready)) => Err(remote::diagnose(ctx, &ready).await.unwrap_or(Error::remote(1))),
        // scp has printed the error.
        _ => Err(Error::remote(1)),
    }
}

/// Parses like scp: a colon before any slash separates the server from the path.
fn parse_endpoint(text: &str) -> Endpoint<'_> {
    match text.split_once(':') {
        Some((server, path)) if !server.is_empty() && !server.contains('/') => Endpoint::Remote { server, path },
        _ => Endpoint::Local(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colon_before_a_slash_names_a_server() {
        assert_eq!(parse_endpoint("box:data/a"), Endpoint::Remote { server: "box", path: "data/a" });
        assert_eq!(parse_endpoint("box:"), Endpoint::Remote { server: "box", path: "" });
        for local in ["file", "./a:b", "/a:b", ":x", "-r"] {
            assert_eq!(parse_endpoint(local), Endpoint::Local(local));
        }
    }
}
