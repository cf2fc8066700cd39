//! Answers from how the queue stood after its last pass.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use odc_api::name::FlavorName;
use odc_api::queue::{
    Availability, Calibration, Difference, DryRunSpec, DryRunStatus, Moved, Planned, Queue, QueueEntry, Size, Start,
    Waiting, WhatIfSpec, WhatIfStatus,
};
use odc_api::time::stored;
use odc_api::v1alpha1::{DevServer, DevServerFlavor};
use odc_core::grants::outlook::{self, Change, Outlook, Prospect, Quotas, Standing};
use odc_core::scheduler::{self, Eta, Promises, Server};
use serde_json::json;

use super::Answers;
use crate::context::Context;
use crate::snapshot;

/// Devices on one node, as people ask for them.
const COUNTS: [u32; 4] = [1, 2, 4, 8];
/// Nodes of gangs, as people ask for them.
const GANGS: [u32; 5] = [2, 3, 4, 5, 6];

pub struct Live(pub Arc<Context>);

impl Live {
    fn outlook(&self) -> Arc<Outlook> {
        self.0.plans.blocking_lock().outlook()
    }

    /// What would become of such a server, asked for by the user of a namespace.
    fn ask(&self, outlook: &Outlook, namespace: &str, asked: &DryRunSpec) -> Result<Prospect, String> {
        possible(asked)?;
        let server = hypothetical(namespace, asked).map_err(|error| error.to_string())?;
        Ok(outlook.ask(&snapshot::asked(&self.0, &server)?, self.0.now()))
    }
}

impl Answers for Live {
    fn are_there(&self) -> bool {
        self.outlook().is_of_a_plan()
    }

    fn queues(&self) -> Vec<Queue> {
        let outlook = self.outlook();
        let standings = outlook.standings();
        let flavors = self.0.cluster.flavors.all();
        let queue = |flavor: &FlavorName| {
            let here = standings.iter().filter(|standing| standing.server.flavor == flavor.as_str());
            Queue {
                metadata: named(flavor.as_str(), None),
                waiting: here.filter_map(waiting).collect(),
                calibration: outlook.promises(flavor.as_str()).map(calibration).unwrap_or_default(),
            }
        };
        flavors.keys().map(queue).collect()
    }

    fn entries(&self, namespace: Option<&str>) -> Vec<QueueEntry> {
        let outlook = self.outlook();
        let is_there = |server: &Server| {
            namespace.is_none_or(|wanted| server.name.split_once('/').is_some_and(|(place, _)| place == wanted))
        };
        let wanted = outlook.standings_of(is_there);
        let entries = wanted.iter().filter_map(|standing| {
            let (place, name) = standing.server.name.split_once('/')?;
            Some(QueueEntry {
                metadata: named(name, Some(place)),
                flavor: standing.server.flavor.parse().ok(),
                count: count(standing),
                nodes: standing.server.ask.nodes,
                priority: Some(standing.server.priority),
                position: standing.position.map(i64::from),
                queued_at: Some(stored(second(standing.server.queued))),
                not_before: standing.server.not_before.map(|at| stored(second(at))),
                start: start(standing.eta),
                moved: standing.moved.map(moved),
                reason: Some(standing.reason.to_string()),
                message: Some(standing.message.clone()),
            })
        });
        entries.collect()
    }

    fn availabilities(&self, namespace: &str, only: Option<&str>) -> Vec<Availability> {
        let outlook = self.outlook();
        let flavors = self.0.cluster.flavors.all();
        let wanted = flavors.iter().filter(|(name, _)| only.is_none_or(|only| only == name.as_str()));
        let availability = |(name, flavor): (&FlavorName, &Arc<DevServerFlavor>)| {
            let size = |(count, nodes): (u32, u32)| {
                let asked = DryRunSpec {
                    flavor: Some(name.clone()),
                    count: Some(count),
                    nodes: Some(nodes),
                    ..DryRunSpec::default()
                };
                let (start, message) = match self.ask(&outlook, namespace, &asked) {
                    Ok(Prospect::Now) => (now(), None),
                    Ok(Prospect::Later { eta, message, .. }) => (start(eta), Some(message)),
                    Err(message) => (Start::default(), Some(message)),
                };
                Size { count, nodes, start, message }
            };
            Availability {
                metadata: named(name.as_str(), Some(namespace)),
                sizes: sizes(flavor).into_iter().map(size).collect(),
            }
        };
        wanted.map(availability).collect()
    }

