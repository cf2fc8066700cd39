//! Leader election against a fake API server.

use serde_json::{Value, json};

use super::*;
use crate::fake::{self, FakeApiServer, RecordedRequest};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/odc-system/leases";

/// An API server with this Lease, a flavor without status, and servers admitted in these epochs, one per page.
fn cluster(lease: Option<Value>, epochs: &[i64]) -> FakeApiServer {
    cluster_with(lease, epochs, &Value::Null)
}

fn cluster_with(mut lease: Option<Value>, epochs: &[i64], flavor_status: &Value) -> FakeApiServer {
    let flavors = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavorList", "metadata": {},
        "items": [{"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": "cpu"},
            "spec": {"resources": {"per": "Server", "cpu": "1", "memory": "1Gi"}}, "status": flavor_status}]});
    let admissions: Vec<Value> = epochs.iter().map(|epoch| json!({"epoch": epoch})).collect();
    let mut version = 10;
    fake::api_server(move |request: &RecordedRequest| {
        version += 1;
        if request.path.ends_with("/devserverflavors") {
            return (200, flavors.clone());
        }
        if !request.path.starts_with(LEASE) {
            let page: usize = request.query("continue").map_or(0, |token| token.parse().unwrap());
            let items: Vec<Value> = admissions
                .iter()
                .skip(page)
                .take(1)
                .map(|admission| {
                    json!({
                "apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "metadata": {"name": "a"},
                "spec": "invalid", "status": {"admission": admission}})
                })
                .collect();
            let more = (page + 1 < admissions.len()).then(|| (page + 1).to_string());
            return (
                200,
                json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerList", "items": items,
                "metadata": {"continue": more}}),
            );
        }
        match (request.method.as_str(), &lease) {
            ("GET", Some(lease)) => (200, lease.clone()),
            // As Kubernetes: a PUT creates a missing object unless it names a uid.
            ("PUT", None) if request.body["metadata"]["uid"].is_string() => (409, Value::Null),
            ("POST" | "PUT", None) | ("PUT", Some(_)) => {
                let mut stored = request.body.clone();
                stored["metadata"]["resourceVersion"] = version.to_string().into();
                lease = Some(stored.clone());
                (201, stored)
            }
            ("POST", Some(_)) => (409, Value::Null),
            _ => (404, Value::Null),
        }
    })
}

fn lease(holder: Option<&str>, epoch: Option<i64>) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "odc-operator", "resourceVersion": "7"},
        "spec": {"holderIdentity": holder, "leaseTransitions": epoch, "leaseDurationSeconds": 15}})
}

fn elector(cluster: &FakeApiServer) -> LeaderElector {
    LeaderElector::new(&cluster.client, "odc-system", "odc-operator", "self".into())
}

fn lease_version() -> LeaseVersion {
    LeaseVersion { uid: Some("l".into()), resource_version: Some("7".into()) }
}

fn long_ago() -> Instant {
    Instant::now().checked_sub(LEASE_DURATION).unwrap()
}

fn epoch(attempt: AcquireResult) -> i64 {
    match attempt {
        AcquireResult::Acquired(leadership) => leadership.epoch,
        AcquireResult::HeldByOther(remaining) => panic!("held for {remaining:?}"),
    }
}

#[tokio::test]
async fn first_leader_acquires_at_once() {
    let cluster = cluster(None, &[]);
    assert_eq!(epoch(elector(&cluster).try_acquire(&mut Observed::default()).await.unwrap()), 1);
}

#[tokio::test]
async fn previous_leader_without_admissions_delays_acquisition() {
    let cluster = cluster_with(None, &[], &json!({"total": 8, "free": 8}));
    let first = elector(&cluster).try_acquire(&mut Observed::default()).await.unwrap();
    assert!(matches!(first, AcquireResult::HeldByOther(_)), "{first:?}");
    let mut observed = Observed::default();
    observed.observe_version(None, long_ago());
    assert_eq!(epoch(elector(&cluster).try_acquire(&mut observed).await.unwrap()), 2);
}

#[tokio::test]
async fn deleted_lease_does_not_reset_epoch() {
    let cluster = cluster(None, &[3, 9, 4]);
    let mut observed = Observed::default();
    // The leader of the highest epoch may still be active.
    let first = elector(&cluster).try_acquire(&mut observed).await.unwrap();
    assert!(matches!(first, AcquireResult::HeldByOther(_)), "{first:?}");
    let mut observed = Observed::default();
    observed.observe_version(None, long_ago());
    assert_eq!(epoch(elector(&cluster).try_acquire(&mut observed).await.unwrap()), 10);
}

