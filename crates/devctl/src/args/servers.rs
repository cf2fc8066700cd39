//! Commands about servers that are there.

use std::path::PathBuf;

use clap::Args;
use odc_api::duration::Duration;
use odc_api::name::{PortName, UserName};

use super::create::{Urgency, WhenIdle};
use super::shared::{Server, Trial};
use super::value::{Door, Hours};

#[derive(Args, Debug)]
pub struct List {
    /// Only servers whose names begin so
    #[arg(value_name = "NAME", add = clap_complete::ArgValueCompleter::new(crate::complete::server))]
    pub names: Vec<String>,
    /// Somebody else's servers, or those of `all`, as far as you may see them
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,
    /// Only servers in these phases, such as running,queued; `all` shows ended ones too, however old
    #[arg(short, long, visible_alias = "phase", value_name = "PHASES", value_delimiter = ',')]
    pub status: Vec<String>,
    /// Also servers that ended more than an hour ago
    #[arg(short, long)]
    pub all: bool,
    /// All columns; the same as -o wide
    #[arg(short, long)]
    pub details: bool,
    /// Go on, and show every change
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Debug)]
pub struct Show {
    #[command(flatten)]
    pub server: Server,
    /// Ask neither the server itself about activity and Jupyter nor the queue about its place
    #[arg(long)]
    pub offline: bool,
}

#[derive(Args, Debug)]
pub struct Extend {
    #[command(flatten)]
    pub server: Server,
    /// By how much, such as 2h
    #[arg(value_name = "DURATION")]
    pub by: Option<Duration>,
    /// The same
    #[arg(long, visible_alias = "by", value_name = "DURATION", conflicts_with = "by")]
    pub time: Option<Duration>,
    /// The same in hours, such as 0.5
    #[arg(long, value_name = "HOURS", conflicts_with_all = ["by", "time"])]
    pub hours: Option<Hours>,
    /// Let it run this long in all, counted from its first start
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["by", "time", "hours"])]
    pub total: Option<Duration>,
    #[command(flatten)]
    pub trial: Trial,
}

impl Extend {
    /// By how much, however it was said.
    pub fn length(&self) -> Option<Duration> {
        self.by.or(self.time).or(self.hours.map(|hours| hours.0))
    }
}

#[derive(Args, Debug)]
pub struct Hibernate {
    #[command(flatten)]
    pub server: Server,
    /// Return at once
    #[arg(long)]
    pub no_wait: bool,
    /// Wait no longer than this
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: Duration,
    #[command(flatten)]
    pub trial: Trial,
}

#[derive(Args, Debug)]
pub struct Wake {
    /// The server, or a beginning that only its name has [default: the only one that sleeps]
    #[arg(value_name = "NAME", add = clap_complete::ArgValueCompleter::new(crate::complete::server))]
    pub name: Option<String>,
    /// Return at once
    #[arg(long)]
    pub no_wait: bool,
    /// Wait no longer than this; it stays in the queue
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    pub trial: Trial,
}

#[derive(Args, Debug)]
pub struct Delete {
    /// The servers, or beginnings that only their names have
    #[arg(value_name = "NAME", add = clap_complete::ArgValueCompleter::new(crate::complete::server))]
    pub names: Vec<String>,
    /// All of yours that have not ended
    #[arg(short, long, conflicts_with = "names")]
    pub all: bool,
    /// Ask nothing; the same as --yes
    #[arg(short, long)]
    pub force: bool,
    /// Also forget it at once, instead of keeping it readable for a day
    #[arg(long)]
    pub purge: bool,
    /// Return when it has ended, not when it is asked to
    #[arg(long)]
    pub wait: bool,
    /// Wait no longer than this
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "wait")]
    pub timeout: Duration,
    #[command(flatten)]
    pub trial: Trial,
}

#[derive(Args, Debug)]
pub struct Edit {
    #[command(flatten)]
    pub server: Server,
    /// Start Jupyter Lab
    #[arg(long, conflicts_with = "disable_jupyter")]
    pub enable_jupyter: bool,
    /// Stop Jupyter Lab
    #[arg(long)]
    pub disable_jupyter: bool,
    /// Let another user in; may be repeated
    #[arg(long = "add-user", value_name = "NAME")]
    pub add_users: Vec<UserName>,
    /// Let them in no longer; may be repeated
    #[arg(long = "remove-user", value_name = "NAME")]
    pub remove_users: Vec<UserName>,
    /// Let a public key in; may be repeated
    #[arg(long = "add-key", value_name = "FILE")]
    pub add_keys: Vec<PathBuf>,
    /// Let it in no longer: a file, or the key's comment; may be repeated
    #[arg(long = "remove-key", value_name = "FILE|COMMENT")]
    pub remove_keys: Vec<String>,
    /// Give it more time, such as 2h; see `devctl extend`
    #[arg(long, value_name = "DURATION")]
    pub extend: Option<Duration>,
    /// Let it run this long in all
    #[arg(long, alias = "time", value_name = "DURATION", conflicts_with = "extend")]
    pub lifetime: Option<Duration>,
    /// Offer a web application: NAME=PORT, or NAME=PORT:team or :public to share it; may be repeated
    #[arg(long = "add-port", value_name = "NAME=PORT")]
    pub add_ports: Vec<Door>,
    /// Offer it no longer; may be repeated
    #[arg(long = "remove-port", value_name = "NAME")]
    pub remove_ports: Vec<PortName>,
    /// What happens after this long without use
    #[arg(long, value_name = "DURATION")]
    pub idle: Option<Duration>,
    /// What happens then
    #[arg(long, value_name = "ACTION")]
    pub idle_action: Option<WhenIdle>,
    /// How urgent it is while it waits
    #[arg(long, value_name = "PRIORITY")]
    pub priority: Option<Urgency>,
    #[command(flatten)]
    pub trial: Trial,
}

#[derive(Args, Debug)]
pub struct Debug {
    #[command(flatten)]
    pub server: Server,
    /// Also what its containers printed last
    #[arg(long)]
    pub logs: bool,
}