    fn dry_run(&self, namespace: &str, asked: &DryRunSpec) -> Result<DryRunStatus, String> {
        Ok(match self.ask(&self.outlook(), namespace, asked)? {
            Prospect::Now => DryRunStatus { start: now(), ..DryRunStatus::default() },
            Prospect::Later { position, eta, reason, message } => DryRunStatus {
                start: start(eta),
                position: position.map(i64::from),
                reason: Some(reason.to_string()),
                message: Some(message),
            },
        })
    }

    fn what_if(&self, asked: WhatIfSpec) -> Result<WhatIfStatus, String> {
        let outlook = self.outlook();
        let WhatIfSpec { teams, users } = asked;
        let changes = outlook.what_if(&Quotas { users, teams }, self.0.now())?;
        let waiting = u64::try_from(outlook.length()).unwrap_or(u64::MAX);
        Ok(WhatIfStatus { waiting, changes: changes.iter().filter_map(difference).collect() })
    }
}

fn difference(change: &Change<'_>) -> Option<Difference> {
    let planned = |start: outlook::Planned| match start {
        outlook::Planned::Now => Planned { now: true, at: None },
        outlook::Planned::At(at) => Planned { now: false, at: Some(stored(second(at))) },
        outlook::Planned::Unknown => Planned::default(),
    };
    let (namespace, name) = change.server.name.split_once('/')?;
    Some(Difference {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        before: planned(change.before),
        after: planned(change.after),
    })
}

/// The sizes people ask for most: parts of a node, then whole nodes together.
fn sizes(flavor: &DevServerFlavor) -> Vec<(u32, u32)> {
    let Some(device) = &flavor.spec.device else { return vec![(0, 1)] };
    let offered = |count: u32| device.counts.is_empty() || device.counts.contains(&count);
    let mut counts: Vec<u32> = COUNTS
        .into_iter()
        .chain([device.per_node])
        .filter(|count| *count <= device.per_node && offered(*count))
        .collect();
    counts.sort_unstable();
    counts.dedup();
    let whole = counts.last().copied().filter(|count| *count == device.per_node);
    let gangs = whole.into_iter().flat_map(|count| GANGS.map(|nodes| (count, nodes)));
    counts.iter().map(|count| (*count, 1)).chain(gangs).collect()
}

/// The bounds of a server's own definition, which the API server checks only for what is stored.
fn possible(asked: &DryRunSpec) -> Result<(), String> {
    if !asked.nodes.is_none_or(|nodes| (1..=64).contains(&nodes)) {
        return Err("Ask for 1 to 64 nodes.".to_owned());
    }
    if asked.count.is_some_and(|count| count > 128) {
        return Err("Ask for at most 128 devices on each node.".to_owned());
    }
    Ok(())
}

/// A server that asks for it, with what it says nothing about as for any other.
fn hypothetical(namespace: &str, asked: &DryRunSpec) -> serde_json::Result<DevServer> {
    let mut spec = serde_json::to_value(asked)?;
    let mut scheduling = serde_json::Map::new();
    if let Some(fields) = spec.as_object_mut() {
        for field in ["priority", "preemptible", "nodeLabels", "notBefore"] {
            scheduling.extend(fields.remove_entry(field));
        }
        fields.retain(|field, _| !["homeClaim", "claims"].contains(&field.as_str()));
    }
    spec["scheduling"] = scheduling.into();
    spec["home"] = match &asked.home_claim {
        Some(claim) => json!({"claim": claim}),
        None => json!({"ephemeral": "1Gi"}),
    };
    let volumes = asked.claims.iter().enumerate();
    spec["volumes"] = volumes.map(|(at, claim)| json!({"claim": claim, "path": format!("/volumes/{at}")})).collect();
    spec["idle"] = json!({"action": "None"});
    serde_json::from_value(json!({
        "apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
        "metadata": {"name": "dry-run", "namespace": namespace, "uid": "dry-run"},
        "spec": spec,
    }))
}

