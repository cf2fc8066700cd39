//! What was typed. Values that can be wrong are checked while they are read, so no subcommand sees a bad one.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, Subcommand, ValueEnum};

use crate::helper;
use crate::prepare::account::{FullName, Home, UserName};

/// Make any image a dev server.
#[derive(Debug, Parser)]
#[command(name = "odc-agent", version)]
pub struct Agent {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copy this executable into a directory that the server's containers share
    Install(Install),
    /// Write copies of the image's passwd and group files that know the user
    Prepare(Prepare),
    /// Be process 1 of the server
    Init(Init),
    /// Let people in over SSH
    Serve(Serve),
    /// Become a program in a session of its own; what `serve` starts everything with
    #[command(hide = true)]
    Session(Session),
    /// Print the addresses of a name; `serve` has another process look, because that may load parts of the image
    #[command(hide = true)]
    Resolve(Resolve),
    /// Become a script in the user's home; what `init` starts scripts with
    #[command(hide = true)]
    RunScript(RunScript),
    /// Run the preStop script, if nobody has for this stop; what `serve` has done before a stop
    #[command(hide = true)]
    PreStop(PreStop),
    /// Exit with 0 if init is up and setup has ended, else say why not; for startup and readiness probes
    Probe(Probe),
    /// What `odc-status` does
    Status(helper::status::Args),
    /// What `odc-keep-alive` does
    KeepAlive(helper::keep_alive::Args),
}

#[derive(Debug, clap::Args)]
pub struct Install {
    /// Directory to copy to; made if missing
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct Prepare {
    /// Directory for the files passwd, group and, with --sudo, sudoers; made if missing
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// User the server will run as [default: the one this runs as]
    #[arg(long)]
    pub uid: Option<u32>,
    /// Its group [default: the one this runs as]
    #[arg(long)]
    pub gid: Option<u32>,
    /// Further groups of the user, separated by commas [default: those this runs with]
    #[arg(long, value_name = "GID", value_delimiter = ',')]
    pub groups: Option<Vec<u32>>,
    /// Login name, if the image has none for the uid; a number is added if it is taken
    #[arg(long, default_value = "dev")]
    pub name: UserName,
    /// What git calls the author, if the image says nothing [default: the login name]
    #[arg(long, value_name = "TEXT")]
    pub full_name: Option<FullName>,
    /// Home directory [default: what the image says, else /home/NAME]
    #[arg(long, value_name = "DIR")]
    pub home: Option<Home>,
    /// Write a sudoers file that lets the user become root without a password; it says nothing if the image has no sudo
    #[arg(long)]
    pub sudo: bool,
}

#[derive(Debug, clap::Args)]
pub struct Init {
    /// Script to run once before the entrypoint; if it fails, that is reported and the server goes on
    #[arg(long, value_name = "FILE")]
    pub setup: Option<PathBuf>,
    /// Script to run once when the server is asked to stop
    #[arg(long, value_name = "FILE")]
    pub pre_stop: Option<PathBuf>,
    /// Time from the request to stop until the container is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub grace: u32,
    /// What the end of the entrypoint means for the server
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = EntrypointExit::Keep)]
    pub entrypoint_exit: EntrypointExit,
    /// Give the user this runs as this home directory in the image's own passwd file, which must be ours to write
    #[arg(long, value_name = "DIR")]
    pub account_home: Option<Home>,
    /// Let people in over SSH, from the start on, and again whenever that server ends
    #[arg(long, requires_all = ["keys", "server_uid"])]
    pub serve: bool,
    /// For --serve, as in `odc-agent serve`
    #[arg(long, value_name = "DIR", requires = "serve")]
    pub keys: Option<PathBuf>,
    /// For --serve, as in `odc-agent serve`
    #[arg(long, value_name = "UID", requires = "serve")]
    pub server_uid: Option<ServerUid>,
    /// For --serve, as in `odc-agent serve`
    #[arg(long = "control-ca", value_name = "KEY", requires = "serve")]
    pub control_cas: Vec<String>,
    /// For --serve, as in `odc-agent serve`
    #[arg(long, value_name = "DIR", requires = "serve")]
    pub keep: Option<PathBuf>,
    /// For --serve, as in `odc-agent serve`
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub state: StateDir,
    /// Command to start after setup; it is not restarted
    #[arg(last = true, value_name = "ENTRYPOINT")]
    pub entrypoint: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EntrypointExit {
    /// The server stays
    Keep,
    /// The server ends with the entrypoint's exit code
    End,
}

const LISTEN: &str = "0.0.0.0:2222";

