//! Number of requests over the lifecycle of a server, by the audit log.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DeleteParams, ListParams};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::audit::Request;
use odc_tests::{fake_kubelet, wait};
use serde_json::json;

use super::fixture::{Fixture, OPERATOR, TIMEOUT, status, with_fixture};

/// A position in the audit log to count from.
struct Mark<'a> {
    fixture: &'a Fixture<'a>,
    start: usize,
}

/// Requests of the operator and the user since a mark, without renewals of the Lease.
#[derive(Default)]
struct RequestCount {
    writes: Vec<String>,
    /// Writes that failed with a conflict or were not allowed.
    rejected: Vec<String>,
    reads: Vec<String>,
    /// Positions and ETAs of pending servers.
    queue: usize,
    flavors: usize,
    /// Usage of users and teams.
    usage: usize,
    events: usize,
}

impl RequestCount {
    /// Checks that there was no write, not even a rejected one.
    fn check_no_writes(&self) {
        let Self { writes, rejected, reads: _, queue, flavors, usage, events } = self;
        assert_eq!((writes.as_slice(), rejected.as_slice()), ([].as_slice(), [].as_slice()));
        assert_eq!((queue, flavors, usage, events), (&0, &0, &0, &0));
    }
}

impl<'a> Mark<'a> {
    fn new(fixture: &'a Fixture<'a>) -> anyhow::Result<Self> {
        Ok(Self { fixture, start: fixture.plane.requests()?.len() })
    }

    fn requests(&self) -> anyhow::Result<Vec<Request>> {
        let relevant = |request: &Request| {
            request.user == OPERATOR || matches!(request.agent.as_str(), "odc-tests" | fake_kubelet::USER_AGENT)
        };
        Ok(self.fixture.plane.requests()?.into_iter().skip(self.start).filter(relevant).collect())
    }

    fn count(&self) -> anyhow::Result<RequestCount> {
        let mut count = RequestCount::default();
        let mut admitted = BTreeSet::new();
        for request in self.requests()?.iter().filter(|request| request.agent != fake_kubelet::USER_AGENT) {
            let line = format!("{} {}/{} {}", request.verb, request.resource, request.name, request.code);
            match request.resource.as_str() {
                "leases" => {}
                // Kinds that the API server does not have are looked for once a minute.
                "volumesnapshots" | "volumesnapshotcontents" if request.code == 404 => {}
                _ if request.is_rejected_write() => count.rejected.push(line),
                "events" => count.events += 1,
                "devserverflavors/status" => count.flavors += 1,
                "devserverusers/status" | "teams/status" => count.usage += 1,
                // The first write is the admission or its withdrawal. The others are positions and ETAs.
                _ if is_queue_write(request) && !admitted.insert(request.name.clone()) => count.queue += 1,
                _ if request.is_write() => count.writes.push(line),
                _ if matches!(request.verb.as_str(), "get" | "list") && request.user == OPERATOR => {
                    count.reads.push(line);
                }
                _ => {}
            }
        }
        Ok(count)
    }

    /// Checks that there were at most `max` writes including those of the user, one more if the transitional phase lasted
    /// long enough to be stored, and no reads.
    fn check(&self, operation: &str, max: usize, transition: Option<(&DevServer, Phase)>) -> anyhow::Result<()> {
        let is_stored = |(server, phase): (&DevServer, Phase)| {
            let timeline = status(server).timeline;
            timeline.iter().rev().nth(1).is_some_and(|entry| entry.phase == phase)
        };
        let max = max + usize::from(transition.is_some_and(is_stored));
        let RequestCount { writes, rejected, reads, queue, flavors: _, usage, events } = self.count()?;
        anyhow::ensure!(writes.len() <= max, "{operation}: more than {max} writes: {writes:#?}");
        anyhow::ensure!(rejected.len() <= 1, "{operation}: rejected writes: {rejected:#?}");
        anyhow::ensure!(reads.is_empty(), "{operation}: reads: {reads:#?}");
        anyhow::ensure!(queue <= 1, "{operation}: {queue} writes of the queue position");
        anyhow::ensure!(events <= 4, "{operation}: {events} events");
        anyhow::ensure!(usage <= 1, "{operation}: {usage} writes of the usage");
        Ok(())
    }
}

