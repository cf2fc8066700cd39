//! The commands, one module each with its arguments and its implementation.

#![allow(clippy::struct_excessive_bools, reason = "each flag is a bool")]
#![allow(clippy::doc_markdown, reason = "doc comments of arguments are shown on terminals")]

pub mod admin;
pub mod avail;
pub mod completion;
pub mod config;
pub mod config_ssh;
pub mod cp;
pub mod create;
pub mod debug;
pub mod delete;
pub mod disk;
pub mod edit;
pub mod exec;
pub mod extend;
pub mod flavors;
pub mod hibernate;
pub mod list;
pub mod logs;
pub mod port_forward;
pub mod queue;
pub mod show;
pub mod ssh;
pub mod status;
pub mod submit;
pub mod version;
pub mod wake;

use crate::cli::{Cli, Command};
use crate::context::LocalContext;
use crate::error::Result;

pub async fn run(cli: Cli) -> Result<()> {
    let ctx = LocalContext::new(cli.global, &cli.command)?;
    match cli.command {
        Command::Create(args) => create::run(&ctx.connect().await?, *args).await,
        Command::List(args) => list::run(&ctx.connect().await?, args).await,
        Command::Show(args) => show::run(&ctx.connect().await?, args).await,
        Command::Ssh(args) => ssh::run(&ctx.connect().await?, args).await,
        Command::Exec(args) => exec::run(&ctx.connect().await?, args).await,
        Command::Cp(args) => cp::run(&ctx.connect().await?, args).await,
        Command::Logs(args) => logs::run(&ctx.connect().await?, args).await,
        Command::PortForward(args) => port_forward::run(&ctx.connect().await?, args).await,
        Command::Extend(args) => extend::run(&ctx.connect().await?, args).await,
        Command::Hibernate(args) => hibernate::run(&ctx.connect().await?, args).await,
        Command::Wake(args) => wake::run(&ctx.connect().await?, args).await,
        Command::Delete(args) => delete::run(&ctx.connect().await?, args).await,
        Command::Disk(args) => disk::run(&ctx.connect().await?, args).await,
        Command::Edit(args) => edit::run(&ctx.connect().await?, *args).await,
        Command::Debug(args) => debug::run(&ctx.connect().await?, args).await,
        Command::Avail(args) => avail::run(&ctx.connect().await?, args).await,
        Command::Flavors(args) => flavors::run(&ctx.connect().await?, args).await,
        Command::Queue(args) => queue::run(&ctx.connect().await?, args).await,
        Command::Status(args) => status::run(&ctx.connect().await?, args).await,
        Command::Submit(args) => submit::run(&ctx.connect().await?, *args).await,
        Command::Config(args) => config::run(ctx, args).await,
        Command::ConfigSsh(args) => config_ssh::run(ctx, args).await,
        Command::Admin(args) => admin::run(&ctx.connect().await?, args).await,
        Command::Completion(args) => completion::run(&ctx, &args),
        Command::Version => version::run(&ctx),
        Command::Generate(args) => crate::docgen::run(&args),
    }
}
