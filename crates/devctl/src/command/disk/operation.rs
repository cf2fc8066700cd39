//! Commands that create a `DiskOperation`: `devctl disk snapshot`, `clone`, `restore` and `unlock`.

use clap::Args;
use kube::ResourceExt as _;
use odc_api::text::Text;
use odc_api::v1alpha1::{DiskAction, DiskArguments, DiskOperation, DiskOperationSpec};

use super::stop::{self, StopArg};
use super::{DiskArg, OperationArgs, PointArg, resolve};
use crate::cli::Format;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::disk::{self, DiskSummary};
use crate::output::json::disk::OperationJson;
use crate::ui::{Confirm, PASS_YES};
use crate::wait::{self, OperationGoal};

/// The maximum number of characters of a note.
const MAX_NOTE_LENGTH: usize = 256;

#[derive(Args, Debug)]
pub struct SnapshotArgs {
    #[command(flatten)]
    pub disk: DiskArg,
    /// Note to recognize the restore point
    #[arg(long, value_name = "TEXT", value_parser = parse_note)]
    pub note: Option<String>,
    #[command(flatten)]
    pub wait: OperationArgs,
}

#[derive(Args, Debug)]
pub struct CloneArgs {
    #[command(flatten)]
    pub disk: DiskArg,
    /// Name of the new disk
    #[arg(value_name = "NEW")]
    pub new: String,
    /// Restore point to copy [default: a new one]
    #[arg(long, value_name = "POINT", add = clap_complete::ArgValueCompleter::new(crate::completion::point))]
    pub point: Option<String>,
    #[command(flatten)]
    pub wait: OperationArgs,
}

#[derive(Args, Debug)]
pub struct RestoreArgs {
    #[command(flatten)]
    pub disk: DiskArg,
    #[command(flatten)]
    pub point: PointArg,
    /// Files and directories, relative to the home directory
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,
    #[command(flatten)]
    pub stop: StopArg,
    #[command(flatten)]
    pub wait: OperationArgs,
}

#[derive(Args, Debug)]
pub struct UnlockArgs {
    #[command(flatten)]
    pub disk: DiskArg,
    #[command(flatten)]
    pub wait: OperationArgs,
}

pub async fn snapshot(ctx: &ClusterContext, args: SnapshotArgs) -> Result<()> {
    let disk = resolve(ctx, &args.disk).await?;
    let mut spec = spec(&disk, DiskAction::Snapshot, DiskArguments::default())?;
    spec.note = args.note.as_deref().map(Text::from);
    let Some(done) = run(ctx, &spec, &args.wait).await? else { return Ok(()) };
    let point = OperationJson::from(&done).result.point.unwrap_or_default();
    ctx.ui.info(format!("Took restore point {point} of disk {}", spec.disk));
    print(ctx, &done, Some(&point))
}

pub async fn clone(ctx: &ClusterContext, args: CloneArgs) -> Result<()> {
    let disks = ctx.client.disks().await?;
    let disk = disk::find(&args.disk.disk, &disks)?;
    let new = disk::parse_new_name(&args.new)?;
    if disks.iter().any(|disk| disk.name_any() == new.as_str()) {
        return Err(Error::conflict(format!("disk {new} already exists")).with_hint("choose another name"));
    }
    let point = args.point.as_deref().map(|point| disk::point_name(disk::find_point(disk, point)?)).transpose()?;
    let arguments = DiskArguments { point, name: Some(new.clone()), ..DiskArguments::default() };
    let spec = spec(disk, DiskAction::Clone, arguments)?;
    let Some(done) = run(ctx, &spec, &args.wait).await? else { return Ok(()) };
    ctx.ui.info(format!("Cloned disk {} to {new}. Use it with `devctl create --disk {new}`.", spec.disk));
    print(ctx, &done, Some(new.as_str()))
}

pub async fn restore(ctx: &ClusterContext, args: RestoreArgs) -> Result<()> {
    let disk = resolve(ctx, &args.disk).await?;
    let point = disk::point_name(disk::find_point(&disk, &args.point.point)?)?;
    let paths = args.paths.iter().map(|path| relative_path(path)).collect::<Result<Vec<_>>>()?;
    let server = args.stop.select_server(&disk, "copy files to")?;
    if let Some(server) = &server {
        stop::hibernate(ctx, server).await?;
    }
    let arguments = DiskArguments { point: Some(point.clone()), paths, ..DiskArguments::default() };
    let spec = spec(&disk, DiskAction::Restore, arguments)?;
    let Some(done) = run(ctx, &spec, &args.wait).await? else { return Ok(()) };
    let noun = if args.paths.len() == 1 { "path" } else { "paths" };
    ctx.ui.info(format!(
        "Restored {} {noun} of disk {} from {point}.{}{}",
        args.paths.len(),
        spec.disk,
        format_previous(&done),
        stop::format_wake(server.as_deref())
    ));
    print(ctx, &done, None)
}

