//! `odc-status`: shows the state of the server to a user inside it.

mod table;

use std::process::ExitCode;

use anyhow::bail;
use clap::ValueEnum;
use odc_control::{Reply, Request, Status};
use serde_json::Value;

use crate::args::StateDir;
use crate::cli::{client, print};
use crate::text_format::extend_command;

pub const EXAMPLES: &str = "\
Examples:
  odc-status                                  table
  odc-status -o json | jq .remainingSeconds   for scripts; unknown numbers are null
  odc-status -o json | jq -r .jupyter.url     URL of the Jupyter server, if it runs

The server stops when its lifetime is over, or when it was idle for longer than its idle timeout. An open session alone
does not count as activity; `odc-keep-alive` does.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    pub output: Format,
    #[command(flatten)]
    pub state: StateDir,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Reply::Status(status) = client::request(args.state.state_dir.as_deref(), &Request::Status)? else {
        bail!("unexpected reply from the ODC agent; it may have another version");
    };
    print(&match args.output {
        Format::Table => table::render(&status),
        Format::Json => json(&status)?,
    })
}

/// Returns the protocol's own representation plus the commands and the URL that the table shows.
fn json(status: &Status) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(status)?;
    let (extend, delete) = commands(status).unzip();
    value["extend"] = extend.into();
    value["delete"] = delete.into();
    value["jupyter"]["url"] = jupyter_url(status).map_or(Value::Null, Value::from);
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

/// Returns the commands that extend and delete the server, if its name is known.
fn commands(status: &Status) -> Option<(String, String)> {
    let server = Some(&status.server).filter(|server| !server.is_empty())?;
    Some((extend_command(server), format!("devctl delete {server}")))
}

/// Returns the URL of the Jupyter server as seen through a forwarded port.
fn jupyter_url(status: &Status) -> Option<String> {
    let jupyter = &status.jupyter;
    let path = jupyter.path.as_deref().unwrap_or("/");
    Some(format!("http://127.0.0.1:{}{path}?token={}", jupyter.port?, jupyter.token.as_deref()?))
}

#[cfg(test)]
mod tests;
