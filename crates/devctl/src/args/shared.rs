//! Arguments that several commands have, each written once.

use clap::Args;

#[derive(Args, Clone, Debug, Default)]
pub struct Server {
    /// The server, or a beginning that only its name has [default: the only one you have]
    #[arg(value_name = "NAME", add = clap_complete::ArgValueCompleter::new(crate::complete::server))]
    pub name: Option<String>,
}

/// Where the only one there is will not do.
#[derive(Args, Clone, Debug)]
pub struct NamedServer {
    /// The server, or a beginning that only its name has
    #[arg(value_name = "NAME", add = clap_complete::ArgValueCompleter::new(crate::complete::server))]
    pub name: String,
}

#[derive(Args, Clone, Debug, Default)]
pub struct Node {
    /// The node of a gang, 0 for the first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub node: u32,
}

#[derive(Args, Clone, Debug, Default)]
pub struct Sleeping {
    /// Fail if it sleeps, instead of waking it
    #[arg(long)]
    pub no_wake: bool,
}

#[derive(Args, Clone, Debug, Default)]
pub struct Trial {
    /// Check it without doing it
    #[arg(long)]
    pub dry_run: bool,
}