#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Address and port to listen on; port 0 takes a free one, which the file serve.json in the state directory names
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    pub listen: SocketAddr,
    /// Directory with `host_key`, and with `authorized_keys`, `user_ca.pub` and `control_ca.pub` as far as they are there
    #[arg(long, value_name = "DIR")]
    pub keys: PathBuf,
    /// Uid of the server, which certificates must name
    #[arg(long, value_name = "UID")]
    pub server_uid: ServerUid,
    /// Public key that signs for the operator, instead of those in `control_ca.pub`; may be given several times
    #[arg(long = "control-ca", value_name = "KEY")]
    pub control_cas: Vec<String>,
    /// Directory that outlives the container; what the operator said last of who may log in is kept there too, so that a
    /// container that is started again does not go back to what was so when it was made
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    #[command(flatten)]
    pub state: StateDir,
    /// Time in which a connection must have logged in
    #[arg(long, value_name = "SECONDS", default_value_t = 30, hide = true)]
    pub login_grace: u32,
    /// Time after which a quiet client is asked whether it is still there
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 30_000, hide = true)]
    pub keepalive: u64,
    /// Data after which new keys are agreed on
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30, hide = true)]
    pub rekey_after: usize,
}

#[derive(Debug, clap::Args)]
pub struct Session {
    /// Make the standard input the session's controlling terminal
    #[arg(long)]
    pub terminal: bool,
    /// Where it begins, or in `/` if that cannot be
    #[arg(long, value_name = "DIR")]
    pub directory: PathBuf,
    /// What the program is to think it is called
    #[arg(long, value_name = "NAME")]
    pub name: OsString,
    #[arg(last = true, required = true)]
    pub program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct RunScript {
    pub script: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct PreStop {
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,
    #[arg(long, value_name = "FILE")]
    pub script: PathBuf,
    /// Time after which it is killed
    #[arg(long, value_name = "MILLISECONDS")]
    pub within_milliseconds: u64,
}

#[derive(Debug, clap::Args)]
pub struct Resolve {
    pub host: String,
}

/// As Kubernetes gives it to the server's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUid(String);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write 1 to 64 letters, digits and '-'")]
pub struct NotAServerUid;

impl ServerUid {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerUid {
    type Err = NotAServerUid;

    fn from_str(text: &str) -> Result<Self, NotAServerUid> {
        let fits = (1..=64).contains(&text.len());
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if fits && plain { Ok(Self(text.to_owned())) } else { Err(NotAServerUid) }
    }
}

#[derive(Debug, clap::Args)]
pub struct Probe {
    #[command(flatten)]
    pub state: StateDir,
}

#[derive(Debug, clap::Args)]
pub struct StateDir {
    /// Where init writes its state and the logs of the scripts [default: the first of /run/odc, /dev/shm/odc and /tmp/odc
    /// that can be written]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Agent::try_parse_from(line.split_whitespace()).map(|agent| agent.command)
    }

    #[test]
    fn the_command_line_is_consistent() {
        <Agent as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn everything_after_the_dashes_is_the_entrypoint() {
        let Ok(Command::Init(init)) = parse("odc-agent init --grace 5 -- /bin/app --grace 7 -- x") else { panic!() };
        assert_eq!(init.grace, 5);
        assert_eq!(init.entrypoint, ["/bin/app", "--grace", "7", "--", "x"]);
    }

    #[test]
    fn a_server_stays_when_its_entrypoint_ends_unless_told_otherwise() {
        let Ok(Command::Init(init)) = parse("odc-agent init") else { panic!() };
        assert_eq!(init.entrypoint_exit, EntrypointExit::Keep);
        assert!(init.entrypoint.is_empty());
    }

    #[test]
    fn bad_values_are_refused() {
        for line in [
            "odc-agent init --grace 0",
            "odc-agent init --entrypoint-exit=maybe",
            "odc-agent init /bin/app",
            "odc-agent install",
            "odc-agent prepare",
            "odc-agent prepare --to /d --name a:b",
            "odc-agent prepare --to /d --home relative",
            "odc-agent prepare --to /d --groups 1,x",
            "odc-agent init --serve",
            "odc-agent init --keys /k --server-uid u",
            "odc-agent init --keep /k",
            "odc-agent serve --keys /k",
            "odc-agent serve --keys /k --server-uid a:b",
            "odc-agent serve --keys /k --server-uid u --listen 2222",
        ] {
            assert_eq!(parse(line).map(|_| ()).map_err(|error| error.exit_code()), Err(2), "{line}");
        }
    }
}
