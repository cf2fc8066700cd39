//! How often is written what is counted apart: what those who wait are told, and what flavors say of themselves. By the
//! API server's record.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::audit::Request;
use odc_tests::wait;
use serde_json::{Value, json};

use super::stage::{LIMIT, OPERATOR, Stage, with_stage};

const WAITING: usize = 100;
/// So many of those who wait are told within a second.
const TOLD_PER_SECOND: usize = 20;
/// Nobody is told more often.
const CALM: SignedDuration = SignedDuration::from_secs(30);
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// A request is noted when it arrives, which on a busy machine is later than it was sent.
const LATE: SignedDuration = SignedDuration::from_millis(500);

/// The operator's requests of some kind since a place in the record, in order of arrival.
fn written(stage: &Stage<'_>, since: usize, is: impl Fn(&Request) -> bool) -> anyhow::Result<Vec<Request>> {
    let requests = stage.plane.requests()?.into_iter().skip(since);
    let mut ours: Vec<Request> = requests.filter(|request| request.user == OPERATOR && is(request)).collect();
    ours.sort_by_key(|request| request.at);
    Ok(ours)
}

/// Between each of these and the one so many later there is at least so much time.
fn check_paced(what: &str, times: &[Timestamp], apart: usize, least: SignedDuration) {
    for (first, later) in times.iter().zip(times.iter().skip(apart)) {
        let between = later.duration_since(*first);
        assert!(between + LATE >= least, "{what}: {} writes from {first} to {later}", apart + 1);
    }
}

async fn create_all(stage: &Stage<'_>, names: &[String], spec: &Value) -> anyhow::Result<()> {
    let created = stream::iter(names).map(|name| stage.create(name, spec.clone())).buffer_unordered(16);
    created.try_for_each(async |_| Ok(())).await
}

fn position(server: &DevServer) -> Option<usize> {
    server.status.as_ref()?.admission.as_ref()?.position.and_then(|position| position.try_into().ok())
}

/// Waits until those who wait are told that they are the first, the second, and so on; gives their places.
async fn until_placed(stage: &Stage<'_>, waiting: usize) -> anyhow::Result<BTreeMap<String, usize>> {
    wait::until("everybody knows their place", 2 * LIMIT, async || {
        let all = stage.servers.list(&ListParams::default()).await?;
        let places: BTreeMap<String, usize> =
            all.iter().filter_map(|server| Some((server.name_any(), position(server)?))).collect();
        let mut sorted: Vec<usize> = places.values().copied().collect();
        sorted.sort_unstable();
        anyhow::ensure!(sorted == (1..=waiting).collect::<Vec<_>>(), "places are {sorted:?}");
        Ok(places)
    })
    .await
}

#[tokio::test]
async fn who_waits_is_told_the_first_ones_first_and_not_too_often() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut first = stage.operator().await?;
        for name in ["one", "other"] {
            stage.create(name, json!({"flavor": "gpu", "count": 8})).await?;
            stage.until_phase(name, Phase::Running).await?;
        }
        // They are all there when the next leader begins, so that all have waited as long when it tells them.
        first.kill().await?;
        let names: Vec<String> = (0..WAITING).map(|number| format!("waits-{number:03}")).collect();
        create_all(stage, &names, &json!({"flavor": "gpu"})).await?;
        stage.forget_leader().await?;
        let since = stage.plane.requests()?.len();
        let _second = stage.operator().await?;
        let places = until_placed(stage, WAITING).await?;
        let of_queue = |request: &Request| request.resource == "devservers/status" && request.manager == "odc-queue";
        // Where somebody else wrote at that moment it is refused and comes later; the first try counts.
        let mut tried = BTreeSet::new();
        let mut told = written(stage, since, of_queue)?;
        told.retain(|request| tried.insert(request.name.clone()));
        assert_eq!(told.len(), WAITING);
        // Those of one pass are written at once; whoever is further ahead than that was tried before.
        let mut before = BTreeSet::new();
        for place in told.iter().map(|request| places[&request.name]) {
            let ahead = 1..=place.saturating_sub(TOLD_PER_SECOND);
            let late: Vec<usize> = ahead.filter(|place| !before.contains(place)).collect();
            assert_eq!(late, [0; 0], "{place} is told before them");
            before.insert(place);
        }

        // The first ones go, one by one, and everybody's place changes each time.
        let mut ahead: Vec<(&usize, &String)> = places.iter().map(|(name, place)| (place, name)).collect();
        ahead.sort();
        for (_, name) in &ahead[..4] {
            stage.servers.delete(name, &DeleteParams::default()).await?;
            stage.until_gone(name).await?;
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        }
        until_placed(stage, WAITING - 4).await?;
        let told = written(stage, since, |request| of_queue(request) && request.is_write())?;
        assert!(told.len() >= 2 * (WAITING - 4), "only {} were told", told.len());
        let times: Vec<Timestamp> = told.iter().map(|request| request.at).collect();
        check_paced("the queue", &times, TOLD_PER_SECOND, SECOND);
        for name in &names {
            let own: Vec<Timestamp> =
                told.iter().filter(|request| request.name == *name).map(|request| request.at).collect();
            check_paced(name, &own, 1, CALM);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_flavor_tells_of_itself_at_most_once_a_second() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let since = stage.plane.requests()?.len();
        // Some come while others leave, so that there is always something new about what is free and how long people stay.
        for wave in 0..8 {
            let names: Vec<String> = (0..8).map(|number| format!("w{wave}-{number}")).collect();
            create_all(stage, &names, &json!({"flavor": "gpu", "lifetime": "1s"})).await?;
            for name in &names {
                stage
                    .until(name, "running", |server| {
                        server.status.as_ref().is_some_and(|status| status.started_at.is_some())
                    })
                    .await?;
            }
        }
        wait::until("all are over", LIMIT, async || {
            let all = stage.servers.list(&ListParams::default()).await?;
            let over =
                |server: &DevServer| server.status.as_ref().and_then(|status| status.phase) == Some(Phase::Expired);
            anyhow::ensure!(all.iter().all(over), "some are not");
            Ok(())
        })
        .await?;
        stage.quiet().await?;
        let told =
            written(stage, since, |request| request.is_write() && request.resource == "devserverflavors/status")?;
        let told: Vec<&Request> = told.iter().filter(|request| request.name == "gpu").collect();
        for manager in ["odc-operator", "odc-queue"] {
            let times = told.iter().filter(|request| request.manager == manager).count();
            assert!(times >= 3, "{manager} wrote {times} times, which is no burst");
        }
        let times: Vec<Timestamp> = told.iter().map(|request| request.at).collect();
        check_paced("the flavor", &times, 1, SECOND);
        Ok(())
    })
    .await
}
