//! Arguments of several commands.

use clap::Args;
use odc_api::duration::Duration;

#[derive(Args, Clone, Debug, Default)]
pub struct ServerArg {
    /// Server name or unique prefix [default: your only server]
    #[arg(value_name = "NAME", add = clap_complete::ArgValueCompleter::new(crate::completion::server))]
    pub name: Option<String>,
}

/// A server name without a default.
#[derive(Args, Clone, Debug)]
pub struct RequiredServerArg {
    /// Server name or unique prefix
    #[arg(value_name = "NAME", add = clap_complete::ArgValueCompleter::new(crate::completion::server))]
    pub name: String,
}

#[derive(Args, Clone, Debug, Default)]
pub struct NodeArg {
    /// Node of a multi-node server, starting at 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub node: u32,
}

/// How to treat a hibernated server.
#[derive(Args, Clone, Debug, Default)]
pub struct WakeOption {
    /// Fail if the server is hibernated instead of waking it
    #[arg(long)]
    pub no_wake: bool,
}

#[derive(Args, Clone, Debug, Default)]
pub struct DryRunArgs {
    /// Validate the request without changing anything
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Clone, Debug, Default)]
pub struct WatchArgs {
    /// Watch for changes
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Clone, Debug, Default)]
pub struct TimeoutArgs {
    /// Stop waiting after this time; the server stays
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Duration>,
}
