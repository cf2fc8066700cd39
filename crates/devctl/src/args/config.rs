//! `devctl config` and `devctl config-ssh`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Args, Debug)]
pub struct Config {
    #[command(subcommand)]
    pub verb: ConfigVerb,
}

#[derive(Subcommand, Debug)]
pub enum ConfigVerb {
    /// Show the settings in force and where each comes from
    #[command(visible_alias = "show")]
    View,
    /// Change a setting
    Set {
        /// The setting, such as create.flavor; `devctl config view` lists them
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::complete::setting))]
        key: String,
        value: String,
    },
    /// Take a setting back
    Unset {
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::complete::setting))]
        key: String,
    },
    /// Show the contexts, with a star at the one in use
    #[command(visible_alias = "get-contexts")]
    Contexts,
    /// Use a context from now on
    #[command(visible_alias = "environment")]
    Use {
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::complete::context))]
        context: String,
    },
    /// Make a context, or change it: the cluster, user and namespace it stands for
    #[command(visible_alias = "set-cluster")]
    SetContext {
        name: String,
        /// The kubeconfig it uses [default: KUBECONFIG's, then ~/.kube/config]
        #[arg(long = "from", value_name = "PATH")]
        file: Option<PathBuf>,
        /// The context of that kubeconfig [default: its current one]
        #[arg(long, value_name = "NAME")]
        kube_context: Option<String>,
        /// The namespace your servers are in [default: that context's]
        #[arg(long = "in", value_name = "NAMESPACE")]
        place: Option<String>,
    },
    /// Forget a context
    DeleteContext {
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::complete::context))]
        name: String,
    },
    /// Say where the settings are
    Path,
    /// Let ssh reach servers as NAME.odc, or no longer; see `devctl config-ssh`
    SshInclude { switch: Switch },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    Enable,
    Disable,
}

#[derive(Args, Debug, Default)]
pub struct ConfigSsh {
    /// Show what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Take everything back
    #[arg(long, conflicts_with = "print")]
    pub remove: bool,
    /// Only print what ssh needs to know about this server, to be used elsewhere
    #[arg(long, visible_alias = "get", value_name = "NAME", conflicts_with = "dry_run",
        add = clap_complete::ArgValueCompleter::new(crate::complete::server))]
    pub print: Option<String>,
    /// ssh's configuration [default: ~/.ssh/config]
    #[arg(long, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
}
