//! `devctl disk diff`.

use clap::Args;
use odc_api::v1alpha1::{DiskAction, DiskArguments};

use super::{DiskArg, OperationArgs, PointArg, operation, resolve};
use crate::cli::Format;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::disk;
use crate::output::json::disk::{ChangeJson, DiffJson};

#[derive(Args, Debug)]
pub struct DiffArgs {
    #[command(flatten)]
    pub disk: DiskArg,
    #[command(flatten)]
    pub point: PointArg,
    /// Later restore point [default: the current data]
    #[arg(value_name = "LATER_POINT", add = clap_complete::ArgValueCompleter::new(crate::completion::point))]
    pub to: Option<String>,
    /// Print A (added), D (removed) or M (modified) before each path
    #[arg(long)]
    pub name_status: bool,
    #[command(flatten)]
    pub wait: OperationArgs,
}

pub async fn run(ctx: &ClusterContext, args: DiffArgs) -> Result<()> {
    let disk = resolve(ctx, &args.disk).await?;
    let point = disk::point_name(disk::find_point(&disk, &args.point.point)?)?;
    let to = args.to.as_deref().map(|to| disk::point_name(disk::find_point(&disk, to)?)).transpose()?;
    let arguments = DiskArguments { point: Some(point), to, ..DiskArguments::default() };
    let spec = operation::spec(&disk, DiskAction::Diff, arguments)?;
    let Some(done) = operation::run(ctx, &spec, &args.wait).await? else { return Ok(()) };
    let result = done.status.and_then(|status| status.result).and_then(|result| result.diff);
    let diff = result.ok_or_else(|| {
        Error::failed(format!("diff of disk {} ended without a result", spec.disk)).with_hint("try again")
    })?;
    let diff = DiffJson::from(&diff);
    match ctx.out.format {
        Format::Json => ctx.out.json(&diff)?,
        Format::Yaml => ctx.out.yaml(&diff)?,
        Format::Name | Format::Table | Format::Wide => ctx.out.lines(lines(&diff, args.name_status))?,
    }
    match truncation(&diff) {
        Some(warning) => ctx.ui.warn(warning),
        None => ctx.ui.info(counts(&diff)),
    }
    Ok(())
}

/// Returns one line per path.
fn lines(diff: &DiffJson, name_status: bool) -> Vec<String> {
    let line = |ChangeJson { change, path }: &ChangeJson| {
        // A newline would split the path.
        let path = path.replace('\n', "\\n");
        if name_status { format!("{} {path}", change.letter()) } else { path }
    };
    diff.paths.iter().map(line).collect()
}

fn counts(diff: &DiffJson) -> String {
    if diff.added + diff.removed + diff.modified == 0 {
        return "No differences".to_owned();
    }
    format!("{} added, {} removed, {} modified", diff.added, diff.removed, diff.modified)
}

/// Returns the warning for a list that is not complete.
fn truncation(diff: &DiffJson) -> Option<String> {
    let total = diff.added + diff.removed + diff.modified;
    diff.truncated
        .then(|| format!("the list has only {} of {total} changed paths ({})", diff.paths.len(), counts(diff)))
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::DiskDiff;

    use super::*;

    fn diff(truncated: bool) -> DiffJson {
        let paths = ["A new", "M notes/a b.txt", "D odd\nname"];
        let paths = paths.into_iter().map(Into::into).collect();
        DiffJson::from(&DiskDiff { added: 1, removed: 1, modified: 1, paths, truncated })
    }

    #[test]
    fn each_path_is_one_line() {
        assert_eq!(lines(&diff(false), false), ["new", "notes/a b.txt", "odd\\nname"]);
        assert_eq!(lines(&diff(false), true), ["A new", "M notes/a b.txt", "D odd\\nname"]);
    }

    #[test]
    fn truncated_list_has_a_warning_with_the_counts() {
        assert_eq!(truncation(&diff(false)), None);
        let mut long = diff(true);
        long.added = 4000;
        let warning = "the list has only 3 of 4002 changed paths (4000 added, 1 removed, 1 modified)";
        assert_eq!(truncation(&long).as_deref(), Some(warning));
        assert_eq!(counts(&DiffJson::from(&DiskDiff::default())), "No differences");
    }
}
