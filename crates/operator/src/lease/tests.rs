//! Candidates before an API server in miniature.

use serde_json::{Value, json};

use super::*;
use crate::fake::{self, Asked};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/odc-system/leases";

/// An API server that has this Lease, or none, a flavor of which nobody was told anything, and servers granted by these
/// epochs, of which it gives one at a time.
fn cluster(lease: Option<Value>, granted: &[i64]) -> fake::Fake {
    cluster_with(lease, granted, &Value::Null)
}

fn cluster_with(mut lease: Option<Value>, granted: &[i64], flavor: &Value) -> fake::Fake {
    let flavors = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavorList", "metadata": {},
        "items": [{"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": "cpu"},
            "spec": {"resources": {"per": "Server", "cpu": "1", "memory": "1Gi"}}, "status": flavor}]});
    let granted: Vec<Value> = granted.iter().map(|epoch| json!({"epoch": epoch})).collect();
    let mut version = 10;
    fake::answering(move |asked: &Asked| {
        version += 1;
        if asked.path.ends_with("/devserverflavors") {
            return (200, flavors.clone());
        }
        if !asked.path.starts_with(LEASE) {
            let page: usize = asked.query("continue").map_or(0, |token| token.parse().unwrap());
            let items: Vec<Value> = granted
                .iter()
                .skip(page)
                .take(1)
                .map(|admission| {
                    json!({
                "apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "metadata": {"name": "a"},
                "spec": "nobody can read it", "status": {"admission": admission}})
                })
                .collect();
            let more = (page + 1 < granted.len()).then(|| (page + 1).to_string());
            return (
                200,
                json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerList", "items": items,
                "metadata": {"continue": more}}),
            );
        }
        match (asked.method.as_str(), &lease) {
            ("GET", Some(lease)) => (200, lease.clone()),
            // As Kubernetes does: what is replaced and not there is made, unless it is named which one was meant.
            ("PUT", None) if asked.body["metadata"]["uid"].is_string() => (409, Value::Null),
            ("POST" | "PUT", None) | ("PUT", Some(_)) => {
                let mut stored = asked.body.clone();
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

fn candidate(cluster: &fake::Fake) -> Candidate {
    Candidate::new(&cluster.client, "odc-system", "odc-operator", "us".into())
}

fn long_ago() -> Instant {
    Instant::now().checked_sub(DURATION).unwrap()
}

fn number(attempt: Attempt) -> i64 {
    match attempt {
        Attempt::Leads(lead) => lead.epoch,
        Attempt::Waits(left) => panic!("it waits for {left:?}"),
    }
}

#[tokio::test]
async fn the_first_leader_of_a_cluster_waits_for_nobody() {
    let cluster = cluster(None, &[]);
    assert_eq!(number(candidate(&cluster).try_acquire(&mut Observed::default()).await.unwrap()), 1);
}

#[tokio::test]
async fn where_somebody_led_and_granted_nothing_they_are_waited_for_all_the_same() {
    let cluster = cluster_with(None, &[], &json!({"total": 8, "free": 8}));
    let first = candidate(&cluster).try_acquire(&mut Observed::default()).await.unwrap();
    assert!(matches!(first, Attempt::Waits(_)), "{first:?}");
    let mut observed = Observed::default();
    observed.note(None, long_ago());
    assert_eq!(number(candidate(&cluster).try_acquire(&mut observed).await.unwrap()), 2);
}

#[tokio::test]
async fn a_deleted_lease_does_not_set_the_number_back() {
    let cluster = cluster(None, &[3, 9, 4]);
    let mut observed = Observed::default();
    // Whoever granted that may still lead.
    let first = candidate(&cluster).try_acquire(&mut observed).await.unwrap();
    assert!(matches!(first, Attempt::Waits(_)), "{first:?}");
    let mut observed = Observed::default();
    observed.note(None, long_ago());
    assert_eq!(number(candidate(&cluster).try_acquire(&mut observed).await.unwrap()), 10);
}

#[tokio::test]
async fn who_knew_the_number_before_the_lease_was_deleted_still_does() {
    let cluster = cluster(None, &[3]);
    let mut observed = Observed::default();
    observed.led(12);
    observed.note(None, long_ago());
    assert_eq!(number(candidate(&cluster).try_acquire(&mut observed).await.unwrap()), 13);
}

#[tokio::test]
async fn the_number_of_a_lease_is_believed_unless_it_has_none() {
    for (stored, expect) in [(Some(5), 6), (None, 10), (Some(0), 10), (Some(-3), 10)] {
        let cluster = cluster(Some(lease(None, stored)), &[9]);
        let attempt = candidate(&cluster).try_acquire(&mut Observed::default()).await.unwrap();
        assert_eq!(number(attempt), expect, "{stored:?}");
    }
}

#[tokio::test]
async fn a_holder_nobody_knows_has_its_time_like_any_other() {
    let cluster = cluster(Some(lease(Some("???"), Some(5))), &[]);
    let mut observed = Observed::default();
    let first = candidate(&cluster).try_acquire(&mut observed).await.unwrap();
    assert!(matches!(first, Attempt::Waits(_)), "{first:?}");
    let mut observed = Observed::default();
    observed.note(Some("7"), long_ago());
    assert_eq!(number(candidate(&cluster).try_acquire(&mut observed).await.unwrap()), 6);
}

#[tokio::test]
async fn a_leader_whose_lease_is_gone_ends_and_leaves_its_number() {
    let cluster = cluster(None, &[]);
    let lead = Lead::new(8, Stored { uid: Some("l".into()), version: Some("7".into()) }, Instant::now());
    candidate(&cluster).keep(&lead).await;
    assert!(lead.may_write().is_err());
    let written = cluster.asked().into_iter().rfind(|asked| asked.method == "POST").unwrap();
    assert_eq!(
        (&written.body["spec"]["leaseTransitions"], &written.body["spec"]["holderIdentity"]),
        (&json!(8), &Value::Null)
    );
    assert_eq!(number(candidate(&cluster).try_acquire(&mut Observed::default()).await.unwrap()), 9);
}

#[tokio::test(start_paused = true)]
async fn a_lead_ends_by_itself() {
    let now = Instant::now();
    assert!(Lead::new(1, Stored::default(), now).may_write().is_ok());
    let old = Lead::new(1, Stored::default(), now.checked_sub(RENEW_DEADLINE).unwrap());
    assert!(old.is_over() && old.may_write().is_err());
    old.renewed(now);
    assert!(!old.is_over() && old.may_write().is_ok());
    old.end().await;
    assert!(old.is_over() && old.may_write().is_err());
}

/// What a leader is asked to do, or finds, that lets the next one begin.
#[derive(Clone, Copy, Debug)]
enum Leave {
    /// Somebody deleted the Lease.
    Deleted,
    /// It was asked to stop, and its Lease is there or not.
    Asked { lease: bool },
}

#[tokio::test(start_paused = true)]
async fn nobody_may_begin_while_something_is_under_way() {
    for leave in [Leave::Deleted, Leave::Asked { lease: true }, Leave::Asked { lease: false }] {
        for (wrote, least) in [(true, REQUEST_LIMIT), (false, Duration::ZERO)] {
            let there = matches!(leave, Leave::Asked { lease: true });
            let cluster = cluster(there.then(|| lease(Some("us"), Some(8))), &[]);
            let lead = Lead::new(8, Stored { uid: Some("l".into()), version: Some("7".into()) }, Instant::now());
            // To ask is not to write.
            assert!(!lead.is_over());
            if wrote {
                lead.may_write().unwrap();
            }
            let begun = tokio::time::Instant::now();
            let waited = match leave {
                Leave::Deleted => {
                    candidate(&cluster).keep(&lead).await;
                    begun.elapsed().checked_sub(RETRY).unwrap()
                }
                Leave::Asked { .. } => {
                    candidate(&cluster).release(&lead).await.unwrap();
                    begun.elapsed()
                }
            };
            // The clock of the tests stands still but for such waits, the process's own goes on.
            let second = Duration::from_secs(1);
            assert!((least.saturating_sub(second)..least + second).contains(&waited), "{leave:?} {wrote}: {waited:?}");
            let written = cluster.asked().into_iter().rfind(Asked::is_write).unwrap();
            assert_eq!(written.body["spec"]["holderIdentity"], Value::Null, "{leave:?}");
        }
    }
}

#[test]
fn a_request_ends_before_the_next_leader_begins() {
    assert!(REQUEST_LIMIT < DURATION.checked_sub(RENEW_DEADLINE).unwrap());
}
