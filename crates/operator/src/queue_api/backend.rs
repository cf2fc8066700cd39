//! The queue backend on the planner: answers queries from the queue after the last plan.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use odc_api::mount_path::InvalidMountPath;
use odc_api::name::FlavorName;
use odc_api::quantity::Quantity;
use odc_api::queue::{
    Availability, AvailableSize, DelayedStart, DryRunSpec, DryRunStatus, EtaCalibration, HeartbeatServer,
    PendingServer, PlannedStart, Queue, QueueEntry, StartChange, StartEstimate, WhatIfSpec, WhatIfStatus,
};
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::{
    DevServer, DevServerFlavor, DevServerSpec, Home, Idle, IdleAction, MAX_COUNT, MAX_NODES, Scheduling, Volume,
};
use odc_core::admission::queue_view::{self, DryRunOutcome, QueuePosition, QueueView, QuotaOverrides, StartTime};
use odc_core::scheduler::{self, Eta, Server};
use odc_core::time;

use super::QueueBackend;
use crate::context::Context;
use crate::devserver;
use crate::scheduler::snapshot;

/// Common device counts on one node.
const DEVICE_COUNTS: [u32; 4] = [1, 2, 4, 8];
/// Common node counts of gangs.
const GANG_SIZES: [u32; 5] = [2, 3, 4, 5, 6];

/// The size of the ephemeral home of a dry run without a claim.
const HYPOTHETICAL_HOME_SIZE: Quantity = Quantity::whole(1 << 30);

pub struct PlannerBackend(pub Arc<Context>);

impl PlannerBackend {
    fn queue_view(&self) -> Arc<QueueView> {
        self.0.planner.blocking_lock().queue_view()
    }

    /// Estimates when a server of the user of a namespace would start.
    fn estimate(&self, queue: &QueueView, namespace: &str, request: &DryRunSpec) -> Result<DryRunOutcome, String> {
        validate_size(request)?;
        let server = to_server(namespace, request).map_err(|error| error.to_string())?;
        Ok(queue.dry_run(&snapshot::hypothetical_server(&self.0, &server)?, self.0.now()))
    }
}

impl QueueBackend for PlannerBackend {
    fn is_ready(&self) -> bool {
        self.queue_view().has_plan()
    }

    fn queues(&self) -> Vec<Queue> {
        let queue_view = self.queue_view();
        let positions = queue_view.positions();
        let flavors = self.0.cluster.flavors.by_name();
        let queue = |flavor: &FlavorName| {
            let of_flavor = positions.iter().filter(|position| position.server.flavor == flavor.as_str());
            Queue {
                metadata: metadata(flavor.as_str(), None),
                pending: of_flavor.filter_map(pending_server).collect(),
                calibration: queue_view.eta_calibration(flavor.as_str()).map(calibration).unwrap_or_default(),
            }
        };
        flavors.keys().map(queue).collect()
    }

    fn entries(&self, namespace: Option<&str>) -> Vec<QueueEntry> {
        let queue_view = self.queue_view();
        let matches = |server: &Server| {
            namespace.is_none_or(|wanted| server.name.split_once('/').is_some_and(|(namespace, _)| namespace == wanted))
        };
        let positions = queue_view.positions_where(matches);
        let entries = positions.iter().filter_map(|position| {
            let (namespace, name) = position.server.name.split_once('/')?;
            Some(QueueEntry {
                metadata: metadata(name, Some(namespace)),
                flavor: position.server.flavor.parse().ok(),
                count: devices_per_node(position),
                nodes: position.server.request.nodes,
                priority: Some(position.server.priority),
                position: position.position.map(i64::from),
                queued_at: Some(api_time(position.server.queued_at)),
                not_before: position.server.not_before.map(api_time),
                start: start_estimate(position.eta),
                delayed: position.delayed.map(delayed_start),
                reason: Some(position.reason.to_string()),
                message: Some(position.message.clone()),
            })
        });
        entries.collect()
    }

    fn availabilities(&self, namespace: &str, flavor: Option<&str>) -> Vec<Availability> {
        let queue_view = self.queue_view();
        let flavors = self.0.cluster.flavors.by_name();
        let selected = flavors.iter().filter(|(name, _)| flavor.is_none_or(|flavor| flavor == name.as_str()));
        let availability = |(name, flavor): (&FlavorName, &Arc<DevServerFlavor>)| {
            let size = |(count, nodes): (u32, u32)| {
                let request = DryRunSpec {
                    flavor: Some(name.clone()),
                    count: Some(count),
                    nodes: Some(nodes),
                    ..DryRunSpec::default()
                };
                let (start, message) = match self.estimate(&queue_view, namespace, &request) {
                    Ok(DryRunOutcome::Admitted) => (start_now(), None),
                    Ok(DryRunOutcome::Pending { eta, message, .. }) => (start_estimate(eta), Some(message)),
                    Err(message) => (StartEstimate::default(), Some(message)),
                };
                AvailableSize { count, nodes, start, message }
            };
            Availability {
                metadata: metadata(name.as_str(), Some(namespace)),
                sizes: sizes(flavor).into_iter().map(size).collect(),
            }
        };
        selected.map(availability).collect()
    }