pub async fn unlock(ctx: &ClusterContext, args: UnlockArgs) -> Result<()> {
    let disk = resolve(ctx, &args.disk).await?;
    let spec = spec(&disk, DiskAction::Unlock, DiskArguments::default())?;
    let question = format!(
        "Unlock disk {}? If the node of its last server still runs, the pod there may write to the disk.",
        spec.disk
    );
    let action = format!("unlock disk {}", spec.disk);
    if !ctx.ui.confirm(&Confirm { question: &question, action: &action, hint: PASS_YES, default: false })? {
        return Err(Error::interrupted("aborted"));
    }
    let Some(done) = run(ctx, &spec, &args.wait).await? else { return Ok(()) };
    ctx.ui.info(format!("Unlocked disk {}", spec.disk));
    print(ctx, &done, None)
}

/// Returns the spec of an operation on a disk.
pub fn spec(disk: &DiskSummary, action: DiskAction, arguments: DiskArguments) -> Result<DiskOperationSpec> {
    let arguments = (arguments != DiskArguments::default()).then_some(arguments);
    Ok(DiskOperationSpec { disk: disk::name(disk)?, action, arguments, note: None })
}

/// Creates an operation and waits until it has succeeded. With `--no-wait`, prints it and returns nothing.
pub async fn run(
    ctx: &ClusterContext,
    spec: &DiskOperationSpec,
    args: &OperationArgs,
) -> Result<Option<DiskOperation>> {
    let operation = ctx.client.create_operation(spec).await?;
    ctx.ui.trace_step("creating the operation");
    let name = operation.name_any();
    if args.no_wait {
        ctx.ui.verbose(|| format!("created operation {name}"));
        print(ctx, &operation, Some(&name))?;
        return Ok(None);
    }
    let timeout = args.timeout.map(Into::into);
    wait::until_operation(ctx, &operation, OperationGoal::Succeeded, timeout).await.map(Some)
}

/// Prints an operation, or only what it created without a structured format.
pub fn print(ctx: &ClusterContext, operation: &DiskOperation, created: Option<&str>) -> Result<()> {
    let json = OperationJson::from(operation);
    match ctx.out.format {
        Format::Json => ctx.out.json(&json),
        Format::Yaml => ctx.out.yaml(&json),
        Format::Name | Format::Table | Format::Wide => ctx.out.lines(created.map(str::to_owned).into_iter().collect()),
    }
}

/// Returns the sentence about the restore point with the previous data.
pub fn format_previous(operation: &DiskOperation) -> String {
    let point = OperationJson::from(operation).result.point;
    point.map(|point| format!(" The previous data is in restore point {point}.")).unwrap_or_default()
}

fn parse_note(text: &str) -> std::result::Result<String, String> {
    match text.chars().count() {
        0..=MAX_NOTE_LENGTH => Ok(text.to_owned()),
        _ => Err(format!("a note has at most {MAX_NOTE_LENGTH} characters")),
    }
}

/// Converts a path to one relative to the root of the disk, which is the home directory.
fn relative_path(typed: &str) -> Result<Text<512>> {
    let below_home = typed.strip_prefix(odc_api::HOME).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let path = below_home.or_else(|| typed.strip_prefix('~')).map_or(typed, |rest| rest.trim_start_matches('/'));
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let joined = parts.join("/");
    if path.starts_with('/') || parts.is_empty() || parts.contains(&"..") || joined.chars().count() > 512 {
        return Err(Error::usage(format!("invalid path {typed:?}"))
            .with_hint(format!("give a path below the home directory, such as src/main.rs or {}/src", odc_api::HOME)));
    }
    Ok(Text::from(joined))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_home_directory() {
        for (typed, path) in [
            ("src/main.rs", "src/main.rs"),
            ("./src//a/", "src/a"),
            ("/home/dev/src", "src"),
            ("~/src", "src"),
            ("a b", "a b"),
        ] {
            assert_eq!(relative_path(typed).unwrap().as_str(), path, "{typed}");
        }
        for invalid in ["", "/", "/etc/passwd", "../x", "a/../b", "~", "/home/dev", "/home/developer/x"] {
            assert!(relative_path(invalid).is_err(), "{invalid}");
        }
        assert!(relative_path(&"x".repeat(513)).is_err());
    }

    #[test]
    fn operation_without_arguments_has_none() {
        let disk = DiskSummary::test("home", "20Gi");
        assert_eq!(spec(&disk, DiskAction::Snapshot, DiskArguments::default()).unwrap().arguments, None);
        let arguments = DiskArguments { point: Some("p".parse().unwrap()), ..DiskArguments::default() };
        let rollback = spec(&disk, DiskAction::Rollback, arguments).unwrap();
        assert_eq!(rollback.point().map(ToString::to_string).as_deref(), Some("p"));
    }

    #[test]
    fn long_notes_are_rejected() {
        assert!(parse_note(&"ä".repeat(256)).is_ok());
        assert!(parse_note(&"x".repeat(257)).is_err());
    }
}
