//! The command line: the tree of commands, global options and argument types. Commands define their own arguments.
//!
//! The reference page, man pages and completions are generated from it.

// Doc comments are help texts here, and terminals show Markdown as it is.
#![allow(clippy::doc_markdown, reason = "doc comments are shown on terminals")]
#![allow(clippy::struct_excessive_bools, reason = "each flag is a bool")]

mod examples;
mod global;
mod hints;
pub mod shared;
pub mod start_time;
pub mod value;

use std::ffi::OsStr;
use std::path::Path;

use clap::{CommandFactory as _, Parser, Subcommand};

pub use examples::examples;
pub use global::{Format, Global};
pub use hints::suggest_double_dash;

use crate::command::admin::AdminArgs;
use crate::command::avail::AvailArgs;
use crate::command::completion::CompletionArgs;
use crate::command::config::ConfigArgs;
use crate::command::config_ssh::ConfigSshArgs;
use crate::command::cp::CpArgs;
use crate::command::create::CreateArgs;
use crate::command::debug::DebugArgs;
use crate::command::delete::DeleteArgs;
use crate::command::disk::DiskArgs;
use crate::command::edit::EditArgs;
use crate::command::exec::ExecArgs;
use crate::command::extend::ExtendArgs;
use crate::command::flavors::FlavorsArgs;
use crate::command::hibernate::HibernateArgs;
use crate::command::list::ListArgs;
use crate::command::logs::LogsArgs;
use crate::command::port_forward::PortForwardArgs;
use crate::command::queue::QueueArgs;
use crate::command::show::ShowArgs;
use crate::command::ssh::SshArgs;
use crate::command::status::StatusArgs;
use crate::command::submit::SubmitArgs;
use crate::command::wake::WakeArgs;
use crate::docgen::GenerateArgs;

/// Create dev servers, connect to them and delete them.
#[derive(Parser, Debug)]
#[command(
    name = "devctl",
    version = crate::version::LONG,
    arg_required_else_help = true,
    infer_long_args = true,
    max_term_width = 120
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Create a server and connect to it
    #[command(alias = "reserve")]
    Create(Box<CreateArgs>),
    /// List your servers
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show the details of a server
    #[command(visible_alias = "describe")]
    Show(ShowArgs),
    /// Open a shell or run a command in a server, waking it if it is hibernated
    #[command(alias = "connect")]
    Ssh(SshArgs),
    /// Run a command in a server
    Exec(ExecArgs),
    /// Copy files to and from a server
    Cp(CpArgs),
    /// Print the log of a server's container
    Logs(LogsArgs),
    /// Forward local ports to a server
    #[command(alias = "forward")]
    PortForward(PortForwardArgs),
    /// Extend the lifetime of a server
    Extend(ExtendArgs),
    /// Hibernate a server: release its devices and keep its home
    Hibernate(HibernateArgs),
    /// Wake a hibernated server
    Wake(WakeArgs),
    /// Delete servers
    #[command(visible_alias = "rm", alias = "cancel")]
    Delete(DeleteArgs),
    /// Manage disks: persistent homes with restore points
    #[command(alias = "disks")]
    Disk(DiskArgs),
    /// Change the lifetime, access, ports, idle action or priority of a server
    Edit(Box<EditArgs>),
    /// Diagnose a server
    Debug(DebugArgs),
    /// Show free capacity and expected start times
    Avail(AvailArgs),
    /// List the flavors (machine types)
    Flavors(FlavorsArgs),
    /// Show the queue
    Queue(QueueArgs),
    /// Show cluster usage and your servers
    Status(StatusArgs),
    /// Run a command on a server of its own, with the current directory copied there and back
    Submit(Box<SubmitArgs>),
    /// Show and change the settings of devctl
    Config(ConfigArgs),
    /// Configure OpenSSH so that ssh, scp, rsync, git and editors reach servers as NAME.odc
    ConfigSsh(ConfigSshArgs),
    /// Manage users, teams and flavors (administrators only)
    Admin(AdminArgs),
    /// Generate a shell completion script
    Completion(CompletionArgs),
    /// Print the version
    Version,
    /// Generate the reference pages
    #[command(hide = true)]
    Generate(GenerateArgs),
}

impl Command {
    /// Reports whether prompts are requested even if `DEVCTL_NO_INPUT` is set.
    pub fn forces_prompt(&self) -> bool {
        matches!(self, Self::Create(create) if create.interactive)
    }

    /// Reports whether OpenSSH runs this as a ProxyCommand, from an arbitrary working directory.
    pub fn is_proxy(&self) -> bool {
        matches!(self, Self::Ssh(ssh) if ssh.stdio)
    }
}

/// Returns the clap command, with examples at the top of each help text.
pub fn command() -> clap::Command {
    examples::add_examples(Cli::command(), &mut Vec::new())
}

/// As [`command`], named after the program: as `kubectl-odc` it is a kubectl plugin.
pub fn command_as(program: Option<&OsStr>) -> clap::Command {
    let name = program.map(Path::new).and_then(Path::file_stem).and_then(OsStr::to_str).unwrap_or("devctl");
    match name.strip_prefix("kubectl-") {
        Some(plugin) => command().bin_name(format!("kubectl {}", plugin.replace('_', "-"))),
        None => command(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_command_is_valid() {
        command().debug_assert();
    }

    #[test]
    fn plugin_usage_names_kubectl() {
        let mut plugin = command_as(Some(OsStr::new("/usr/bin/kubectl-odc")));
        assert!(plugin.render_usage().to_string().contains("kubectl odc"), "{}", plugin.render_usage());
        let mut plain = command_as(Some(OsStr::new("/usr/bin/devctl")));
        assert!(plain.render_usage().to_string().contains("Usage: devctl"), "{}", plain.render_usage());
    }

    #[test]
    fn old_names_work_and_are_hidden() {
        for line in [
            "create --hours 2 --dockerimage x --gpu-type h100 --count 2 --key k.pub --not-before +2h",
            "create --time 2h",
            "create --ttl 2h",
            "reserve box",
            "extend box --time 2h",
            "extend box --hours 2",
            "edit box --time 2h",
            "connect box",
            "forward box 80",
            "cancel box",
            "config environment work",
            "config set-cluster work --from k --in dev-ada",
            "config ssh-include enable",
            "create --idle-action end",
            "create --no-persist",
            "create --ignore-no-persist",
            "disk list-content home",
            "disks list",
        ] {
            let parsed = command().try_get_matches_from(["devctl"].into_iter().chain(line.split(' ')));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        for (name, hidden) in [
            (
                "create",
                &["--hours", "--dockerimage", "--gpu-type", "--count", "--key ", "--ttl", "--time ", "no-persist"][..],
            ),
            ("extend", &["--hours", "--time"]),
        ] {
            let mut command = command();
            command.build();
            let help = command.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            for flag in hidden {
                assert!(!help.contains(flag), "{name} {flag}:\n{help}");
            }
        }
    }

    #[test]
    fn short_n_is_the_namespace() {
        let parsed = Cli::try_parse_from(["devctl", "list", "-n", "dev-bob"]).unwrap();
        assert_eq!(parsed.global.namespace.as_deref(), Some("dev-bob"));
    }
}
