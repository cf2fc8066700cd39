//! Disks: names, restore points, and which server uses them.

mod listing;
mod summary;

use kube::ResourceExt as _;
use odc_api::name::{DiskName, ObjectName};
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::{Disk, DiskAction, DiskPhase, DiskRetention, DiskSchedule, DiskSource, DiskSpec, Phase};

pub use listing::{Entry, Listing};
pub use summary::{DiskSummary, Holder, Point, Source, Spec, Status};

use crate::error::{Error, Result};
use crate::model::server::{Condition, ServerSummary};
use crate::resolve::{join_names, nearest};

/// The number of days for which a deleted disk can be undeleted.
pub const UNDELETE_DAYS: u32 = 30;

/// The name of the default disk of a user.
pub const DEFAULT_NAME: &str = "home";
/// Value of `--disk` for an ephemeral home.
pub const NO_DISK: &str = "none";

/// In bytes. The size of a disk without a size.
pub const DEFAULT_SIZE: i64 = 20 << 30;

/// Returns the disk with this name, or else the only one with this display name.
pub fn find<'a>(typed: &str, disks: &'a [DiskSummary]) -> Result<&'a DiskSummary> {
    if let Some(disk) = disks.iter().find(|disk| disk.name_any() == typed) {
        return Ok(disk);
    }
    let displayed: Vec<&DiskSummary> = disks.iter().filter(|disk| display_name(disk) == Some(typed)).collect();
    match displayed.as_slice() {
        [disk] => Ok(disk),
        [] => {
            let names: Vec<String> = disks.iter().map(kube::ResourceExt::name_any).collect();
            let known = names.iter().map(String::as_str).chain(disks.iter().filter_map(display_name));
            Err(not_found(typed, nearest(typed, known)))
        }
        several => {
            let names: Vec<String> = several.iter().map(|disk| disk.name_any()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Err(Error::usage(format!("{} disks have the display name \"{typed}\"", names.len()))
                .with_hint(format!("use the name: one of {}", join_names(&names))))
        }
    }
}

pub fn not_found(typed: &str, nearest: Option<&str>) -> Error {
    let hint = nearest.map_or_else(
        || "run `devctl disk list` to see your disks, or `devctl disk create` to create one".to_owned(),
        |nearest| format!("did you mean {nearest}?"),
    );
    Error::not_found(format!("disk {typed} not found")).with_hint(hint)
}

/// Parses the name of a disk that is to be created.
pub fn parse_new_name(typed: &str) -> Result<DiskName> {
    check_not_reserved(typed)?;
    parse_name(typed)
}

/// Rejects a name or display name that `--disk` cannot select.
pub fn check_not_reserved(name: &str) -> Result<()> {
    if name == NO_DISK {
        let message = format!("the disk name {NO_DISK} is reserved: `--disk {NO_DISK}` is an ephemeral home");
        return Err(Error::usage(message).with_hint("choose another name"));
    }
    Ok(())
}

pub fn parse_name(typed: &str) -> Result<DiskName> {
    typed.parse().map_err(|_| {
        Error::usage(format!("invalid disk name {typed:?}")).with_hint(format!(
            "use at most {} lowercase letters, digits and '-'; set a display name with `devctl disk rename`",
            DiskName::MAX_LENGTH
        ))
    })
}

/// Returns the name as a type.
pub fn name(disk: &DiskSummary) -> Result<DiskName> {
    parse_name(&disk.name_any())
}

pub fn display_name(disk: &DiskSummary) -> Option<&str> {
    disk.spec.display_name.as_deref()
}

/// Returns the restore points, newest first.
pub fn points(disk: &DiskSummary) -> &[Point] {
    &disk.status.points
}

/// Returns the restore point of this name.
pub fn find_point<'a>(disk: &'a DiskSummary, typed: &str) -> Result<&'a Point> {
    let points = points(disk);
    points.iter().find(|point| point.name == typed).ok_or_else(|| {
        let name = disk.name_any();
        let hint = match nearest(typed, points.iter().map(|point| point.name.as_str())) {
            _ if points.is_empty() => format!("take one with `devctl disk snapshot {name}`"),
            Some(nearest) => format!("did you mean {nearest}? Run `devctl disk points {name}` to see all"),
            None => format!("run `devctl disk points {name}` to see its restore points"),
        };
        Error::not_found(format!("disk {name} has no restore point {typed}")).with_hint(hint)
    })
}

