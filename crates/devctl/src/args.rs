//! What can be typed. This file and its modules are the whole command line: pages, man pages and completions are made
//! from them. Nothing here does anything.

#![expect(clippy::struct_excessive_bools, reason = "flags are either there or not")]
#![expect(
    clippy::doc_markdown,
    reason = "comments here are what people read on terminals, where marks are shown as they are"
)]
#![allow(rustdoc::bare_urls, reason = "the same")]

mod admin;
mod cluster;
mod config;
mod create;
mod examples;
mod forgotten;
mod global;
pub mod moment;
mod reach;
mod servers;
mod shared;
pub mod value;

use std::ffi::OsStr;
use std::path::Path;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

pub use admin::{Admin, AdminFlavor, AdminNoun, AdminTeam, AdminUser, NewTeam, NewUser, QuotaArgs, Role};
pub use cluster::{Avail, Flavors, Queue, Status};
pub use config::{Config, ConfigSsh, ConfigVerb, Switch};
pub use create::{Create, Home, Request, Urgency, WhenIdle};
pub use examples::of as examples_of;
pub use forgotten::told;
pub use global::{Format, Global};
pub use reach::{Cp, Exec, Logs, PortForward, Ssh, Submit};
pub use servers::{Debug, Delete, Edit, Extend, Hibernate, List, Show, Wake};
pub use shared::{NamedServer, Node, Server, Sleeping, Trial};
pub use value::Ceiling;

/// Reserve a dev server, get into it, give it back.
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
    pub verb: Verb,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Reserve a dev server and get into it
    #[command(visible_alias = "reserve")]
    Create(Box<Create>),
    /// Show your servers
    #[command(visible_alias = "ls")]
    List(List),
    /// Show everything about a server
    #[command(visible_alias = "describe")]
    Show(Show),
    /// Open a shell in a server, or run a command there; a sleeping one is woken
    #[command(visible_alias = "connect")]
    Ssh(Ssh),
    /// Run a command in a server and end as it ends
    Exec(Exec),
    /// Copy files to and from a server
    Cp(Cp),
    /// Show what a server's image printed
    Logs(Logs),
    /// Make a port of a server reachable on this machine
    #[command(visible_alias = "forward")]
    PortForward(PortForward),
    /// Give a server more time
    Extend(Extend),
    /// Put a server to sleep: it gives its devices back and keeps its home
    Hibernate(Hibernate),
    /// Wake a sleeping server
    Wake(Wake),
    /// End a server
    #[command(visible_aliases = ["cancel", "rm"])]
    Delete(Delete),
    /// Change a server: lifetime, users, keys, Jupyter, ports
    Edit(Box<Edit>),
    /// Say why a server is as it is
    Debug(Debug),
    /// Show what is free right now, and when the rest would be
    Avail(Avail),
    /// Show what kinds of machines there are
    Flavors(Flavors),
    /// Show who waits, where in the queue, for what and until when
    Queue(Queue),
    /// Show how full the cluster is, and what you hold
    Status(Status),
    /// Run a command on a server of its own: reserve, copy there, run, copy back, give back
    Submit(Box<Submit>),
    /// Show and change devctl's own settings
    Config(Config),
    /// Let ssh, scp, rsync, git and editors reach servers as NAME.odc
    ConfigSsh(ConfigSsh),
    /// Manage users, teams and flavors; for administrators
    Admin(Admin),
    /// Print what makes a shell complete devctl's words, live names included
    Completion(Completion),
    /// Show which devctl this is
    Version,
    /// Write the pages made from this command line
    #[command(hide = true)]
    Generate(Generate),
}

impl Verb {
    /// Whether the person wants to be asked, whatever their environment says.
    pub fn insists(&self) -> bool {
        matches!(self, Self::Create(create) if create.interactive)
    }

    /// Whether some other program has it run, in a directory that means nothing.
    pub fn is_connection(&self) -> bool {
        matches!(self, Self::Ssh(ssh) if ssh.stdio)
    }
}

#[derive(Args, Debug)]
pub struct Completion {
    /// The shell
    pub shell: Shell,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
    Elvish,
}

#[derive(Args, Debug)]
pub struct Generate {
    /// What to write
    pub what: Page,
    /// The page's file, or the directory of the man pages
    pub path: std::path::PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Page {
    Markdown,
    Man,
}

/// The command line as clap knows it, with examples before everything else in each help text.
pub fn command() -> clap::Command {
    examples::added(Cli::command(), &mut Vec::new())
}

/// As [`command`], called by the name it was started with: a link `kubectl-odc` makes it a plug-in of kubectl.
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
    fn the_tree_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn as_a_plugin_it_is_called_as_kubectl_calls_it() {
        let mut plugin = command_as(Some(OsStr::new("/usr/bin/kubectl-odc")));
        assert!(plugin.render_usage().to_string().contains("kubectl odc"), "{}", plugin.render_usage());
        let mut plain = command_as(Some(OsStr::new("/usr/bin/devctl")));
        assert!(plain.render_usage().to_string().contains("Usage: devctl"), "{}", plain.render_usage());
    }
}
