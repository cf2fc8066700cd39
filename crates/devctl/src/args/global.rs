//! What every command takes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The context to use: one of `devctl config contexts`, or of the kubeconfig
    #[arg(long, global = true, env = "DEVCTL_CONTEXT", value_name = "NAME", hide_env = true,
        add = clap_complete::ArgValueCompleter::new(crate::complete::context))]
    pub context: Option<String>,
    /// The namespace your servers are in [default: the context's]
    #[arg(long, global = true, env = "DEVCTL_NAMESPACE", value_name = "NAME", hide_env = true)]
    pub namespace: Option<String>,
    /// The kubeconfig to use [default: the context's, then KUBECONFIG's, then ~/.kube/config]
    #[arg(long, global = true, env = "DEVCTL_KUBECONFIG", value_name = "PATH", hide_env = true)]
    pub kubeconfig: Option<PathBuf>,
    /// devctl's own settings [default: devctl/config.yaml in your configuration directory]
    #[arg(long, global = true, env = "DEVCTL_CONFIG", value_name = "PATH", hide_env = true)]
    pub config: Option<PathBuf>,
    /// How to print data; wide has all columns [default: table]
    #[arg(short, long, global = true, env = "DEVCTL_OUTPUT", value_name = "FORMAT", hide_env = true)]
    pub output: Option<Format>,
    /// Leave out the line of titles above a table
    #[arg(long, global = true)]
    pub no_headers: bool,
    /// Print data and errors only
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Answer every question with yes
    #[arg(short, long, global = true, alias = "assume-yes")]
    pub yes: bool,
    /// Never ask: what is missing is an error that names the flag; also DEVCTL_NO_INPUT
    #[arg(long, global = true, alias = "no-interactive")]
    pub no_input: bool,
    /// Say more about what is being done
    #[arg(long, global = true)]
    pub verbose: bool,
    /// Say how long each step took
    #[arg(long, global = true)]
    pub trace: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    // Aligned columns that fit the terminal.
    #[default]
    Table,
    // All columns.
    Wide,
    Json,
    Yaml,
    // Names only.
    Name,
}
