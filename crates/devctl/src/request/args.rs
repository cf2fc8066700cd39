//! The arguments of `create` and `submit` that describe a server.

// Doc comments are help texts here, and terminals show Markdown as it is.
#![allow(clippy::doc_markdown, reason = "doc comments are shown on terminals")]
#![allow(clippy::struct_excessive_bools, reason = "each flag is a bool")]

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use odc_api::duration::Duration;
use odc_api::name::{DiskName, ObjectName, TeamName, UserName};
use odc_api::quantity::Quantity;

use crate::cli::start_time::StartTime;
use crate::cli::value::{Assignment, Hours, Mount, PortArg, SecretAssignment};

/// The flags of a new server. Those that a variable or config file can set as well have no `env`: clap would treat the
/// variable like a flag and report conflicts with other flags.
#[derive(Args, Clone, Debug, Default)]
pub struct RequestArgs {
    /// Flavor: one of `devctl flavors` [default: your default flavor, or that of the cluster]
    #[arg(short = 't', long, alias = "gpu-type", value_name = "NAME", help_heading = "Machine",
        add = clap_complete::ArgValueCompleter::new(crate::completion::flavor))]
    pub flavor: Option<String>,
    /// Number of GPUs per node; in total with --distributed [default: 1, or 0 if the flavor has none]
    #[arg(short, long, alias = "count", value_name = "N", help_heading = "Machine")]
    pub gpus: Option<u32>,
    /// Number of nodes, which start, hibernate and stop together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Machine")]
    pub nodes: Option<u32>,
    /// Use as many whole nodes as --gpus requires
    #[arg(short, long, conflicts_with = "nodes", requires = "gpus", help_heading = "Machine")]
    pub distributed: bool,
    /// Maximum running time, such as 4h30m [default: 8h, or 1h with submit]
    #[arg(long, aliases = ["time", "ttl"], value_name = "DURATION", help_heading = "Lifetime")]
    pub lifetime: Option<Duration>,
    /// Lifetime in hours, such as 0.5
    #[arg(long, value_name = "HOURS", conflicts_with = "lifetime", hide = true)]
    pub hours: Option<Hours>,
    /// Idle time after which the idle action runs, such as 30m
    #[arg(long, value_name = "DURATION", help_heading = "Lifetime")]
    pub idle: Option<Duration>,
    /// Idle action [default: hibernate, or delete if the home is ephemeral]
    #[arg(long, value_name = "ACTION", help_heading = "Lifetime")]
    pub idle_action: Option<IdleActionArg>,
    /// Container image [default: your default image, or that of the cluster]
    #[arg(long, alias = "dockerimage", value_name = "REF", help_heading = "Image")]
    pub image: Option<String>,
    /// Run the entrypoint of the image as well
    #[arg(long, alias = "keep-entrypoint", help_heading = "Image")]
    pub preserve_entrypoint: bool,
    /// Secret with the registry credentials
    #[arg(long, value_name = "SECRET", help_heading = "Image")]
    pub pull_secret: Option<ObjectName>,
    /// Environment variable; may be repeated
    #[arg(short, long, value_name = "NAME=VALUE", help_heading = "Image")]
    pub env: Vec<Assignment>,
    /// Environment variable from a Secret; may be repeated
    #[arg(long, value_name = "NAME=SECRET/KEY", help_heading = "Image")]
    pub secret_env: Vec<SecretAssignment>,
    /// Git repository to clone into the home directory
    #[arg(long, value_name = "URL", help_heading = "Image")]
    pub repo: Option<String>,
    /// Branch, tag or commit of --repo; `none` for the default branch
    #[arg(long, value_name = "REF", requires = "repo", help_heading = "Image")]
    pub r#ref: Option<String>,
    /// Script to run at every start; the server is ready when it has finished
    #[arg(long, value_name = "FILE", help_heading = "Image")]
    pub setup: Option<PathBuf>,
    /// Script to run before the server stops
    #[arg(long, value_name = "FILE", help_heading = "Image")]
    pub pre_stop: Option<PathBuf>,
    #[command(flatten)]
    pub home: HomeArgs,
    /// Replace the shell startup files in the home directory, such as .bashrc, by those of the image; the old ones are
    /// moved to ~/.startup-files-backup-TIME
    #[arg(long, help_heading = "Storage")]
    pub recreate_env: bool,
    /// Mount a PVC; may be repeated
    #[arg(short, long = "volume", value_name = "PVC:PATH[:ro]", help_heading = "Storage")]
    pub volumes: Vec<Mount>,
    /// Start JupyterLab
    #[arg(long, overrides_with = "no_jupyter", help_heading = "Access")]
    pub jupyter: bool,
    /// Do not start JupyterLab (overrides the config file)
    #[arg(long, help_heading = "Access")]
    pub no_jupyter: bool,
    /// Public key to accept; may be repeated [default: your ed25519 key]
    #[arg(long = "ssh-public-key-file", alias = "key", value_name = "FILE", help_heading = "Access")]
    pub keys: Vec<PathBuf>,
    /// User to grant access; may be repeated
    #[arg(long = "user", alias = "add-user", value_name = "NAME", help_heading = "Access")]
    pub users: Vec<UserName>,
    /// Port of a web application (reserved; not exposed yet): NAME=PORT, NAME=PORT:team or NAME=PORT:public; may be
    /// repeated
    #[arg(long = "port", value_name = "NAME=PORT", help_heading = "Access")]
    pub ports: Vec<PortArg>,
    /// Team whose quota is used [default: your own quota]
    #[arg(long, value_name = "NAME", help_heading = "Scheduling")]
    pub team: Option<TeamName>,
    /// Priority in the queue
    #[arg(long, value_name = "PRIORITY", help_heading = "Scheduling")]
    pub priority: Option<PriorityArg>,
    /// Allow preemption; required to borrow idle quota
    #[arg(long, help_heading = "Scheduling")]
    pub preemptible: bool,
    /// Node label to require; may be repeated
    #[arg(short = 'l', long = "node-label", value_name = "NAME=VALUE", help_heading = "Scheduling")]
    pub node_labels: Vec<Assignment>,
    /// Book a start time: +2h, 15:00, 'tomorrow 9:00', 'tue 9:00', '2027-01-31 9:00' or 2027-01-31T09:00:00Z
    #[arg(long, alias = "not-before", value_name = "TIME", help_heading = "Scheduling")]
    pub at: Option<StartTime>,
}