    fn dry_run(&self, namespace: &str, request: &DryRunSpec) -> Result<DryRunStatus, String> {
        Ok(match self.estimate(&self.queue_view(), namespace, request)? {
            DryRunOutcome::Admitted => DryRunStatus { start: start_now(), ..DryRunStatus::default() },
            DryRunOutcome::Pending { position, eta, reason, message } => DryRunStatus {
                start: start_estimate(eta),
                position: position.map(i64::from),
                reason: Some(reason.to_string()),
                message: Some(message),
            },
        })
    }

    fn what_if(&self, request: WhatIfSpec) -> Result<WhatIfStatus, String> {
        let queue_view = self.queue_view();
        let WhatIfSpec { teams, users } = request;
        let changes = queue_view.compare_starts(&QuotaOverrides { users, teams }, self.0.now())?;
        let pending = u64::try_from(queue_view.pending_count()).unwrap_or(u64::MAX);
        Ok(WhatIfStatus { pending, changes: changes.iter().filter_map(start_change).collect() })
    }

    fn heartbeat(&self, servers: &[HeartbeatServer]) -> u64 {
        let running = servers.iter().filter(|server| devserver::heartbeat(&self.0, &server.namespace, &server.name));
        u64::try_from(running.count()).unwrap_or(u64::MAX)
    }
}

fn start_change(change: &queue_view::StartChange<'_>) -> Option<StartChange> {
    let planned = |start: StartTime| match start {
        StartTime::Now => PlannedStart { now: true, at: None },
        StartTime::At(at) => PlannedStart { now: false, at: Some(api_time(at)) },
        StartTime::Unknown => PlannedStart::default(),
    };
    let (namespace, name) = change.server.name.split_once('/')?;
    Some(StartChange {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        before: planned(change.before),
        after: planned(change.after),
    })
}

/// Returns the common sizes that a flavor offers: fractions of a node, then gangs of whole nodes.
fn sizes(flavor: &DevServerFlavor) -> Vec<(u32, u32)> {
    let Some(device) = &flavor.spec.device else { return vec![(0, 1)] };
    let offered = |count: u32| device.counts.is_empty() || device.counts.contains(&count);
    let mut counts: Vec<u32> = DEVICE_COUNTS
        .into_iter()
        .chain([device.per_node])
        .filter(|count| *count <= device.per_node && offered(*count))
        .collect();
    counts.sort_unstable();
    counts.dedup();
    let whole = counts.last().copied().filter(|count| *count == device.per_node);
    let gangs = whole.into_iter().flat_map(|count| GANG_SIZES.map(|nodes| (count, nodes)));
    counts.iter().map(|count| (*count, 1)).chain(gangs).collect()
}

/// Checks the bounds of the CRD, which the API server enforces only for stored objects.
fn validate_size(request: &DryRunSpec) -> Result<(), String> {
    if !request.nodes.is_none_or(|nodes| (1..=MAX_NODES).contains(&nodes)) {
        return Err(format!("nodes must be between 1 and {MAX_NODES}."));
    }
    if request.count.is_some_and(|count| count > MAX_COUNT) {
        return Err(format!("count must be at most {MAX_COUNT}."));
    }
    Ok(())
}

/// Converts a dry run to a server with the API's defaults.
fn to_server(namespace: &str, request: &DryRunSpec) -> Result<DevServer, InvalidMountPath> {
    let DryRunSpec {
        flavor,
        count,
        nodes,
        lifetime,
        team,
        priority,
        preemptible,
        node_labels,
        not_before,
        home_claim,
        claims,
    } = request.clone();
    let volumes = claims.into_iter().enumerate().map(|(index, claim)| {
        let path = format!("/volumes/{index}").parse()?;
        Ok(Volume { claim, path, read_only: false })
    });
    let defaults = DevServerSpec::new(home_claim.map_or(Home::Ephemeral(HYPOTHETICAL_HOME_SIZE), Home::Claim));
    let spec = DevServerSpec {
        team,
        flavor,
        count,
        nodes: nodes.unwrap_or(defaults.nodes),
        lifetime: lifetime.unwrap_or(defaults.lifetime),
        idle: Idle { action: IdleAction::None, ..Idle::default() },
        volumes: volumes.collect::<Result<_, _>>()?,
        scheduling: Scheduling { priority, preemptible, node_labels, not_before },
        ..defaults
    };
    let mut server = DevServer::new("dry-run", spec);
    (server.metadata.namespace, server.metadata.uid) = (Some(namespace.to_owned()), Some("dry-run".to_owned()));
    Ok(server)
}