/// Reports whether a request writes the fields of the queue in the status of a server.
fn is_queue_write(request: &Request) -> bool {
    request.is_write() && request.resource == "devservers/status" && request.field_manager == "odc-scheduler"
}

#[tokio::test]
async fn lifecycle_takes_the_documented_number_of_writes() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        fixture.create_claim("home").await?;
        let home = json!({"home": {"claim": "home"}});

        let mark = Mark::new(fixture)?;
        let server = fixture.create_running("one", home).await?;
        mark.check("start", 5, Some((&server, Phase::Starting)))?;

        let mark = Mark::new(fixture)?;
        fixture.patch_spec("one", json!({"desired": "Hibernated"})).await?;
        let server = fixture.wait_for_phase("one", Phase::Hibernated).await?;
        mark.check("hibernation", 4, Some((&server, Phase::Hibernating)))?;

        let mark = Mark::new(fixture)?;
        fixture.patch_spec("one", json!({"desired": "Running"})).await?;
        let server = fixture.wait_for_phase("one", Phase::Running).await?;
        mark.check("wake", 4, Some((&server, Phase::Starting)))?;

        let mark = Mark::new(fixture)?;
        fixture.servers.delete("one", &DeleteParams::default()).await?;
        fixture.wait_pod_deleted("one-0").await?;
        mark.check("deletion", 3, None)?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn gang_takes_one_more_write_per_node() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let mark = Mark::new(fixture)?;
        let server = fixture.create_running("gang", json!({"flavor": "gpu", "count": 8, "nodes": 2})).await?;
        mark.check("gang start", 5 + 2, Some((&server, Phase::Starting)))?;
        let mut nodes = server.status.unwrap_or_default().admission.unwrap_or_default().nodes;
        nodes.sort();
        assert_eq!(nodes, ["node-1", "node-2"]);
        Ok(())
    })
    .await
}

const IDLE_SERVERS: usize = 200;
/// Observation window; a minute with feature `full`.
const IDLE_DURATION: Duration = Duration::from_secs(if cfg!(feature = "full") { 60 } else { 20 });
/// Time in which a new leader would write.
const SETTLE_DURATION: Duration = Duration::from_secs(5);

#[tokio::test]
async fn idle_servers_cause_no_requests() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut operator = fixture.start_operator().await?;
        let names: Vec<String> = (0..IDLE_SERVERS).map(|number| format!("server-{number}")).collect();
        let created =
            stream::iter(&names).map(|name| fixture.create(name, json!({"flavor": "cpu"}))).buffer_unordered(16);
        created.try_for_each(async |_| Ok(())).await?;
        wait::until_count("running servers", IDLE_SERVERS, TIMEOUT, async || {
            let all = fixture.servers.list(&ListParams::default()).await?;
            Ok(all.iter().filter(|server| status(server).phase == Some(Phase::Running)).count())
        })
        .await?;
        // The flavor status is written at most once a second, so the last write may be pending.
        fixture.wait_idle().await?;

        let mark = Mark::new(fixture)?;
        tokio::time::sleep(IDLE_DURATION).await;
        let count = mark.count()?;
        count.check_no_writes();
        assert_eq!(count.reads, [""; 0]);

        operator.kill().await?;
        fixture.release_lease().await?;
        let mark = Mark::new(fixture)?;
        let _next = fixture.start_operator().await?;
        tokio::time::sleep(SETTLE_DURATION).await;
        mark.count()?.check_no_writes();
        Ok(())
    })
    .await
}
