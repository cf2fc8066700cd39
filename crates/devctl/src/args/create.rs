//! `devctl create`, and what `submit` shares with it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use odc_api::duration::Duration;
use odc_api::name::{ObjectName, TeamName, UserName};
use odc_api::quantity::Quantity;

use super::moment::Moment;
use super::value::{Assignment, Door, Hours, Mount, SecretAssignment};

#[derive(Args, Debug)]
pub struct Create {
    #[command(flatten)]
    pub request: Request,
    /// The server's name [default: two words that can be pronounced]
    #[arg(value_name = "NAME")]
    pub positional_name: Option<String>,
    /// The same
    #[arg(short, long, value_name = "NAME", conflicts_with = "positional_name")]
    pub name: Option<String>,
    /// Ask for everything that was not said
    #[arg(short, long, conflicts_with = "no_input")]
    pub interactive: bool,
    /// Do not open a shell when it is ready
    #[arg(long)]
    pub no_connect: bool,
    /// Return when it is ready, not when it is asked for; the default on a terminal
    #[arg(long, overrides_with = "no_wait")]
    pub wait: bool,
    /// Return at once, also on a terminal
    #[arg(long)]
    pub no_wait: bool,
    /// Wait no longer than this; the server stays in the queue
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Duration>,
    /// Show what would be asked for, checked by the cluster, without asking for it
    #[arg(long)]
    pub dry_run: bool,
    /// A command to run when the server starts
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// What the server should be. What may also be said by a variable or in a file has no `env` here: for clap that would be
/// as good as a flag, and contradict one.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "The server")]
pub struct Request {
    /// The kind of machine: one of `devctl flavors`, in any case [default: your default flavor, or the cluster's]
    #[arg(short = 't', long, visible_alias = "gpu-type", value_name = "NAME",
        add = clap_complete::ArgValueCompleter::new(crate::complete::flavor))]
    pub flavor: Option<String>,
    /// How many GPUs: on each node with --nodes, in all with --distributed [default: 1, or 0 where there are none]
    #[arg(short, long, visible_alias = "count", value_name = "N")]
    pub gpus: Option<u32>,
    /// How many nodes; they start, sleep and end as one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: Option<u32>,
    /// Take as many whole nodes as --gpus needs
    #[arg(short, long, conflicts_with = "nodes", requires = "gpus")]
    pub distributed: bool,
    /// How long it may run, such as 4h30m [default: 8h, or 1h with submit]
    #[arg(long, visible_aliases = ["lifetime", "ttl"], value_name = "DURATION")]
    pub time: Option<Duration>,
    /// The same in hours, such as 0.5
    #[arg(long, value_name = "HOURS", conflicts_with = "time")]
    pub hours: Option<Hours>,
    /// The container image [default: your default image, or the cluster's]
    #[arg(long, visible_alias = "dockerimage", value_name = "REF")]
    pub image: Option<String>,
    /// Run the image's own entrypoint beside the server's agent
    #[arg(long, alias = "keep-entrypoint")]
    pub preserve_entrypoint: bool,
    /// The Secret with the login for the image's registry
    #[arg(long, value_name = "SECRET")]
    pub pull_secret: Option<ObjectName>,
    #[command(flatten)]
    pub home: Home,
    /// Mount an existing claim: CLAIM:/path or CLAIM:/path:ro; may be repeated
    #[arg(short, long = "volume", value_name = "CLAIM:PATH[:ro]")]
    pub volumes: Vec<Mount>,
    /// Start Jupyter Lab
    #[arg(long, overrides_with = "no_jupyter")]
    pub jupyter: bool,
    /// Do not, whatever the settings say
    #[arg(long)]
    pub no_jupyter: bool,
    /// Set an environment variable: NAME=VALUE; may be repeated
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub env: Vec<Assignment>,
    /// Set one from a Secret of yours: NAME=SECRET/KEY; may be repeated
    #[arg(long, value_name = "NAME=SECRET/KEY")]
    pub secret_env: Vec<SecretAssignment>,
    /// Check this repository out into the home
    #[arg(long, value_name = "URL")]
    pub repo: Option<String>,
    /// The branch, tag or commit to check out; `none` for the default branch
    #[arg(long, value_name = "REF", requires = "repo")]
    pub r#ref: Option<String>,
    /// A script to run when the server starts
    #[arg(long, value_name = "FILE")]
    pub setup: Option<PathBuf>,
    /// A script to run before it stops
    #[arg(long, value_name = "FILE")]
    pub pre_stop: Option<PathBuf>,
    /// Let this public key in; may be repeated [default: your ed25519 key]
    #[arg(long = "ssh-public-key-file", visible_alias = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    /// Let another user in; may be repeated
    #[arg(long = "user", visible_alias = "add-user", value_name = "NAME")]
    pub users: Vec<UserName>,
    /// Offer a web application: NAME=PORT, or NAME=PORT:team or :public to share it; may be repeated
    #[arg(long = "port", value_name = "NAME=PORT")]
    pub ports: Vec<Door>,
    /// What happens after this long without use, such as 30m
    #[arg(long, value_name = "DURATION")]
    pub idle: Option<Duration>,
    /// What happens then [default: hibernate, or end where the home is ephemeral]
    #[arg(long, value_name = "ACTION")]
    pub idle_action: Option<WhenIdle>,
    /// The team whose quota it uses [default: your own quota]
    #[arg(long, value_name = "NAME")]
    pub team: Option<TeamName>,
    /// How urgent it is
    #[arg(long, value_name = "PRIORITY")]
    pub priority: Option<Urgency>,
    /// Let it be stopped when somebody with a better right needs its devices
    #[arg(long)]
    pub preemptible: bool,
    /// Only on nodes with this label: NAME=VALUE; may be repeated
    #[arg(short = 'l', long = "node-label", value_name = "NAME=VALUE")]
    pub node_labels: Vec<Assignment>,
    /// Book it for this time: +2h, 15:00, 'tomorrow 9:00', 'tue 9:00', '2027-01-31 9:00' or 2027-01-31T09:00:00Z
    #[arg(long, visible_alias = "not-before", value_name = "TIME")]
    pub at: Option<Moment>,
}

#[derive(Args, Clone, Debug, Default)]
#[group(multiple = false)]
pub struct Home {
    /// An existing claim of yours as the home; it outlives the server
    #[arg(long, value_name = "CLAIM", add = clap_complete::ArgValueCompleter::new(crate::complete::claim))]
    pub home_claim: Option<ObjectName>,
    /// The size of a home that is gone with the server [default: 10Gi]
    #[arg(long, value_name = "SIZE")]
    pub home_size: Option<Quantity>,
    /// A home that is gone with the server, without being told so
    #[arg(long)]
    pub no_persist: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhenIdle {
    // Sleep until somebody connects.
    Hibernate,
    // End for good.
    End,
    // Go on until its time is over.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Urgency {
    Low,
    Normal,
    High,
}
