//! Commands that reach into a server.

use std::path::PathBuf;

use clap::Args;
use odc_api::duration::Duration;

use super::create::Request;
use super::shared::{NamedServer, Node, Server, Sleeping};

#[derive(Args, Clone, Debug, Default)]
pub struct Ssh {
    #[command(flatten)]
    pub server: Server,
    /// Be the connection itself, for ssh's ProxyCommand: bytes in, bytes out
    #[arg(long, requires = "name", conflicts_with_all = ["command", "dry_run"])]
    pub stdio: bool,
    /// The node of a gang, 0 for the first [default: you are asked, or the first]
    #[arg(long, value_name = "N")]
    pub node: Option<u32>,
    /// The private key to log in with [default: your own, or the one devctl made]
    #[arg(short, long, value_name = "FILE", env = "DEVCTL_IDENTITY", hide_env = true)]
    pub identity: Option<PathBuf>,
    /// Let programs in the server use your key agent
    #[arg(short = 'A', long, overrides_with = "no_forward_agent")]
    pub forward_agent: bool,
    /// Do not, whatever the settings say
    #[arg(long)]
    pub no_forward_agent: bool,
    /// An option for ssh, such as Compression=no; may be repeated
    #[arg(long = "option", value_name = "KEY=VALUE")]
    pub options: Vec<String>,
    #[command(flatten)]
    pub sleeping: Sleeping,
    /// Wait no longer than this for a server that is not ready
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Duration>,
    /// Show the ssh command without running it
    #[arg(long)]
    pub dry_run: bool,
    /// A command to run instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Exec {
    #[command(flatten)]
    pub server: NamedServer,
    /// Give the command a terminal
    #[arg(short, long)]
    pub tty: bool,
    /// Open a shell instead of running a command
    #[arg(long, conflicts_with = "command")]
    pub shell: bool,
    #[command(flatten)]
    pub place: Node,
    #[command(flatten)]
    pub sleeping: Sleeping,
    /// The command
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "shell")]
    pub command: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Cp {
    /// What to copy; NAME:PATH is in a server
    #[arg(value_name = "FROM", required = true, num_args = 1..,
        add = clap_complete::ArgValueCompleter::new(crate::complete::end_of_copy))]
    pub from: Vec<String>,
    /// Where to; NAME:PATH is in a server
    #[arg(value_name = "TO", required = true,
        add = clap_complete::ArgValueCompleter::new(crate::complete::end_of_copy))]
    pub to: String,
    /// Nothing: directories are copied anyway
    #[arg(short, long = "recursive", hide = true)]
    _recursive: bool,
    /// Keep times and modes
    #[arg(short, long)]
    pub preserve: bool,
    #[command(flatten)]
    pub sleeping: Sleeping,
}

#[derive(Args, Debug)]
pub struct Logs {
    #[command(flatten)]
    pub server: Server,
    /// Go on as it grows
    #[arg(short, long)]
    pub follow: bool,
    #[command(flatten)]
    pub place: Node,
    /// Only the last lines
    #[arg(long, value_name = "LINES")]
    pub tail: Option<i64>,
    /// Only what is newer than this, such as 10m
    #[arg(long, value_name = "DURATION")]
    pub since: Option<Duration>,
    /// The time before each line
    #[arg(long)]
    pub timestamps: bool,
    /// What the container before the last restart printed
    #[arg(short, long)]
    pub previous: bool,
}

#[derive(Args, Debug)]
pub struct PortForward {
    #[command(flatten)]
    pub server: NamedServer,
    /// The ports: REMOTE, LOCAL:REMOTE, or :REMOTE for any free one here
    #[arg(value_name = "PORT", required = true)]
    pub ports: Vec<String>,
    /// The address to listen on here
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub address: std::net::IpAddr,
    #[command(flatten)]
    pub place: Node,
    #[command(flatten)]
    pub sleeping: Sleeping,
}

#[derive(Args, Debug)]
pub struct Submit {
    #[command(flatten)]
    pub request: Request,
    /// The server's name [default: two words that can be pronounced]
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// The directory to copy there, run in and copy back
    #[arg(long, alias = "runtime", value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Copy nothing there
    #[arg(long)]
    pub no_push: bool,
    /// Copy nothing back
    #[arg(long)]
    pub no_pull: bool,
    /// Files to leave out both ways, as rsync writes them; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Keep the server when the command has ended
    #[arg(long, visible_alias = "keep-alive")]
    pub keep: bool,
    /// Wait no longer than this for the server
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub timeout: Duration,
    /// Show what would be asked for, without asking for it
    #[arg(long)]
    pub dry_run: bool,
    /// The command, run in a login shell on the first node
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub command: Vec<String>,
}