impl RequestArgs {
    /// Returns the lifetime, in whichever unit it was given.
    pub fn requested_lifetime(&self) -> Option<Duration> {
        self.lifetime.or(self.hours.map(|hours| hours.0))
    }
}

#[derive(Args, Clone, Debug, Default)]
pub struct HomeArgs {
    /// Disk for the home directory, by name or display name; it is kept when the server ends; `none` for an ephemeral
    /// home [default: home, created on first use; ephemeral for multi-node servers and submit]
    #[arg(long, value_name = "NAME", help_heading = "Storage", conflicts_with_all = ["home_claim", "home_size", "ephemeral"],
        add = clap_complete::ArgValueCompleter::new(crate::completion::disk))]
    pub disk: Option<String>,
    /// A disk to create, chosen in a prompt.
    #[arg(skip)]
    pub new_disk: Option<DiskName>,
    /// Use an ephemeral home, which is deleted with the server
    #[arg(long, alias = "no-persist", help_heading = "Storage")]
    pub ephemeral: bool,
    /// Use an ephemeral home if another server uses the disk
    #[arg(long, alias = "ignore-no-persist", help_heading = "Storage",
        conflicts_with_all = ["home_claim", "home_size", "ephemeral"])]
    pub ephemeral_if_in_use: bool,
    /// Size of an ephemeral home [default: 10Gi]
    #[arg(long, value_name = "SIZE", help_heading = "Storage")]
    pub home_size: Option<Quantity>,
    /// Existing PVC for the home directory, instead of a disk; it is kept when the server ends
    #[arg(long, value_name = "PVC", help_heading = "Storage", conflicts_with_all = ["home_size", "ephemeral"],
        add = clap_complete::ArgValueCompleter::new(crate::completion::claim))]
    pub home_claim: Option<ObjectName>,
}

impl HomeArgs {
    /// Reports whether a flag selects the home.
    pub fn is_set(&self) -> bool {
        let Self { disk, new_disk, ephemeral, ephemeral_if_in_use: _, home_size, home_claim } = self;
        disk.is_some() || new_disk.is_some() || *ephemeral || home_size.is_some() || home_claim.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IdleActionArg {
    Hibernate,
    #[value(alias = "end")]
    Delete,
    // The server runs until it expires.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PriorityArg {
    Low,
    Normal,
    High,
}
