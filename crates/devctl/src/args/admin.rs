//! `devctl admin`: users, teams and flavors.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use odc_api::duration::Duration;
use odc_api::name::{FlavorName, TeamName, UserName};
use odc_api::quantity::Quantity;

use super::create::Urgency;
use super::shared::Trial;
use super::value::{Ceiling, FlavorLimit, Limit};

#[derive(Args, Debug)]
pub struct Admin {
    #[command(subcommand)]
    pub noun: AdminNoun,
}

#[derive(Subcommand, Debug)]
pub enum AdminNoun {
    /// People and what they may do
    #[command(subcommand)]
    User(AdminUser),
    /// People who share a quota
    #[command(subcommand)]
    Team(AdminTeam),
    /// Kinds of machines
    #[command(subcommand)]
    Flavor(AdminFlavor),
}

#[derive(Subcommand, Debug)]
pub enum AdminUser {
    /// Make a user, or change one: only what is said changes
    #[command(visible_alias = "set")]
    Create(Box<NewUser>),
    /// Show the users
    #[command(visible_alias = "ls")]
    List,
    /// Take a user's rights and servers away; data stays
    #[command(visible_alias = "rm")]
    Delete {
        name: UserName,
        #[command(flatten)]
        trial: Trial,
    },
    /// Print a kubeconfig with which the user can use devctl
    Kubeconfig {
        name: UserName,
        /// How long its token is good for
        #[arg(long, value_name = "DURATION", default_value = "24h")]
        duration: Duration,
        /// Write it to this file, for its owner's eyes only, instead of printing it
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub struct NewUser {
    pub name: UserName,
    /// What to show to people
    #[arg(long, value_name = "TEXT")]
    pub display: Option<String>,
    /// A public key that may log in to all their servers, instead of those that may now; may be repeated
    #[arg(long = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    /// Their login name at GitHub, whose keys are accepted too
    #[arg(long, value_name = "NAME")]
    pub github: Option<String>,
    /// What they may do
    #[arg(long)]
    pub role: Option<Role>,
    /// The flavor of servers that name none
    #[arg(long, value_name = "NAME")]
    pub default_flavor: Option<FlavorName>,
    /// The image of servers that name none
    #[arg(long, value_name = "REF")]
    pub default_image: Option<String>,
    /// Their part of the cluster relative to others of the same team
    #[arg(long, value_name = "N")]
    pub weight: Option<u32>,
    /// The most urgent that they may ask for; none for what their team allows
    #[arg(long, value_name = "PRIORITY")]
    pub priority_ceiling: Option<Ceiling>,
    #[command(flatten)]
    pub quota: QuotaArgs,
    #[command(flatten)]
    pub trial: Trial,
}

#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Quota")]
pub struct QuotaArgs {
    /// How many servers may exist; none for no limit, here and below
    #[arg(long, value_name = "N")]
    pub servers: Option<Limit<u32>>,
    /// How many devices running servers may hold
    #[arg(long, value_name = "N")]
    pub devices: Option<Limit<u32>>,
    /// How many devices of one flavor they may hold; may be repeated
    #[arg(long, value_name = "FLAVOR=N")]
    pub devices_of: Vec<FlavorLimit>,
    /// How much CPU they may request
    #[arg(long, value_name = "AMOUNT")]
    pub cpu: Option<Limit<Quantity>>,
    /// How much memory they may request
    #[arg(long, value_name = "AMOUNT")]
    pub memory: Option<Limit<Quantity>>,
    /// How much disk space may be claimed
    #[arg(long, value_name = "AMOUNT")]
    pub storage: Option<Limit<Quantity>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    User,
    Admin,
    Auditor,
}

#[derive(Subcommand, Debug)]
pub enum AdminTeam {
    /// Make a team, or change one: only what is said changes
    #[command(visible_alias = "set")]
    Create(Box<NewTeam>),
    /// Show the teams
    #[command(visible_alias = "ls")]
    List,
    /// Say for whom another quota would change something in the queue, without changing it
    WhatIf {
        name: TeamName,
        #[command(flatten)]
        quota: QuotaArgs,
    },
    /// Put users into a team
    Add {
        name: TeamName,
        #[arg(required = true)]
        users: Vec<UserName>,
    },
    /// Take users out of a team
    Remove {
        name: TeamName,
        #[arg(required = true)]
        users: Vec<UserName>,
    },
    /// Delete a team
    #[command(visible_alias = "rm")]
    Delete {
        name: TeamName,
        #[command(flatten)]
        trial: Trial,
    },
}

#[derive(Args, Debug)]
pub struct NewTeam {
    pub name: TeamName,
    /// What to show to people
    #[arg(long, value_name = "TEXT")]
    pub display: Option<String>,
    /// Its part of the cluster relative to other teams
    #[arg(long, value_name = "N")]
    pub weight: Option<u32>,
    /// How urgent servers are that do not say
    #[arg(long, value_name = "PRIORITY")]
    pub priority: Option<Urgency>,
    /// The most urgent that a member may ask for
    #[arg(long, value_name = "PRIORITY")]
    pub priority_ceiling: Option<Urgency>,
    /// How many devices above its quota its preemptible servers may borrow while they are idle; none for as many as are,
    /// 0 for nothing at all, CPU and memory included
    #[arg(long, value_name = "N")]
    pub borrow: Option<Limit<u32>>,
    #[command(flatten)]
    pub quota: QuotaArgs,
    #[command(flatten)]
    pub trial: Trial,
}

#[derive(Subcommand, Debug)]
pub enum AdminFlavor {
    /// Make flavors what a manifest says; what others set beside it stays
    Apply {
        /// The manifest; - reads it from standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// Take fields over that somebody else set
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        trial: Trial,
    },
    /// Show the flavors
    #[command(visible_alias = "ls")]
    List,
    /// Take a flavor out of service, or put it back: no new server starts on it
    Maintenance {
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::complete::flavor))]
        name: FlavorName,
        /// Why, and until when
        #[arg(long, value_name = "TEXT", required_unless_present = "end")]
        message: Option<String>,
        /// Users who may start servers nevertheless; may be repeated
        #[arg(long = "allow", value_name = "USER")]
        allow: Vec<UserName>,
        /// Put it back into service
        #[arg(long, conflicts_with_all = ["message", "allow"])]
        end: bool,
    },
    /// Make it the one that servers get which name none
    Default {
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::complete::flavor))]
        name: FlavorName,
    },
    /// Delete a flavor; its servers keep what they have
    #[command(visible_alias = "rm")]
    Delete {
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::complete::flavor))]
        name: FlavorName,
        #[command(flatten)]
        trial: Trial,
    },
}