#[tokio::test]
async fn observed_epoch_outlives_the_lease() {
    let cluster = cluster(None, &[3]);
    let mut observed = Observed::default();
    observed.observe_epoch(12);
    observed.observe_version(None, long_ago());
    assert_eq!(epoch(elector(&cluster).try_acquire(&mut observed).await.unwrap()), 13);
}

#[tokio::test]
async fn epoch_of_lease_is_used_if_valid() {
    for (stored, expect) in [(Some(5), 6), (None, 10), (Some(0), 10), (Some(-3), 10)] {
        let cluster = cluster(Some(lease(None, stored)), &[9]);
        let attempt = elector(&cluster).try_acquire(&mut Observed::default()).await.unwrap();
        assert_eq!(epoch(attempt), expect, "{stored:?}");
    }
}

#[tokio::test]
async fn unknown_holder_keeps_its_lease_duration() {
    let cluster = cluster(Some(lease(Some("unknown"), Some(5))), &[]);
    let mut observed = Observed::default();
    let first = elector(&cluster).try_acquire(&mut observed).await.unwrap();
    assert!(matches!(first, AcquireResult::HeldByOther(_)), "{first:?}");
    let mut observed = Observed::default();
    observed.observe_version(Some("7"), long_ago());
    assert_eq!(epoch(elector(&cluster).try_acquire(&mut observed).await.unwrap()), 6);
}

#[tokio::test]
async fn leader_of_deleted_lease_recreates_it_with_its_epoch() {
    let cluster = cluster(None, &[]);
    let leadership = Leadership::new(8, lease_version(), Instant::now());
    elector(&cluster).renew_until_lost(&leadership).await;
    assert!(leadership.ensure_leader().is_err());
    let written = cluster.requests().into_iter().rfind(|request| request.method == "POST").unwrap();
    assert_eq!(
        (&written.body["spec"]["leaseTransitions"], &written.body["spec"]["holderIdentity"]),
        (&json!(8), &Value::Null)
    );
    assert_eq!(epoch(elector(&cluster).try_acquire(&mut Observed::default()).await.unwrap()), 9);
}

#[tokio::test(start_paused = true)]
async fn leadership_ends_at_renew_deadline() {
    let now = Instant::now();
    assert!(Leadership::new(1, LeaseVersion::default(), now).ensure_leader().is_ok());
    let old = Leadership::new(1, LeaseVersion::default(), now.checked_sub(RENEW_DEADLINE).unwrap());
    assert!(old.is_over() && old.ensure_leader().is_err());
    old.extend(now);
    assert!(!old.is_over() && old.ensure_leader().is_ok());
    old.release().await;
    assert!(old.is_over() && old.ensure_leader().is_err());
}

/// How leadership ends.
#[derive(Clone, Copy, Debug)]
enum End {
    LeaseDeleted,
    Shutdown { lease_exists: bool },
}

#[tokio::test(start_paused = true)]
async fn lease_is_released_after_pending_writes() {
    for end in [End::LeaseDeleted, End::Shutdown { lease_exists: true }, End::Shutdown { lease_exists: false }] {
        for (wrote, expected) in [(true, REQUEST_TIMEOUT), (false, Duration::ZERO)] {
            let lease_exists = matches!(end, End::Shutdown { lease_exists: true });
            let cluster = cluster(lease_exists.then(|| lease(Some("self"), Some(8))), &[]);
            let leadership = Leadership::new(8, lease_version(), Instant::now());
            // A query does not count as a write.
            assert!(!leadership.is_over());
            if wrote {
                leadership.ensure_leader().unwrap();
            }
            let started = tokio::time::Instant::now();
            let waited = match end {
                End::LeaseDeleted => {
                    elector(&cluster).renew_until_lost(&leadership).await;
                    started.elapsed().checked_sub(RETRY_PERIOD).unwrap()
                }
                End::Shutdown { .. } => {
                    elector(&cluster).release(&leadership).await.unwrap();
                    started.elapsed()
                }
            };
            // Tokio's clock is paused except for sleeps; `Instant` is not.
            let second = Duration::from_secs(1);
            let range = expected.saturating_sub(second)..expected + second;
            assert!(range.contains(&waited), "{end:?} {wrote}: {waited:?}");
            let written = cluster.requests().into_iter().rfind(RecordedRequest::is_write).unwrap();
            assert_eq!(written.body["spec"]["holderIdentity"], Value::Null, "{end:?}");
        }
    }
}

#[test]
fn request_timeout_is_shorter_than_the_gap_between_leaders() {
    assert!(REQUEST_TIMEOUT < LEASE_DURATION.checked_sub(RENEW_DEADLINE).unwrap());
}