/// Returns the action as in the API.
pub const fn action_str(action: DiskAction) -> &'static str {
    match action {
        DiskAction::Snapshot => "Snapshot",
        DiskAction::Rollback => "Rollback",
        DiskAction::Clone => "Clone",
        DiskAction::Restore => "Restore",
        DiskAction::Browse => "Browse",
        DiskAction::Diff => "Diff",
        DiskAction::Unlock => "Unlock",
    }
}

/// Returns the name of a restore point as a type.
pub fn point_name(point: &Point) -> Result<ObjectName> {
    point.name.parse().map_err(|error| Error::failed(format!("invalid restore point {}: {error}", point.name)))
}

pub fn phase_str(disk: &DiskSummary) -> &str {
    disk.status.phase.as_deref().unwrap_or(DiskPhase::Pending.as_str())
}

/// Returns the phase, if this version of devctl knows it.
pub fn phase(disk: &DiskSummary) -> Option<DiskPhase> {
    DiskPhase::ALL.iter().copied().find(|phase| phase.as_str() == phase_str(disk))
}

/// Returns the condition Ready.
pub fn ready(disk: &DiskSummary) -> Option<&Condition> {
    disk.status.conditions.iter().find(|condition| condition.kind == "Ready")
}

pub fn is_deleting(disk: &DiskSummary) -> bool {
    disk.metadata.deletion_timestamp.is_some()
}

/// Returns the server that holds the disk, unless it has stopped already.
pub fn active_holder(disk: &DiskSummary) -> Option<&Holder> {
    disk.status.holder.as_ref().filter(|holder| holder.releasing_since.is_none())
}

/// Returns the server that prevents another one from using the disk: one that holds it, or one that will need it again,
/// such as a hibernated one. A server that stops releases the disk, so it prevents nothing; nor does `except`.
pub fn find_user(disk: &DiskSummary, servers: &[ServerSummary], except: Option<&str>) -> Option<String> {
    let name = disk.name_any();
    let has_ended = |server: &ServerSummary| {
        server.is_finished() || server.is_deleting() || server.phase() == Some(Phase::Stopping)
    };
    let is_other = |server: &str| Some(server) != except;
    let uses = |server: &&ServerSummary| server.spec.home.disk.as_deref() == Some(name.as_str()) && !has_ended(server);
    if let Some(server) = servers.iter().filter(uses).find(|server| is_other(server.name())) {
        return Some(server.name().to_owned());
    }
    let holder = active_holder(disk).map(|holder| holder.server.as_str()).filter(|server| is_other(server))?;
    let holding = servers.iter().find(|server| server.name() == holder);
    (!holding.is_some_and(has_ended)).then(|| holder.to_owned())
}

/// Returns why no server can use the disk, whether it is in use or not.
pub fn unusable(disk: &DiskSummary) -> Option<Error> {
    let name = disk.name_any();
    let other = "choose another disk with `--disk NAME`, or pass `--ephemeral`";
    if is_deleting(disk) {
        return Some(Error::conflict(format!("disk {name} is being deleted")).with_hint(other));
    }
    if disk.spec.deleted {
        let hint = format!("run `devctl disk undelete {name}` to get it back, {other}");
        return Some(Error::conflict(format!("disk {name} is marked as deleted")).with_hint(hint));
    }
    None
}

/// Returns an empty disk without restore points on a schedule.
pub fn empty(name: &DiskName, size: Quantity) -> Disk {
    new(name, size, None, DiskSchedule::default())
}

