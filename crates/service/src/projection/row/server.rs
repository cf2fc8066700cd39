//! Rows of servers.

use jiff::Timestamp;
use kube::api::DynamicObject;
use odc_api::v1alpha1::{DevServer, Home, Phase};
use odc_core::usage;
use odc_store::projection::{DevServerRow, IntervalRow, TimelineRow};

use super::cluster_object::Flavors;
use super::{InvalidObject, copied, parse, timestamp};

/// The rows of one server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerRows {
    pub server: DevServerRow,
    pub timeline: Vec<TimelineRow>,
    pub intervals: Vec<IntervalRow>,
    /// The time by which stored intervals without an end have ended.
    pub ended_by: Option<Timestamp>,
}

pub fn server(object: &DynamicObject, flavors: &Flavors) -> Result<ServerRows, InvalidObject> {
    let (value, DevServer { spec, status, .. }) = parse(object)?;
    let copied = copied(object, value)?;
    let status = status.unwrap_or_default();
    let flavor = status.flavor.as_ref().or(spec.flavor.as_ref()).map(ToString::to_string);
    let facts = flavors.get(flavor.as_deref().unwrap_or_default());
    let nodes = spec.nodes.max(1);
    let devices = spec.count.unwrap_or_else(|| u32::from(facts.has_devices)).saturating_mul(nodes);
    let team = spec.team.as_ref().map(ToString::to_string);
    let usage = usage::from_timeline(&status.timeline);
    let interval = |interval: &usage::Interval| IntervalRow {
        server_uid: copied.uid,
        started_at: interval.started_at,
        ended_at: interval.ended_at,
        continued: interval.continued,
        user_name: copied.user_name.clone(),
        team: team.clone(),
        flavor: flavor.clone().unwrap_or_default(),
        devices,
        nodes,
        price_per_device_hour_millionths: facts.price_millionths,
    };
    let intervals = usage.intervals.iter().map(interval).collect();
    let timeline = status.timeline.iter().map(|entry| TimelineRow {
        server_uid: copied.uid,
        at: entry.at.0,
        phase: entry.phase.to_string(),
        reason: entry.reason.to_string(),
    });
    let timeline = timeline.collect();
    let server = DevServerRow {
        team,
        flavor,
        devices,
        nodes,
        phase: status.phase.unwrap_or(Phase::Pending).to_string(),
        disk_name: match &spec.home {
            Home::Disk(name) => Some(name.to_string()),
            Home::Claim(_) | Home::Ephemeral(_) => None,
        },
        started_at: timestamp(status.started_at.as_ref()),
        expires_at: timestamp(status.expires_at.as_ref()),
        finished_at: timestamp(status.finished_at.as_ref()),
        failure_reason: status.last_failure.map(|failure| failure.reason.to_string()),
        oom_kills: status.oom_kills.unwrap_or_default(),
        copied,
    };
    Ok(ServerRows { server, timeline, intervals, ended_by: usage.ended_by })
}

#[cfg(test)]
mod tests {
    use odc_api::fixtures::time;
    use odc_api::v1alpha1::condition::Reason;
    use odc_api::v1alpha1::{DevServerFlavor, TimelineEntry};

    use super::super::tests::{UID, dynamic};
    use super::*;

    fn flavors() -> Flavors {
        let mut flavor = DevServerFlavor::test();
        flavor.spec.price_per_device_hour = Some("2.50".parse().unwrap());
        let mut flavors = Flavors::default();
        flavors.insert(&dynamic(&flavor));
        flavors
    }

    fn running() -> DevServer {
        DevServer::test().size("flavor-gpu", 4, 2).in_phase(Phase::Running).status(|status| {
            status.timeline = vec![
                TimelineEntry::new(Phase::Queued, time("2026-01-01T00:00:01Z"), Reason::InsufficientCapacity),
                TimelineEntry::new(Phase::Running, time("2026-01-01T00:00:05Z"), Reason::Running),
            ];
            status.expires_at = Some(time("2026-01-01T08:00:05Z"));
        })
    }

    #[test]
    fn server_has_its_devices_on_all_nodes_and_the_price_of_its_flavor() {
        let rows = server(&dynamic(&running()), &flavors()).unwrap();
        let interval = &rows.intervals[0];
        assert_eq!((rows.server.devices, rows.server.nodes), (8, 2));
        assert_eq!((interval.devices, interval.price_per_device_hour_millionths), (8, 2_500_000));
        assert_eq!(interval.started_at, time("2026-01-01T00:00:05Z").0);
        assert_eq!((interval.ended_at, interval.continued), (None, false));
        assert_eq!(interval.server_uid.to_string(), UID);
    }

    #[test]
    fn server_without_a_count_has_one_device_if_its_flavor_has_devices() {
        let mut one = running();
        one.spec.count = None;
        assert_eq!(server(&dynamic(&one), &flavors()).unwrap().server.devices, 2);
        assert_eq!(server(&dynamic(&one), &Flavors::default()).unwrap().server.devices, 0);
    }

    #[test]
    fn timeline_and_status_are_copied() {
        let rows = server(&dynamic(&running()), &flavors()).unwrap();
        let phases: Vec<_> = rows.timeline.iter().map(|row| (row.phase.as_str(), row.reason.as_str())).collect();
        assert_eq!(phases, [("Queued", "InsufficientCapacity"), ("Running", "Running")]);
        assert_eq!((rows.server.phase.as_str(), rows.server.disk_name), ("Running", None));
        assert_eq!(rows.server.expires_at, Some(time("2026-01-01T08:00:05Z").0));
        assert_eq!(rows.server.copied.object["metadata"]["name"], "server-1");
    }

    #[test]
    fn new_server_is_pending() {
        let rows = server(&dynamic(&DevServer::test()), &flavors()).unwrap();
        assert_eq!(rows.server.phase, "Pending");
        assert_eq!(rows.server.flavor.as_deref(), Some("flavor-gpu"));
        assert!(rows.timeline.is_empty() && rows.intervals.is_empty());
    }
}