fn named(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: namespace.map(str::to_owned), ..ObjectMeta::default() }
}

fn now() -> Start {
    Start { now: true, ..Start::default() }
}

fn start(eta: Option<Eta>) -> Start {
    eta.map_or_else(Start::default, |eta| Start {
        now: false,
        p50: Some(stored(second(eta.p50))),
        p90: Some(stored(second(eta.p90))),
        latest: eta.latest.map(|latest| stored(second(latest))),
    })
}

fn moved(moved: &scheduler::Moved) -> Moved {
    Moved {
        from: stored(second(moved.from)),
        to: moved.to.map(|to| stored(second(to))),
        reason: moved.why.as_str().to_owned(),
        message: moved.why.sentence().to_owned(),
    }
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}

fn count(standing: &Standing<'_>) -> u32 {
    let ask = &standing.server.ask;
    let each = ask.devices() / i64::from(ask.nodes.max(1));
    u32::try_from(each).unwrap_or_default()
}

/// Bookings whose time has not come are nobody else's business.
fn waiting(standing: &Standing<'_>) -> Option<Waiting> {
    Some(Waiting {
        position: standing.position?.into(),
        count: count(standing),
        nodes: standing.server.ask.nodes,
        priority: standing.server.priority,
        queued_at: stored(second(standing.server.queued)),
        start: start(standing.eta),
    })
}

fn calibration(promises: &Promises) -> Calibration {
    let [kept_p50, kept_p90] = promises.kept.map(u64::from);
    Calibration { promises: promises.given.into(), kept_p50, kept_p90 }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{Home, Priority};

    use super::*;

    #[test]
    fn a_question_becomes_a_server_like_any_other() {
        let asked = DryRunSpec {
            flavor: "gpu".parse().ok(),
            count: Some(4),
            priority: Some(Priority::Low),
            preemptible: true,
            node_labels: [("zone".to_owned(), "a".to_owned())].into(),
            not_before: Some(stored(second(1_800_000_000))),
            home_claim: "home".parse().ok(),
            claims: vec!["data".parse().unwrap()],
            ..DryRunSpec::default()
        };
        let server = hypothetical("dev-ada", &asked).unwrap();
        assert_eq!(server.metadata.namespace.as_deref(), Some("dev-ada"));
        assert_eq!((server.spec.count, server.spec.nodes), (Some(4), 1));
        assert_eq!(server.spec.scheduling.priority, Some(Priority::Low));
        assert!(server.spec.scheduling.preemptible);
        assert_eq!(server.spec.scheduling.node_labels, asked.node_labels);
        assert_eq!(server.spec.scheduling.not_before, asked.not_before);
        assert_eq!(server.spec.home, Home::Claim("home".parse().unwrap()));
        assert_eq!(server.spec.volumes[0].claim.as_str(), "data");
        assert_eq!(server.spec.lifetime, odc_api::duration::Duration::hours(8));
    }

    #[test]
    fn what_no_server_could_ask_for_is_refused() {
        let asks = |count, nodes| possible(&DryRunSpec { count, nodes, ..DryRunSpec::default() }).is_ok();
        assert!(asks(None, None) && asks(Some(128), Some(64)));
        assert!(!asks(None, Some(0)) && !asks(None, Some(65)) && !asks(Some(u32::MAX), None));
    }

    #[test]
    fn sizes_are_those_that_are_offered() {
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
