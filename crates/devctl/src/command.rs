//! The commands, one file each: what was typed in, calls of the back end, data and words out.

pub mod admin;
pub mod avail;
pub mod completion;
pub mod config;
pub mod config_ssh;
pub mod cp;
pub mod create;
pub mod debug;
pub mod delete;
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

use crate::app::Desk;
use crate::args::{Cli, Verb};
use crate::failure::Result;

pub async fn run(cli: Cli) -> Result<()> {
    let desk = Desk::new(cli.global, &cli.verb)?;
    match cli.verb {
        Verb::Create(args) => create::run(&desk.connect().await?, *args).await,
        Verb::List(args) => list::run(&desk.connect().await?, args).await,
        Verb::Show(args) => show::run(&desk.connect().await?, args).await,
        Verb::Ssh(args) => ssh::run(&desk.connect().await?, args).await,
        Verb::Exec(args) => exec::run(&desk.connect().await?, args).await,
        Verb::Cp(args) => cp::run(&desk.connect().await?, args).await,
        Verb::Logs(args) => logs::run(&desk.connect().await?, args).await,
        Verb::PortForward(args) => port_forward::run(&desk.connect().await?, args).await,
        Verb::Extend(args) => extend::run(&desk.connect().await?, args).await,
        Verb::Hibernate(args) => hibernate::run(&desk.connect().await?, args).await,
        Verb::Wake(args) => wake::run(&desk.connect().await?, args).await,
        Verb::Delete(args) => delete::run(&desk.connect().await?, args).await,
        Verb::Edit(args) => edit::run(&desk.connect().await?, *args).await,
        Verb::Debug(args) => debug::run(&desk.connect().await?, args).await,
        Verb::Avail(args) => avail::run(&desk.connect().await?, args).await,
        Verb::Flavors(args) => flavors::run(&desk.connect().await?, args).await,
        Verb::Queue(args) => queue::run(&desk.connect().await?, args).await,
        Verb::Status(args) => status::run(&desk.connect().await?, args).await,
        Verb::Submit(args) => submit::run(&desk.connect().await?, *args).await,
        Verb::Config(args) => config::run(desk, args).await,
        Verb::ConfigSsh(args) => config_ssh::run(desk, args).await,
        Verb::Admin(args) => admin::run(&desk.connect().await?, args).await,
        Verb::Completion(args) => completion::run(&desk, &args),
        Verb::Version => version::run(&desk),
        Verb::Generate(args) => crate::page::run(&args),
    }
}
