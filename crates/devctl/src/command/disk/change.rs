//! `devctl disk rename` and `devctl disk resize`.

use kube::ResourceExt as _;
use odc_api::quantity::Quantity;
use serde_json::json;

use super::{DiskArg, print, resolve};
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::disk::{self, DiskSummary};

/// The maximum number of characters of `spec.displayName`.
const MAX_DISPLAY_NAME_LENGTH: usize = 128;

pub async fn rename(ctx: &ClusterContext, args: &DiskArg, display_name: &str) -> Result<()> {
    let disks = ctx.client.disks().await?;
    let name = disk::find(&args.disk, &disks)?.name_any();
    check_display_name(display_name, &name, &disks)?;
    let value = (!display_name.is_empty()).then_some(display_name);
    let renamed = ctx.client.patch_disk(&name, json!({"spec": {"displayName": value}}), false).await?;
    ctx.ui.info(match value {
        Some(display_name) => format!("Renamed disk {name} to \"{display_name}\""),
        None => format!("Removed the display name of disk {name}"),
    });
    print(ctx, &renamed)
}

/// Checks that a display name selects one disk, because commands accept it.
pub fn check_display_name(display_name: &str, name: &str, disks: &[DiskSummary]) -> Result<()> {
    disk::check_not_reserved(display_name)?;
    if display_name.chars().count() > MAX_DISPLAY_NAME_LENGTH {
        return Err(Error::usage(format!("the display name has more than {MAX_DISPLAY_NAME_LENGTH} characters"))
            .with_hint("choose a shorter name"));
    }
    let is_taken =
        |disk: &&DiskSummary| disk.name_any() == display_name || disk::display_name(disk) == Some(display_name);
    match disks.iter().filter(|disk| disk.name_any() != name).find(is_taken) {
        Some(other) => {
            Err(Error::conflict(format!("disk {} already has the name \"{display_name}\"", other.name_any()))
                .with_hint("choose another name"))
        }
        None => Ok(()),
    }
}

pub async fn resize(ctx: &ClusterContext, args: &DiskArg, size: Quantity) -> Result<()> {
    let disk = resolve(ctx, args).await?;
    let (name, old) = (disk.name_any(), disk.spec.size);
    if size == old {
        ctx.ui.info(format!("Disk {name} already has {size}"));
        return print(ctx, &disk);
    }
    let resized = ctx.client.patch_disk(&name, json!({"spec": {"size": size}}), false).await?;
    ctx.ui.info(format!("Resized disk {name} from {old} to {size}. The volume grows while a server uses it."));
    print(ctx, &resized)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn display_name_of_another_disk_is_rejected() {
        let named = |name: &str, display: &str| {
            let mut disk = DiskSummary::test(name, "20Gi");
            disk.spec.display_name = Some(display.into());
            disk
        };
        let disks = [named("home", "Home"), named("data", "Results")];
        let check = |display: &str| check_display_name(display, "home", &disks).map_err(|error| error.kind);
        assert_eq!(check("Home"), Ok(()), "its own name");
        assert_eq!(check("Work"), Ok(()));
        assert_eq!((check("Results"), check("data")), (Err(Kind::Conflict), Err(Kind::Conflict)));
        assert_eq!(check(&"x".repeat(129)), Err(Kind::Usage));
    }

    #[test]
    fn display_name_that_selects_no_disk_is_rejected() {
        let error = check_display_name(disk::NO_DISK, "home", &[]).unwrap_err();
        assert_eq!(error.kind, Kind::Usage);
        assert_eq!(error.message, "the disk name none is reserved: `--disk none` is an ephemeral home");
        assert_eq!(error.hint.as_deref(), Some("choose another name"));
    }
}
