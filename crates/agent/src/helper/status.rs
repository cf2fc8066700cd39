//! `odc-status`: everything a person wants to know about the server they are in.

mod table;

use std::process::ExitCode;

use anyhow::bail;
use clap::ValueEnum;
use odc_control::{Reply, Request, Status};
use serde_json::Value;

use crate::args::StateDir;
use crate::helper::{ask::ask, print};

pub const EXAMPLES: &str = "\
Examples:
  odc-status                                          a table
  odc-status -o json | jq .remainingSeconds           for scripts; absent numbers are null
  odc-status -o json | jq -r .jupyter.url             where your notebook server is, if one runs

The server is stopped when its time is over, or when nothing that counts as use was seen for the idle limit. An open
session alone does not count; `odc-keep-alive` does.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How to print it
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
    let Reply::Status(status) = ask(args.state.state_dir.as_deref(), &Request::Status)? else {
        bail!("the server's agent answered something else; it may be of another version");
    };
    print(&match args.output {
        Format::Table => table::table(&status),
        Format::Json => json(&status)?,
    })
}

/// The protocol's own form, and what people would have to put together themselves.
fn json(status: &Status) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(status)?;
    value["extend"] = extend(status).into();
    value["end"] = end(status).into();
    value["jupyter"]["url"] = url(status).map_or(Value::Null, Value::from);
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

fn name(status: &Status) -> &str {
    if status.server.is_empty() { "NAME" } else { &status.server }
}

fn extend(status: &Status) -> String {
    format!("devctl extend {}", name(status))
}

fn end(status: &Status) -> String {
    format!("devctl delete {}", name(status))
}

/// Of the notebook server, as seen through a forwarded port.
fn url(status: &Status) -> Option<String> {
    let jupyter = &status.jupyter;
    let path = jupyter.path.as_deref().unwrap_or("/");
    Some(format!("http://127.0.0.1:{}{path}?token={}", jupyter.port?, jupyter.token.as_deref()?))
}

#[cfg(test)]
mod tests;
