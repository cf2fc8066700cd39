//! Rate limits of status writes about pending servers and flavors, by the audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::audit::Request;
use odc_tests::wait;
use serde_json::{Value, json};

use super::fixture::{Fixture, OPERATOR, TIMEOUT, status, with_fixture};

const PENDING: usize = 100;
/// Queue status writes per second.
const MAX_WRITES_PER_SECOND: usize = 20;
/// Interval between queue status writes of one server.
const MIN_SERVER_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// Delay between sending and arrival of a request on a busy machine. The audit log has the time of arrival.
const MAX_DELAY: SignedDuration = SignedDuration::from_secs(3);
/// Lets the queue evaluate each deletion separately.
const DELETE_INTERVAL: Duration = Duration::from_secs(2);

/// Returns matching requests of the operator after the first `since` requests, in the order of arrival.
fn operator_requests(
    fixture: &Fixture<'_>,
    since: usize,
    matches: impl Fn(&Request) -> bool,
) -> anyhow::Result<Vec<Request>> {
    let requests = fixture.plane.requests()?.into_iter().skip(since);
    let mut found: Vec<Request> = requests.filter(|request| request.user == OPERATOR && matches(request)).collect();
    found.sort_by_key(|request| request.received_at);
    Ok(found)
}

/// Checks that there are never more than `burst` writes per `interval`, over every number of intervals.
fn check_rate(label: &str, times: &[Timestamp], burst: usize, interval: SignedDuration) {
    for (start, first) in times.iter().enumerate() {
        for (intervals, last) in (1..).zip(times[start..].iter().skip(burst).step_by(burst)) {
            let elapsed = last.duration_since(*first);
            let writes = burst * usize::try_from(intervals).unwrap_or(usize::MAX) + 1;
            assert!(elapsed + MAX_DELAY >= interval * intervals, "{label}: {writes} writes from {first} to {last}");
        }
    }
}

async fn create_all(fixture: &Fixture<'_>, names: &[String], spec: &Value) -> anyhow::Result<()> {
    let created = stream::iter(names).map(|name| fixture.create(name, spec.clone())).buffer_unordered(16);
    created.try_for_each(async |_| Ok(())).await
}

fn position(server: &DevServer) -> Option<usize> {
    status(server).admission?.position.and_then(|position| position.try_into().ok())
}

/// Waits until the pending servers have the positions 1 to `pending`, and returns their positions.
async fn wait_positions(fixture: &Fixture<'_>, pending: usize) -> anyhow::Result<BTreeMap<String, usize>> {
    wait::until("queue positions", 2 * TIMEOUT, async || {
        let all = fixture.servers.list(&ListParams::default()).await?;
        let positions: BTreeMap<String, usize> =
            all.iter().filter_map(|server| Some((server.name_any(), position(server)?))).collect();
        let mut sorted: Vec<usize> = positions.values().copied().collect();
        sorted.sort_unstable();
        anyhow::ensure!(sorted == (1..=pending).collect::<Vec<_>>(), "positions are {sorted:?}");
        Ok(positions)
    })
    .await
}

#[tokio::test]
async fn queue_positions_are_written_in_order_and_rate_limited() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut first = fixture.start_operator().await?;
        for name in ["one", "other"] {
            fixture.create_running(name, json!({"flavor": "gpu", "count": 8})).await?;
        }
        // All exist when the next leader starts, so that all are due at the same time.
        first.kill().await?;
        let names: Vec<String> = (0..PENDING).map(|number| format!("pending-{number:03}")).collect();
        create_all(fixture, &names, &json!({"flavor": "gpu"})).await?;
        fixture.release_lease().await?;
        let since = fixture.plane.requests()?.len();
        let _second = fixture.start_operator().await?;
        let positions = wait_positions(fixture, PENDING).await?;
        let by_queue =
            |request: &Request| request.resource == "devservers/status" && request.field_manager == "odc-scheduler";
        // A conflicting write fails and is repeated; the first attempt counts.
        let mut attempted = BTreeSet::new();
        let mut writes = operator_requests(fixture, since, by_queue)?;
        writes.retain(|request| attempted.insert(request.name.clone()));
        assert_eq!(writes.len(), PENDING);
        // Writes of one batch are concurrent; positions further ahead were written before.
        let mut before = BTreeSet::new();
        for position in writes.iter().map(|request| positions[&request.name]) {
            let ahead = 1..=position.saturating_sub(MAX_WRITES_PER_SECOND);
            let late: Vec<usize> = ahead.filter(|position| !before.contains(position)).collect();
            assert_eq!(late, [0; 0], "position {position} was written before them");
            before.insert(position);
        }

        // The first servers are deleted one by one, and all positions change each time.
        let mut ahead: Vec<(&usize, &String)> = positions.iter().map(|(name, position)| (position, name)).collect();
        ahead.sort();
        for (_, name) in &ahead[..4] {
            fixture.servers.delete(name, &DeleteParams::default()).await?;
            fixture.wait_deleted(name).await?;
            tokio::time::sleep(DELETE_INTERVAL).await;
        }
        wait_positions(fixture, PENDING - 4).await?;
        let writes = operator_requests(fixture, since, |request| by_queue(request) && request.is_write())?;
        assert!(writes.len() >= 2 * (PENDING - 4), "only {} writes", writes.len());
        let times: Vec<Timestamp> = writes.iter().map(|request| request.received_at).collect();
        check_rate("the queue", &times, MAX_WRITES_PER_SECOND, SECOND);
        for name in &names {
            let own: Vec<Timestamp> =
                writes.iter().filter(|request| request.name == *name).map(|request| request.received_at).collect();
            check_rate(name, &own, 1, MIN_SERVER_INTERVAL);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn flavor_status_is_written_at_most_once_a_second() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let since = fixture.plane.requests()?.len();
        // Servers start while others expire, so that the flavor status changes all the time.
        for wave in 0..8 {
            let names: Vec<String> = (0..8).map(|number| format!("w{wave}-{number}")).collect();
            create_all(fixture, &names, &json!({"flavor": "gpu", "lifetime": "1s"})).await?;
            for name in &names {
                fixture
                    .wait_for(name, "running", |server| {
                        server.status.as_ref().is_some_and(|status| status.started_at.is_some())
                    })
                    .await?;
            }
        }
        wait::until_count("expired servers", 64, TIMEOUT, async || {
            let all = fixture.servers.list(&ListParams::default()).await?;
            Ok(all.iter().filter(|server| status(server).phase == Some(Phase::Expired)).count())
        })
        .await?;
        fixture.wait_idle().await?;
        let writes = operator_requests(fixture, since, |request| {
            request.is_write() && request.resource == "devserverflavors/status"
        })?;
        let writes: Vec<&Request> = writes.iter().filter(|request| request.name == "gpu").collect();
        assert!(writes.len() >= 3, "the flavor was written {} times", writes.len());
        assert!(
            writes.iter().all(|request| request.field_manager == "odc-operator"),
            "the flavor loop is the only writer"
        );
        let times: Vec<Timestamp> = writes.iter().map(|request| request.received_at).collect();
        check_rate("the flavor", &times, 1, SECOND);
        Ok(())
    })
    .await
}