pub fn new(name: &DiskName, size: Quantity, source: Option<DiskSource>, schedule: DiskSchedule) -> Disk {
    let spec = DiskSpec {
        display_name: None,
        size,
        storage_class: None,
        source,
        schedule,
        retention: DiskRetention::default(),
        deleted: false,
    };
    Disk::new(name.as_str(), spec)
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::DevServer;
    use serde_json::json;

    use super::*;
    use crate::error::Kind;

    fn disk(name: &str, display: Option<&str>) -> DiskSummary {
        let mut disk = DiskSummary::test(name, "20Gi");
        disk.spec.display_name = display.map(Into::into);
        disk
    }

    fn held(releasing: bool) -> DiskSummary {
        let since = "2026-01-01T00:00:00Z";
        let holder = json!({"server": "box", "uid": "u", "since": since,
            "releasingSince": if releasing { Some(since) } else { None }});
        let mut disk = disk("home", None);
        disk.status = serde_json::from_value(json!({"holder": holder})).unwrap();
        disk
    }

    fn server(name: &str, home: &str, phase: Phase) -> ServerSummary {
        let mut server = DevServer::test().named(name).in_phase(phase);
        server.spec.home = odc_api::v1alpha1::Home::Disk(home.parse().unwrap());
        ServerSummary::try_from(&server).unwrap()
    }

    #[test]
    fn name_wins_over_display_name() {
        let disks = [disk("home", None), disk("data", Some("home")), disk("data-2", Some("My data"))];
        assert_eq!(find("home", &disks).unwrap().name_any(), "home");
        assert_eq!(find("My data", &disks).unwrap().name_any(), "data-2");
    }

    #[test]
    fn ambiguous_display_name_lists_the_names() {
        let error = find("Data", &[disk("a", Some("Data")), disk("b", Some("Data"))]).unwrap_err();
        assert_eq!((error.kind, error.hint.as_deref()), (Kind::Usage, Some("use the name: one of a, b")));
    }

    #[test]
    fn unknown_disk_gets_a_suggestion() {
        let disks = [disk("home", None), disk("d", Some("Results"))];
        assert_eq!(find("hone", &disks).unwrap_err().hint.as_deref(), Some("did you mean home?"));
        assert_eq!(find("Result", &disks).unwrap_err().hint.as_deref(), Some("did you mean Results?"));
        assert!(find("zebra", &disks).unwrap_err().hint.unwrap().contains("devctl disk list"));
    }

    #[test]
    fn unknown_point_gets_a_suggestion() {
        let mut disk = disk("home", None);
        assert!(find_point(&disk, "x").unwrap_err().hint.unwrap().contains("devctl disk snapshot home"));
        disk.status =
            serde_json::from_value(json!({"points": [{"name": "home-1a", "reason": "Stop", "consistency": "Clean"}]}))
                .unwrap();
        assert_eq!(find_point(&disk, "home-1a").unwrap().name.as_str(), "home-1a");
        let error = find_point(&disk, "home-1b").unwrap_err();
        assert_eq!(error.kind, Kind::NotFound);
        assert!(error.hint.unwrap().starts_with("did you mean home-1a?"));
    }

    #[test]
    fn running_hibernated_and_unknown_holders_use_the_disk() {
        let user = |disk: &DiskSummary, servers: &[ServerSummary]| find_user(disk, servers, None);
        assert_eq!(user(&disk("home", None), &[server("box", "home", Phase::Hibernated)]).as_deref(), Some("box"));
        assert_eq!(user(&held(false), &[server("box", "home", Phase::Running)]).as_deref(), Some("box"));
        assert_eq!(user(&held(false), &[]).as_deref(), Some("box"), "the list may be older than the holder");
        assert_eq!(user(&held(true), &[server("box", "home", Phase::Hibernated)]).as_deref(), Some("box"));
    }

    #[test]
    fn stopping_server_and_other_disks_do_not_use_the_disk() {
        let user = |disk: &DiskSummary, servers: &[ServerSummary]| find_user(disk, servers, None);
        assert_eq!(user(&held(true), &[]), None);
        for phase in [Phase::Expired, Phase::Cancelled, Phase::Failed, Phase::Stopping] {
            assert_eq!(user(&held(false), &[server("box", "home", phase)]), None, "{phase}");
        }
        assert_eq!(user(&disk("home", None), &[server("box", "data", Phase::Running)]), None);
        assert_eq!(find_user(&held(false), &[server("box", "home", Phase::Running)], Some("box")), None);
    }

    #[test]
    fn deleted_disk_is_unusable_with_the_way_back() {
        let mut deleted = disk("home", None);
        assert_eq!(unusable(&deleted), None);
        deleted.spec.deleted = true;
        let error = unusable(&deleted).unwrap();
        assert_eq!(error.kind, Kind::Conflict);
        assert!(error.hint.unwrap().contains("devctl disk undelete home"));
    }
}
