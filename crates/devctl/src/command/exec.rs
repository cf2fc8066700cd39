//! `devctl exec`: runs a command in a server and exits with its status.

use clap::Args;

use super::ssh::SshInvocation;
use crate::cli::shared::{NodeArg, RequiredServerArg, WakeOption};
use crate::context::ClusterContext;
use crate::error::Result;
use crate::shell;
use crate::ssh::connect::{WaitOptions, resolve_ready};
use crate::ssh::options::SshOverrides;

#[derive(Args, Debug)]
pub struct ExecArgs {
    #[command(flatten)]
    pub server: RequiredServerArg,
    /// Allocate a terminal
    #[arg(short, long)]
    pub tty: bool,
    /// Open a shell instead of running a command
    #[arg(long, conflicts_with = "command")]
    pub shell: bool,
    #[command(flatten)]
    pub node: NodeArg,
    #[command(flatten)]
    pub wake: WakeOption,
    /// Command
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "shell")]
    pub command: Vec<String>,
}

pub async fn run(ctx: &ClusterContext, args: ExecArgs) -> Result<()> {
    let options = WaitOptions { no_wake: args.wake.no_wake, timeout: None };
    let ready = resolve_ready(ctx, Some(&args.server.name), args.node.node, options).await?;
    let tty = if args.tty {
        // Twice, so that ssh allocates one even if its own input is not a terminal.
        "-tt"
    } else if args.shell {
        "-t"
    } else {
        "-T"
    };
    let invocation = SshInvocation {
        options: vec![tty.to_owned()],
        overrides: SshOverrides::default(),
        command_line: (!args.shell).then(|| shell::command_line(&args.command)),
    };
    invocation.run(ctx, &ready).await
}
