//! Command line of `odc-agent`. Values are validated while they are parsed, so subcommands never see an invalid one.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, Subcommand, ValueEnum};

use crate::accounts::passwd_fields::{FullName, Home, UserName};
use crate::cli;

/// Turn a container image into a dev server
#[derive(Debug, Parser)]
#[command(name = "odc-agent", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copy this executable into a directory shared by the server's containers
    Install(Install),
    /// Write copies of the image's passwd and group files with an entry for the user
    Prepare(Prepare),
    /// Run as PID 1 of the server
    Init(Init),
    /// Run the SSH server
    Serve(Serve),
    /// Execute a program as leader of a new session; used by `serve`
    #[command(hide = true)]
    ExecSession(ExecSession),
    /// Print the addresses of a host name; a separate process, because the lookup may load libraries of the image
    #[command(hide = true)]
    Resolve(Resolve),
    /// Execute a script in the user's home directory; used by `init`
    #[command(hide = true)]
    RunScript(RunScript),
    /// Copy the files of /etc/skel into the home directory; used by `init`
    #[command(hide = true)]
    CreateStartupFiles(CreateStartupFiles),
    /// Run the preStop script unless it already ran for this stop; used by `serve`
    #[command(hide = true)]
    PreStop(PreStop),
    /// Compare two states of a disk and write the paths that differ, as compressed JSON
    CompareTrees(CompareTrees),
    /// Copy files and directories of a restore point to a disk
    CopyPaths(CopyPaths),
    /// Exit with 0 if the server is ready, else print the reason; for startup and readiness probes
    Probe(Probe),
    /// Same as `odc-status`
    Status(cli::status::Args),
    /// Same as `odc-keep-alive`
    KeepAlive(cli::keep_alive::Args),
}

#[derive(Debug, clap::Args)]
pub struct Install {
    /// Target directory; created if missing
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct Prepare {
    /// Directory for the files passwd, group and, with --sudo, sudoers; created if missing
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// User that the server runs as [default: the current user]
    #[arg(long)]
    pub uid: Option<u32>,
    /// Primary group of the user [default: the current group]
    #[arg(long)]
    pub gid: Option<u32>,
    /// Supplementary groups of the user, separated by commas [default: the current ones]
    #[arg(long, value_name = "GID", value_delimiter = ',')]
    pub groups: Option<Vec<u32>>,
    /// Login name if the image has no entry for the uid; a number is appended if the name is taken
    #[arg(long, default_value = "dev")]
    pub name: UserName,
    /// Full name of the user if the image has none, used by git as author name [default: the login name]
    #[arg(long, value_name = "TEXT")]
    pub full_name: Option<FullName>,
    /// Home directory [default: the one in the image's passwd file, else /home/NAME]
    #[arg(long, value_name = "DIR")]
    pub home: Option<Home>,
    /// Write a sudoers file that lets the user become root without a password; it grants nothing if the image has no
    /// sudo
    #[arg(long)]
    pub sudo: bool,
}

#[derive(Debug, clap::Args)]
pub struct Init {
    /// Script to run once before the entrypoint; a failure is reported and does not stop the server
    #[arg(long, value_name = "FILE")]
    pub setup: Option<PathBuf>,
    /// Copy the files of /etc/skel into the home directory before setup; a failure is reported and does not stop the
    /// server
    #[arg(long, value_name = "ACTION", value_enum, requires = "server_uid")]
    pub startup_files: Option<StartupFilesAction>,
    /// Script to run once before the server stops
    #[arg(long, value_name = "FILE")]
    pub pre_stop: Option<PathBuf>,
    /// Grace period from the stop request until the container is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub grace: u32,
    /// Whether the server keeps running when the entrypoint exits
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = EntrypointExit::Keep)]
    pub entrypoint_exit: EntrypointExit,
    /// Set the home directory of the current user in the image's own passwd file, which must be writable
    #[arg(long, value_name = "DIR")]
    pub account_home: Option<Home>,
    /// Run `odc-agent serve` from the start, and restart it whenever it exits
    #[arg(long, requires_all = ["keys", "server_uid"])]
    pub serve: bool,
    /// For --serve: see `odc-agent serve`
    #[arg(long, value_name = "DIR", requires = "serve")]
    pub keys: Option<PathBuf>,
    /// UID of the server object; for --serve and --startup-files
    #[arg(long, value_name = "UID")]
    pub server_uid: Option<ServerUid>,
    /// For --serve: see `odc-agent serve`
    #[arg(long = "control-ca", value_name = "KEY", requires = "serve")]
    pub control_cas: Vec<String>,
    /// For --serve: see `odc-agent serve`
    #[arg(long, value_name = "DIR", requires = "serve")]
    pub persist_dir: Option<PathBuf>,
    /// For --serve: see `odc-agent serve`
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_LISTEN_ADDRESS)]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub state: StateDir,
    /// Command to start after setup; not restarted
    #[arg(last = true, value_name = "ENTRYPOINT")]
    pub entrypoint: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EntrypointExit {
    /// The server keeps running
    Keep,
    /// The server stops with the entrypoint's exit code
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StartupFilesAction {
    /// If the home directory has no files
    Create,
    /// Once per server; startup files of shells are moved into a backup directory before
    Recreate,
}

const DEFAULT_LISTEN_ADDRESS: &str = "0.0.0.0:2222";

#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Address and port to listen on; with port 0, the chosen port is written to serve.json in the state directory
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_LISTEN_ADDRESS)]
    pub listen: SocketAddr,
    /// Directory with `host_key` and, optionally, `authorized_keys`, `user_ca.pub` and `control_ca.pub`
    #[arg(long, value_name = "DIR")]
    pub keys: PathBuf,
    /// UID of the server object; certificates must name it as principal
    #[arg(long, value_name = "UID")]
    pub server_uid: ServerUid,
    /// Public key of the operator's CA, instead of `control_ca.pub`; may be repeated
    #[arg(long = "control-ca", value_name = "KEY")]
    pub control_cas: Vec<String>,
    /// Directory that outlives the container; stores the latest access list, so that a restarted container does not
    /// fall back to the list from when its pod was created
    #[arg(long, value_name = "DIR")]
    pub persist_dir: Option<PathBuf>,
    #[command(flatten)]
    pub state: StateDir,
    /// Time limit for authentication, as `LoginGraceTime` of sshd
    #[arg(long, value_name = "SECONDS", default_value_t = 30, hide = true)]
    pub login_grace: u32,
    /// Keepalive interval, as `ClientAliveInterval` of sshd
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 30_000, hide = true)]
    pub keepalive: u64,
    /// Bytes after which keys are renegotiated, as `RekeyLimit` of sshd
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30, hide = true)]
    pub rekey_after: usize,
}

