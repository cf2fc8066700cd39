//! `devctl disk create`.

use clap::Args;
use kube::ResourceExt as _;
use odc_api::name::ObjectName;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::{Disk, DiskSchedule, DiskSource};

use super::change::check_display_name;
use super::print;
use crate::cli::shared::DryRunArgs;
use crate::context::ClusterContext;
use crate::error::{Error, Kind, Result};
use crate::model::disk::{self, DiskSummary};

#[derive(Args, Debug)]
pub struct CreateDiskArgs {
    /// Disk name: lowercase letters, digits and '-'
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Size [default: the size of the source, or the setting create.diskSize, or 20Gi]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Quantity>,
    /// Display name
    #[arg(long, value_name = "TEXT")]
    pub display_name: Option<String>,
    /// StorageClass [default: the default class of the cluster]
    #[arg(long, value_name = "NAME")]
    pub storage_class: Option<ObjectName>,
    /// Disk to copy; its newest restore point is used
    #[arg(long, value_name = "DISK", add = clap_complete::ArgValueCompleter::new(crate::completion::disk))]
    pub from: Option<String>,
    /// Restore point of --from
    #[arg(long, value_name = "POINT", requires = "from",
        add = clap_complete::ArgValueCompleter::new(crate::completion::point))]
    pub point: Option<String>,
    /// PVC to copy
    #[arg(long, value_name = "PVC", conflicts_with = "from",
        add = clap_complete::ArgValueCompleter::new(crate::completion::claim))]
    pub from_claim: Option<ObjectName>,
    /// Number of hourly restore points to keep while a server uses the disk
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Restore points")]
    pub hourly: u32,
    /// Number of daily restore points to keep
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Restore points")]
    pub daily: u32,
    /// Number of weekly restore points to keep
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Restore points")]
    pub weekly: u32,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
}

pub async fn run(ctx: &ClusterContext, args: CreateDiskArgs) -> Result<()> {
    let disks = ctx.client.disks().await?;
    let claims = if args.from_claim.is_some() { ctx.client.claims().await? } else { Vec::new() };
    let default_size = ctx.settings.create()?.disk_size;
    let disk = build(&args, &disks, &claims, default_size)?;
    let created = ctx.client.create_disk(&disk, args.dry_run.dry_run).await.map_err(|error| match error.kind {
        Kind::Conflict => {
            Error::conflict(format!("disk {} already exists", args.name)).with_hint("choose another name")
        }
        _ => error,
    })?;
    let (name, size) = (created.name_any(), created.spec.size);
    ctx.ui.info(if args.dry_run.dry_run {
        format!("Disk {name} ({size}) would be created (dry run)")
    } else {
        format!("Created disk {name} ({size}). Use it with `devctl create --disk {name}`.")
    });
    print(ctx, &created)
}

fn build(
    args: &CreateDiskArgs,
    disks: &[DiskSummary],
    claims: &[(String, String)],
    default_size: Option<Quantity>,
) -> Result<Disk> {
    let name = disk::parse_new_name(&args.name)?;
    let (source, source_size) = source(args, disks, claims)?;
    let size = args.size.or(source_size).or(default_size).unwrap_or(Quantity::bytes(disk::DEFAULT_SIZE));
    let schedule = DiskSchedule { hourly: args.hourly, daily: args.daily, weekly: args.weekly };
    let mut new = disk::new(&name, size, source, schedule);
    if let Some(display_name) = args.display_name.as_deref().filter(|text| !text.is_empty()) {
        check_display_name(display_name, &args.name, disks)?;
        new.spec.display_name = Some(display_name.into());
    }
    new.spec.storage_class.clone_from(&args.storage_class);
    Ok(new)
}

/// Returns the source of the data and its size.
fn source(
    args: &CreateDiskArgs,
    disks: &[DiskSummary],
    claims: &[(String, String)],
) -> Result<(Option<DiskSource>, Option<Quantity>)> {
    if let Some(claim) = &args.from_claim {
        let known = claims.iter().find(|(name, _)| name == claim.as_str());
        let (_, size) = known.ok_or_else(|| {
            Error::not_found(format!("PVC {claim} not found")).with_hint("run `kubectl get pvc` to see the PVCs")
        })?;
        return Ok((Some(DiskSource::Claim(claim.clone())), size.parse().ok()));
    }
    let Some(from) = &args.from else { return Ok((None, None)) };
    let origin = disk::find(from, disks)?;
    let disk = disk::name(origin)?;
    let source = match &args.point {
        None => DiskSource::Disk(disk),
        Some(point) => DiskSource::Point { disk, point: disk::point_name(disk::find_point(origin, point)?)? },
    };
    Ok((Some(source), Some(origin.spec.size)))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::command::disk::DiskCommand;

    fn parse(line: &str) -> CreateDiskArgs {
        let words = ["devctl", "disk", "create"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).unwrap().command {
            Command::Disk(args) => match args.command {
                DiskCommand::Create(args) => args,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn home() -> DiskSummary {
        let point = json!({"name": "home-1", "reason": "Stop", "consistency": "Clean"});
        let mut disk = DiskSummary::test("home", "100Gi");
        disk.status = serde_json::from_value(json!({"points": [point]})).unwrap();
        disk
    }

    fn spec(line: &str) -> Result<serde_json::Value> {
        let claims = [("old".to_owned(), "5Gi".to_owned())];
        let disk = build(&parse(line), &[home()], &claims, None)?;
        Ok(serde_json::to_value(disk.spec).unwrap())
    }

    #[test]
    fn size_is_that_of_the_source_unless_given() {
        assert_eq!(spec("data").unwrap()["size"], "20Gi");
        assert_eq!(spec("data --from home").unwrap()["size"], "100Gi");
        assert_eq!(spec("data --from-claim old").unwrap()["size"], "5Gi");
        assert_eq!(spec("data --from home --size 1Ti").unwrap()["size"], "1Ti");
        let by_setting = build(&parse("data"), &[], &[], Some("64Mi".parse().unwrap())).unwrap();
        assert_eq!(by_setting.spec.size.to_string(), "64Mi");
    }

    #[test]
    fn source_is_a_disk_a_point_or_a_claim() {
        assert_eq!(spec("data --from home").unwrap()["source"], json!({"disk": "home"}));
        let point = spec("data --from home --point home-1").unwrap();
        assert_eq!(point["source"], json!({"disk": "home", "point": "home-1"}));
        assert_eq!(spec("data --from-claim old").unwrap()["source"], json!({"claim": "old"}));
        for missing in ["data --from hone", "data --from home --point x", "data --from-claim new"] {
            assert_eq!(spec(missing).unwrap_err().kind, Kind::NotFound, "{missing}");
        }
    }

    #[test]
    fn invalid_names_are_rejected_with_the_rule() {
        let error = spec("My_Data").unwrap_err();
        assert_eq!(error.kind, Kind::Usage);
        assert!(error.hint.unwrap().contains("lowercase letters"));
        assert_eq!(spec("data --display-name home").unwrap_err().kind, Kind::Conflict);
    }
}