fn metadata(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: namespace.map(str::to_owned), ..ObjectMeta::default() }
}

fn start_now() -> StartEstimate {
    StartEstimate { now: true, ..StartEstimate::default() }
}

fn start_estimate(eta: Option<Eta>) -> StartEstimate {
    eta.map_or_else(StartEstimate::default, |eta| StartEstimate {
        now: false,
        p50: Some(api_time(eta.p50)),
        p90: Some(api_time(eta.p90)),
        latest: eta.latest.map(api_time),
    })
}

fn delayed_start(delayed: &scheduler::DelayedStart) -> DelayedStart {
    DelayedStart {
        from: api_time(delayed.from),
        to: delayed.to.map(api_time),
        reason: delayed.cause.as_str().to_owned(),
        message: delayed.cause.message().to_owned(),
    }
}

fn api_time(second: i64) -> Time {
    to_api_precision(time::from_second(second))
}

fn devices_per_node(position: &QueuePosition<'_>) -> u32 {
    let request = &position.server.request;
    let devices = request.devices() / i64::from(request.nodes.max(1));
    u32::try_from(devices).unwrap_or_default()
}

/// Returns `None` for a booking whose start time has not come; it has no position and is private.
fn pending_server(position: &QueuePosition<'_>) -> Option<PendingServer> {
    Some(PendingServer {
        position: position.position?.into(),
        count: devices_per_node(position),
        nodes: position.server.request.nodes,
        priority: position.server.priority,
        queued_at: api_time(position.server.queued_at),
        start: start_estimate(position.eta),
    })
}

fn calibration(calibration: &scheduler::EtaCalibration) -> EtaCalibration {
    let [within_p50, within_p90] = calibration.within_estimate.map(u64::from);
    EtaCalibration { estimates: calibration.estimate_count.into(), within_p50, within_p90 }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::Priority;
    use serde_json::json;

    use super::*;

    #[test]
    fn dry_run_is_converted_to_a_server() {
        let request = DryRunSpec {
            flavor: "gpu".parse().ok(),
            count: Some(4),
            priority: Some(Priority::Low),
            preemptible: true,
            node_labels: [("zone".to_owned(), "a".to_owned())].into(),
            not_before: Some(api_time(1_800_000_000)),
            home_claim: "home".parse().ok(),
            claims: vec!["data".parse().unwrap()],
            ..DryRunSpec::default()
        };
        let server = to_server("dev-ada", &request).unwrap();
        assert_eq!(server.metadata.namespace.as_deref(), Some("dev-ada"));
        assert_eq!((server.spec.count, server.spec.nodes), (Some(4), 1));
        assert_eq!(server.spec.scheduling.priority, Some(Priority::Low));
        assert!(server.spec.scheduling.preemptible);
        assert_eq!(server.spec.scheduling.node_labels, request.node_labels);
        assert_eq!(server.spec.scheduling.not_before, request.not_before);
        assert_eq!(server.spec.home, Home::Claim("home".parse().unwrap()));
        assert_eq!(server.spec.volumes[0].claim.as_str(), "data");
        assert_eq!(server.spec.lifetime, odc_api::duration::Duration::hours(8));
    }

    #[test]
    fn sizes_outside_the_crd_bounds_are_rejected() {
        let is_valid = |count, nodes| validate_size(&DryRunSpec { count, nodes, ..DryRunSpec::default() }).is_ok();
        assert!(is_valid(None, None) && is_valid(Some(128), Some(64)));
        assert!(!is_valid(None, Some(0)) && !is_valid(None, Some(65)) && !is_valid(Some(u32::MAX), None));
    }

    #[test]
    fn sizes_are_limited_to_offered_counts() {
        let mut flavor = DevServerFlavor::test();
        flavor.spec.device = None;
        assert_eq!(sizes(&flavor), [(0, 1)]);
        let device = json!({"resource": "nvidia.com/gpu", "perNode": 8});
        flavor.spec.device = Some(serde_json::from_value(device).unwrap());
        assert_eq!(sizes(&flavor), [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 3), (8, 4), (8, 5), (8, 6)]);
        let device = json!({"resource": "nvidia.com/gpu", "perNode": 6, "counts": [2, 3]});
        flavor.spec.device = Some(serde_json::from_value(device).unwrap());
        assert_eq!(sizes(&flavor), [(2, 1)]);
    }
}