#[derive(Debug, clap::Args)]
pub struct ExecSession {
    /// Make standard input the controlling terminal of the session
    #[arg(long)]
    pub terminal: bool,
    /// Working directory; `/` if it cannot be entered
    #[arg(long, value_name = "DIR")]
    pub directory: PathBuf,
    /// Value of argv[0]
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
pub struct CreateStartupFiles {
    #[arg(long, value_name = "UID")]
    pub server_uid: ServerUid,
    /// Replace the startup files in an old home directory, once for the server
    #[arg(long)]
    pub recreate: bool,
}

#[derive(Debug, clap::Args)]
pub struct PreStop {
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,
    #[arg(long, value_name = "FILE")]
    pub script: PathBuf,
    /// Time after which the script is killed
    #[arg(long, value_name = "MILLISECONDS")]
    pub timeout_milliseconds: u64,
}

#[derive(Debug, clap::Args)]
pub struct CompareTrees {
    /// Root of the earlier state
    #[arg(long, value_name = "DIR")]
    pub earlier: PathBuf,
    /// Root of the later state
    #[arg(long, value_name = "DIR")]
    pub later: PathBuf,
    /// File to write the result to, at most 4096 bytes
    #[arg(long, value_name = "FILE")]
    pub result: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct CopyPaths {
    /// Root of the restore point
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// Root of the disk
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// UID of the operation, for the names of temporary files
    #[arg(long, value_name = "UID")]
    pub id: ServerUid,
    /// Paths relative to both roots
    #[arg(last = true, required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct Resolve {
    pub host: String,
}

/// UID of the server's Kubernetes object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUid(String);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 64 letters, digits or '-'")]
pub struct InvalidServerUid;

impl ServerUid {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerUid {
    type Err = InvalidServerUid;

    fn from_str(text: &str) -> Result<Self, InvalidServerUid> {
        let length_ok = (1..=64).contains(&text.len());
        let charset_ok = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if length_ok && charset_ok { Ok(Self(text.to_owned())) } else { Err(InvalidServerUid) }
    }
}

#[derive(Debug, clap::Args)]
pub struct Probe {
    #[command(flatten)]
    pub state: StateDir,
}

#[derive(Debug, clap::Args)]
pub struct StateDir {
    /// Directory for the state of init and the logs of scripts [default: the first writable one of /run/odc,
    /// /dev/shm/odc and /tmp/odc]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command)
    }

    #[test]
    fn command_line_definition_is_valid() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn arguments_after_double_dash_are_the_entrypoint() {
        let Ok(Command::Init(init)) = parse("odc-agent init --grace 5 -- /bin/app --grace 7 -- x") else { panic!() };
        assert_eq!(init.grace, 5);
        assert_eq!(init.entrypoint, ["/bin/app", "--grace", "7", "--", "x"]);
    }

    #[test]
    fn entrypoint_exit_defaults_to_keep() {
        let Ok(Command::Init(init)) = parse("odc-agent init") else { panic!() };
        assert_eq!(init.entrypoint_exit, EntrypointExit::Keep);
        assert!(init.entrypoint.is_empty());
    }

    #[test]
    fn invalid_arguments_are_rejected() {
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
            "odc-agent init --startup-files recreate",
            "odc-agent init --keys /k --server-uid u",
            "odc-agent init --persist-dir /k",
            "odc-agent serve --keys /k",
            "odc-agent serve --keys /k --server-uid a:b",
            "odc-agent serve --keys /k --server-uid u --listen 2222",
        ] {
            assert_eq!(parse(line).map(|_| ()).map_err(|error| error.exit_code()), Err(2), "{line}");
        }
    }
}
