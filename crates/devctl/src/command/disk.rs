//! `devctl disk`: disks, their restore points and operations on them.

mod browse;
mod change;
mod create;
mod delete;
mod diff;
mod files;
mod list;
mod operation;
mod rollback;
mod show;
mod stop;

use clap::{Args, Subcommand};
use odc_api::duration::Duration;
use odc_api::quantity::Quantity;

use crate::cli::Format;
use crate::context::ClusterContext;
use crate::error::Result;
use crate::model::disk::{self, DiskSummary};
use crate::output::json::disk::DiskJson;

#[derive(Args, Debug)]
pub struct DiskArgs {
    #[command(subcommand)]
    pub command: DiskCommand,
}

#[derive(Subcommand, Debug)]
pub enum DiskCommand {
    /// Create a disk
    Create(create::CreateDiskArgs),
    /// List your disks
    #[command(visible_alias = "ls")]
    List,
    /// Show the details of a disk
    #[command(visible_alias = "describe")]
    Show(DiskArg),
    /// Change the display name of a disk
    Rename {
        #[command(flatten)]
        disk: DiskArg,
        /// Display name; empty to remove it
        #[arg(value_name = "DISPLAY_NAME")]
        display_name: String,
    },
    /// Increase the size of a disk
    Resize {
        #[command(flatten)]
        disk: DiskArg,
        /// Size, such as 50Gi
        size: Quantity,
    },
    /// Create a new disk with the data of a disk, also of one in use
    Clone(operation::CloneArgs),
    /// Delete a disk; it can be undeleted for 30 days
    #[command(visible_alias = "rm")]
    Delete(delete::DeleteDiskArgs),
    /// Get a deleted disk back
    Undelete(DiskArg),
    /// List the restore points of a disk, newest first
    Points(DiskArg),
    /// List the largest files and directories at a restore point, with their disk usage
    #[command(alias = "list-content")]
    Files(files::FilesArgs),
    /// Take a restore point
    Snapshot(operation::SnapshotArgs),
    /// Open a restore point read-only in a shell, or run a command there
    Browse(browse::BrowseArgs),
    /// List the paths that differ between a restore point and a later one, or the current data
    Diff(diff::DiffArgs),
    /// Replace the data of a disk by that of a restore point; a restore point of the current data is taken first
    Rollback(rollback::RollbackArgs),
    /// Copy files of a restore point to the disk; a restore point of the current data is taken first
    Restore(operation::RestoreArgs),
    /// Release a disk whose server has ended but whose pod cannot be deleted
    Unlock(operation::UnlockArgs),
}

#[derive(Args, Clone, Debug)]
pub struct DiskArg {
    /// Disk name or display name
    #[arg(value_name = "DISK", add = clap_complete::ArgValueCompleter::new(crate::completion::disk))]
    pub disk: String,
}

#[derive(Args, Clone, Debug)]
pub struct PointArg {
    /// Restore point; one of `devctl disk points DISK`
    #[arg(value_name = "POINT", add = clap_complete::ArgValueCompleter::new(crate::completion::point))]
    pub point: String,
}

/// How to wait for an operation.
#[derive(Args, Clone, Debug, Default)]
pub struct OperationArgs {
    /// Print the name of the operation and return immediately
    #[arg(long)]
    pub no_wait: bool,
    /// Stop waiting after this time; the operation continues
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Duration>,
}

pub async fn run(ctx: &ClusterContext, args: DiskArgs) -> Result<()> {
    match args.command {
        DiskCommand::Create(args) => create::run(ctx, args).await,
        DiskCommand::List => list::disks(ctx).await,
        DiskCommand::Show(args) => show::run(ctx, &args).await,
        DiskCommand::Rename { disk, display_name } => change::rename(ctx, &disk, &display_name).await,
        DiskCommand::Resize { disk, size } => change::resize(ctx, &disk, size).await,
        DiskCommand::Clone(args) => operation::clone(ctx, args).await,
        DiskCommand::Delete(args) => delete::run(ctx, &args).await,
        DiskCommand::Undelete(args) => delete::undelete(ctx, &args).await,
        DiskCommand::Points(args) => list::points(ctx, &args).await,
        DiskCommand::Files(args) => files::run(ctx, &args).await,
        DiskCommand::Snapshot(args) => operation::snapshot(ctx, args).await,
        DiskCommand::Browse(args) => browse::run(ctx, args).await,
        DiskCommand::Diff(args) => diff::run(ctx, args).await,
        DiskCommand::Rollback(args) => rollback::run(ctx, args).await,
        DiskCommand::Restore(args) => operation::restore(ctx, args).await,
        DiskCommand::Unlock(args) => operation::unlock(ctx, args).await,
    }
}

/// Returns the disk with this name or display name.
async fn resolve(ctx: &ClusterContext, typed: &DiskArg) -> Result<DiskSummary> {
    let disks = ctx.client.disks().await?;
    ctx.ui.trace_step("listing disks");
    disk::find(&typed.disk, &disks).cloned()
}

/// Prints a disk after a change, with a structured format only.
fn print(ctx: &ClusterContext, disk: &DiskSummary) -> Result<()> {
    let json = DiskJson::from(disk);
    match ctx.out.format {
        Format::Json => ctx.out.json(&json),
        Format::Yaml => ctx.out.yaml(&json),
        Format::Name => ctx.out.lines(vec![json.name]),
        Format::Table | Format::Wide => Ok(()),
    }
}
