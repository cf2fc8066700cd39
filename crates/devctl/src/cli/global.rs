//! Options of every command.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global")]
pub struct Global {
    /// Context to use: one of `devctl config contexts`, or a context of the kubeconfig
    #[arg(long, global = true, env = "DEVCTL_CONTEXT", value_name = "NAME", hide_env = true,
        add = clap_complete::ArgValueCompleter::new(crate::completion::context))]
    pub context: Option<String>,
    /// Namespace of your servers [default: the namespace of the context]
    #[arg(short, long, global = true, env = "DEVCTL_NAMESPACE", value_name = "NAME", hide_env = true)]
    pub namespace: Option<String>,
    /// Kubeconfig file [default: the file of the context, then $KUBECONFIG, then ~/.kube/config]
    #[arg(long, global = true, env = "DEVCTL_KUBECONFIG", value_name = "PATH", hide_env = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Config file of devctl [default: devctl/config.yaml in the XDG config directory]
    #[arg(long, global = true, env = "DEVCTL_CONFIG", value_name = "PATH", hide_env = true)]
    pub config: Option<PathBuf>,
    /// Answer yes to all prompts
    #[arg(short, long, global = true, alias = "assume-yes")]
    pub yes: bool,
    /// Never prompt [env: DEVCTL_NO_INPUT]
    #[arg(long, global = true, alias = "no-interactive")]
    pub no_input: bool,
    /// Output format; `wide` prints all columns [default: table]
    #[arg(
        short,
        long,
        global = true,
        env = "DEVCTL_OUTPUT",
        value_name = "FORMAT",
        hide_env = true,
        help_heading = "Output"
    )]
    pub output: Option<Format>,
    /// Print tables without headers
    #[arg(long, global = true, help_heading = "Output")]
    pub no_headers: bool,
    /// Print only data and errors
    #[arg(short, long, global = true, help_heading = "Output")]
    pub quiet: bool,
    /// Print more details about what is done
    #[arg(long, global = true, help_heading = "Output")]
    pub verbose: bool,
    /// Print how long each step took
    #[arg(long, global = true, help_heading = "Output")]
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
