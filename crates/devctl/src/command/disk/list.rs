//! `devctl disk list` and `devctl disk points`.

use jiff::Timestamp;
use odc_api::v1alpha1::DiskPhase;

use super::{DiskArg, resolve};
use crate::clock;
use crate::context::ClusterContext;
use crate::error::Result;
use crate::model::disk::{self, DiskSummary, Point};
use crate::output::duration::{format_clock, format_since};
use crate::output::json::disk::{DiskJson, PointJson};
use crate::output::size::format_quantity;
use crate::output::style::{BLUE, DIM, GREEN, PLAIN, RED, YELLOW};
use crate::output::{Cell, Column, Table};

pub async fn disks(ctx: &ClusterContext) -> Result<()> {
    let disks = ctx.client.disks().await?;
    if disks.is_empty() && !ctx.out.structured() {
        ctx.ui.info("No disks found. Run `devctl create` to create a server with one, or `devctl disk create NAME`.");
        return Ok(());
    }
    let rows: Vec<DiskJson> = disks.iter().map(DiskJson::from).collect();
    let names = || rows.iter().map(|disk| disk.name.clone()).collect();
    ctx.out.show(&rows, names, || disk_table(&disks, clock::now()))
}

pub async fn points(ctx: &ClusterContext, args: &DiskArg) -> Result<()> {
    let disk = resolve(ctx, args).await?;
    let points = disk::points(&disk);
    if points.is_empty() && !ctx.out.structured() {
        ctx.ui.info(format!(
            "Disk {} has no restore points yet. One is taken whenever its server stops.",
            DiskJson::from(&disk).name
        ));
        return Ok(());
    }
    let rows: Vec<PointJson> = points.iter().map(PointJson::from).collect();
    let names = || rows.iter().map(|point| point.name.clone()).collect();
    ctx.out.show(&rows, names, || point_table(points, clock::now()))
}

fn disk_table(disks: &[DiskSummary], now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::new("NAME"),
        Column::new("PHASE"),
        Column::new("SIZE"),
        Column::new("USED").drop_priority(3),
        Column::new("SERVER").drop_priority(1),
        Column::new("POINTS").drop_priority(4),
        Column::new("LAST USED").drop_priority(3),
        Column::new("DISPLAY NAME").drop_priority(2).truncate(),
        Column::new("MESSAGE").drop_priority(5).truncate(),
        Column::new("CLASS").wide(),
        Column::new("CLAIM").wide(),
        Column::new("LOCATION").wide(),
    ]);
    for disk in disks {
        let json = DiskJson::from(disk);
        let last_used = json.last_used.map(|time| format!("{} ago", format_since(time, now)));
        table.row([
            json.name.into(),
            Cell::styled(json.phase, phase_style(disk::phase(disk))),
            json.size.into(),
            disk.status.used.map_or_else(|| "-".to_owned(), format_quantity).into(),
            json.server.unwrap_or_default().into(),
            json.point_count.to_string().into(),
            last_used.unwrap_or_default().into(),
            json.display_name.unwrap_or_default().into(),
            problem(disk).unwrap_or_default().into(),
            json.storage_class.unwrap_or_default().into(),
            json.claim.unwrap_or_default().into(),
            json.location.unwrap_or_default().into(),
        ]);
    }
    table
}

/// Returns the message of a disk that is not ready.
pub fn problem(disk: &DiskSummary) -> Option<String> {
    Some(disk::ready(disk).filter(|ready| ready.status == "False")?.message.clone())
}

pub fn phase_style(phase: Option<DiskPhase>) -> anstyle::Style {
    match phase {
        Some(DiskPhase::Available | DiskPhase::InUse) => GREEN,
        Some(DiskPhase::Pending) | None => PLAIN,
        Some(DiskPhase::Provisioning) => YELLOW,
        Some(DiskPhase::Releasing) => BLUE,
        Some(DiskPhase::Deleted | DiskPhase::Deleting) => DIM,
        Some(DiskPhase::Failed) => RED,
    }
}

fn point_table(points: &[Point], now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::new("NAME"),
        Column::new("TAKEN"),
        Column::new("AGE").drop_priority(3),
        Column::new("REASON").drop_priority(1),
        Column::new("CONSISTENCY").drop_priority(2),
        Column::new("READY").drop_priority(4),
        Column::new("NOTE").drop_priority(1).truncate(),
        Column::new("SIZE").wide(),
    ]);
    for point in points {
        let PointJson { name, at, reason, consistency, size, ready, note, listing: _ } = PointJson::from(point);
        table.row([
            name.into(),
            at.map(|at| format_clock(at, now)).unwrap_or_default().into(),
            at.map(|at| format_since(at, now)).unwrap_or_default().into(),
            reason.into(),
            consistency.into(),
            if ready { "yes".into() } else { Cell::styled("no", YELLOW) },
            note.unwrap_or_default().into(),
            size.unwrap_or_default().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(table: &Table) -> String {
        anstream::adapter::strip_str(&table.render(false, true, None)).to_string()
    }

    #[test]
    fn table_shows_server_and_problem() {
        let condition = json!({"type": "Ready", "status": "False", "reason": "DiskUnavailable",
            "message": "Claim home-1 was deleted.", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut failed = DiskSummary::test("disk-home", "50Gi");
        failed.status = serde_json::from_value(json!({"phase": "Failed", "conditions": [condition],
            "lastUsed": "1970-01-01T00:00:00Z", "used": "3277Mi",
            "holder": {"server": "box", "uid": "u", "since": "2026-01-01T00:00:00Z"}}))
        .unwrap();
        let now = Timestamp::from_second(7200).unwrap();
        assert_eq!(
            plain(&disk_table(&[failed], now)),
            "NAME        PHASE    SIZE   USED    SERVER   POINTS   LAST USED   MESSAGE\n\
             disk-home   Failed   50Gi   3.3Gi   box      0        2h ago      Claim home-1 was deleted.\n"
        );
    }

    #[test]
    fn point_that_is_not_verified_is_not_ready() {
        let points: Vec<Point> = serde_json::from_value(json!([
            {"name": "home-2", "at": "1970-01-01T00:30:00Z", "reason": "OnDemand", "consistency": "CrashConsistent",
                "note": "before the upgrade"},
            {"name": "home-1", "at": "1970-01-01T00:00:00Z", "reason": "Stop", "consistency": "Clean", "ready": true},
        ]))
        .unwrap();
        let text = plain(&point_table(&points, Timestamp::from_second(3600).unwrap()));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split("   ").map(str::trim).collect()).collect();
        assert!(rows[1].contains(&"no") && rows[1].contains(&"before the upgrade"), "{text}");
        assert!(rows[2].contains(&"yes") && rows[2].contains(&"Clean") && rows[2].contains(&"1h"), "{text}");
    }
}
