//! `devctl disk delete` and `devctl disk undelete`.

use clap::Args;
use kube::ResourceExt as _;
use serde_json::json;

use super::{DiskArg, print, resolve};
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::disk::{self, DiskSummary, UNDELETE_DAYS};
use crate::resolve::list_own;

#[derive(Args, Debug)]
pub struct DeleteDiskArgs {
    #[command(flatten)]
    pub disk: DiskArg,
    /// Delete the data and all restore points now; they cannot be recovered
    #[arg(long)]
    pub purge: bool,
}

pub async fn run(ctx: &ClusterContext, args: &DeleteDiskArgs) -> Result<()> {
    let disk = resolve(ctx, &args.disk).await?;
    let name = disk.name_any();
    if disk::is_deleting(&disk) {
        ctx.ui.info(format!("Disk {name} is already being deleted"));
        return print(ctx, &disk);
    }
    if let Some(server) = disk::find_user(&disk, &list_own(ctx).await?, None) {
        return Err(Error::conflict(format!("cannot delete disk {name}: server {server} uses it"))
            .with_hint(format!("delete the server first with `devctl delete {server}`")));
    }
    if args.purge {
        return purge(ctx, &disk).await;
    }
    let undelete = format!("Run `devctl disk undelete {name}` to get it back.");
    if disk.spec.deleted {
        ctx.ui.info(format!("Disk {name} is already deleted. {undelete}"));
        return print(ctx, &disk);
    }
    let deleted = ctx.client.patch_disk(&name, json!({"spec": {"deleted": true}}), false).await?;
    ctx.ui.info(format!("Deleted disk {name}. Its data is kept for {UNDELETE_DAYS} days. {undelete}"));
    print(ctx, &deleted)
}

async fn purge(ctx: &ClusterContext, disk: &DiskSummary) -> Result<()> {
    let name = disk.name_any();
    let points = disk::points(disk).len();
    let question = format!("Delete disk {name} ({}) with its data and {points} restore points?", disk.spec.size);
    ctx.ui.confirm_name(&question, &format!("delete disk {name} and its data"), &name)?;
    ctx.client.purge_disk(&name, disk.metadata.uid.as_deref().unwrap_or_default()).await?;
    ctx.ui.info(format!("Deleted disk {name}; its data and restore points are being removed"));
    print(ctx, disk)
}

pub async fn undelete(ctx: &ClusterContext, args: &DiskArg) -> Result<()> {
    let disk = resolve(ctx, args).await?;
    let name = disk.name_any();
    if disk::is_deleting(&disk) {
        return Err(Error::conflict(format!("cannot undelete disk {name}: its data is being deleted"))
            .with_hint(format!("run `devctl disk create {name}` to create a new disk when it is gone")));
    }
    if !disk.spec.deleted {
        ctx.ui.info(format!("Disk {name} is not deleted"));
        return print(ctx, &disk);
    }
    let undeleted = ctx.client.patch_disk(&name, json!({"spec": {"deleted": false}}), false).await?;
    ctx.ui.info(format!("Undeleted disk {name}"));
    print(ctx, &undeleted)
}
