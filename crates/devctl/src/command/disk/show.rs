//! `devctl disk show`.

use jiff::Timestamp;
use odc_api::v1alpha1::DiskOperation;

use super::list::{phase_style, problem};
use super::{DiskArg, resolve};
use crate::cli::Format;
use crate::clock;
use crate::context::ClusterContext;
use crate::error::Result;
use crate::model::disk::{self, DiskSummary, Source};
use crate::output::duration::{format_clock, format_since};
use crate::output::json::disk::{DiskDetailJson, OperationJson};
use crate::output::key_values::KeyValues;
use crate::output::size::format_quantity;
use crate::output::style::{BOLD, RED, paint};

/// The most operations that are printed.
const MAX_OPERATIONS: usize = 5;

pub async fn run(ctx: &ClusterContext, args: &DiskArg) -> Result<()> {
    let disk = resolve(ctx, args).await?;
    let name = disk.metadata.name.as_deref().unwrap_or_default();
    let operations = ctx.client.operations(name).await?;
    let json = DiskDetailJson::new(&disk, &operations);
    match ctx.out.format {
        Format::Json => ctx.out.json(&json),
        Format::Yaml => ctx.out.yaml(&json),
        Format::Name => ctx.out.print(&format!("{name}\n")),
        Format::Table | Format::Wide => {
            ctx.out.print(&rows(&disk, &operations, clock::now()).render("", ctx.out.width()))
        }
    }
}

fn rows(disk: &DiskSummary, operations: &[DiskOperation], now: Timestamp) -> KeyValues {
    let json = DiskDetailJson::new(disk, &[]);
    let mut rows = KeyValues::default();
    rows.add("Name", paint(BOLD, &json.disk.name));
    rows.add("Display name", json.disk.display_name.unwrap_or_default());
    rows.add("Phase", paint(phase_style(disk::phase(disk)), &json.disk.phase));
    rows.add("Message", problem(disk).unwrap_or_default());
    rows.add("Size", json.disk.size);
    rows.add("Used", format_used(disk, now));
    rows.add("Class", json.disk.storage_class.unwrap_or_default());
    rows.add("Source", disk.spec.source.as_ref().map(format_source).unwrap_or_default());
    rows.add("Server", format_holder(disk, now));
    rows.add(
        "Last used",
        json.disk.last_used.map(|time| format!("{} ago", format_since(time, now))).unwrap_or_default(),
    );
    rows.add("Claim", json.disk.claim.unwrap_or_default());
    rows.add("Location", json.disk.location.unwrap_or_default());
    rows.add("Schedule", format_schedule(disk));
    rows.add("Points", format_points(disk, now));
    rows.add("Deletion", format_deletion(disk));
    let shown = &operations[operations.len().saturating_sub(MAX_OPERATIONS)..];
    rows.add("Operations", shown.iter().rev().map(|one| format_operation(one, now)).collect::<Vec<_>>().join("\n"));
    rows.add("Next", next_step(disk));
    rows
}

fn format_source(source: &Source) -> String {
    match (&source.disk, &source.point, &source.claim) {
        (Some(disk), Some(point), _) => format!("restore point {point} of disk {disk}"),
        (Some(disk), None, _) => format!("disk {disk}"),
        (None, _, Some(claim)) => format!("PVC {claim}"),
        (None, _, None) => String::new(),
    }
}

fn format_holder(disk: &DiskSummary, now: Timestamp) -> String {
    let Some(holder) = &disk.status.holder else { return String::new() };
    let state = match &holder.releasing_since {
        Some(_) => "has stopped; its restore point is taken".to_owned(),
        None => format!("for {}", format_since(holder.since.0, now)),
    };
    format!("{} ({state})", holder.server)
}

/// Returns the space that files used at the newest point with a listing.
fn format_used(disk: &DiskSummary, now: Timestamp) -> String {
    let Some(used) = disk.status.used else { return "-".to_owned() };
    let age = disk.status.used_at.as_ref().map(|at| format!(" ({} ago)", format_since(at.0, now)));
    format!("{}{}", format_quantity(used), age.unwrap_or_default())
}

/// Returns the numbers of points on a schedule that are kept.
fn format_schedule(disk: &DiskSummary) -> String {
    let schedule = &disk.spec.schedule;
    let all = [(schedule.hourly, "hourly"), (schedule.daily, "daily"), (schedule.weekly, "weekly")];
    let kept = all.into_iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}"));
    kept.collect::<Vec<_>>().join(", ")
}

fn format_points(disk: &DiskSummary, now: Timestamp) -> String {
    let points = disk::points(disk);
    let newest = points.first().and_then(|point| Some(format!(", newest {}", format_clock(point.at.as_ref()?.0, now))));
    format!("{}{}", points.len(), newest.unwrap_or_default())
}

fn format_deletion(disk: &DiskSummary) -> String {
    let days = disk.status.deletion.as_ref().map_or(0, |deletion| deletion.days);
    let rest = disk::UNDELETE_DAYS.saturating_sub(days);
    if disk.spec.deleted { paint(RED, &format!("the data is deleted in {rest} days")) } else { String::new() }
}

fn format_operation(operation: &DiskOperation, now: Timestamp) -> String {
    let json = OperationJson::from(operation);
    let age = json.created_at.map(|time| format!(", {} ago", format_since(time, now))).unwrap_or_default();
    let phase = json.phase.as_deref().unwrap_or("Pending");
    let message = json.message.filter(|_| phase != "Succeeded").map(|message| format!(": {message}"));
    format!("{} {phase}{age} ({}){}", json.action, json.name, message.unwrap_or_default())
}

fn next_step(disk: &DiskSummary) -> String {
    let name = disk.metadata.name.as_deref().unwrap_or_default();
    match disk.spec.deleted {
        true => format!("run `devctl disk undelete {name}` to get it back"),
        false if disk::points(disk).is_empty() => String::new(),
        false => format!("run `devctl disk points {name}` to see its restore points"),
    }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::DiskAction;
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_show_holder_schedule_points_and_operations() {
        let mut disk = DiskSummary::test("disk-home", "50Gi");
        disk.spec.schedule.daily = 7;
        disk.status = serde_json::from_value(json!({"phase": "InUse", "claim": "disk-home-1",
            "used": "1536Mi", "usedAt": "1970-01-01T00:00:00Z",
            "holder": {"server": "box", "uid": "u", "since": "1970-01-01T00:00:00Z"},
            "points": [{"name": "p", "at": "1970-01-01T00:00:00Z", "reason": "Stop", "consistency": "Clean"}]}))
        .unwrap();
        let mut failed = DiskOperation::test("op-1", DiskAction::Rollback);
        failed.status = serde_json::from_value(json!({"phase": "Failed", "conditions": [{"type": "Complete",
            "status": "False", "reason": "DiskInUse", "message": "Server box uses the disk.",
            "lastTransitionTime": "1970-01-01T00:00:00Z"}]}))
        .unwrap();
        let text = rows(&disk, &[failed], Timestamp::from_second(3600).unwrap()).render("", None);
        let text = anstream::adapter::strip_str(&text).to_string();
        for line in [
            "1.5Gi (1h ago)",
            "box (for 1h)",
            "7 daily",
            "1, newest",
            "Rollback Failed (op-1): Server box uses the disk.",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("Deletion"), "{text}");
        disk.spec.deleted = true;
        let text = rows(&disk, &[], Timestamp::UNIX_EPOCH).render("", None);
        assert!(text.contains("deleted in 30 days") && text.contains("devctl disk undelete disk-home"), "{text}");
    }
}
