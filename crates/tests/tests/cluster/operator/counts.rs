//! What a server's life costs in requests, by the API server's own record: the table of writes that was promised.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::jiff::SignedDuration;
use kube::api::{DeleteParams, ListParams};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::audit::Request;
use odc_tests::{PLAYER, wait};
use serde_json::json;

use super::stage::{LIMIT, OPERATOR, Stage, with_stage};

/// A place in the record, to count from.
struct Mark<'a> {
    stage: &'a Stage<'a>,
    at: usize,
}

/// What was asked since, by the operator and the user. Counted apart are events, the Lease, flavors' statuses, what the
/// queue keeps of users and teams, and what it tells those who wait.
#[derive(Default)]
struct Asked {
    writes: Vec<String>,
    /// Writes that were not stored: somebody was faster, or it was not allowed.
    refused: Vec<String>,
    reads: Vec<String>,
    queue: usize,
    flavors: usize,
    kept: usize,
    events: usize,
}

impl Asked {
    /// Nothing at all was written, or tried to be.
    fn check_untouched(&self) {
        let Self { writes, refused, reads: _, queue, flavors, kept, events } = self;
        assert_eq!((writes.as_slice(), refused.as_slice()), ([].as_slice(), [].as_slice()));
        assert_eq!((queue, flavors, kept, events), (&0, &0, &0, &0));
    }
}

/// A phase that passes by itself and is told only when it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passing {
    Starting,
    Hibernating,
}

impl<'a> Mark<'a> {
    fn set(stage: &'a Stage<'a>) -> anyhow::Result<Self> {
        Ok(Self { stage, at: stage.plane.requests()?.len() })
    }

    fn requests(&self) -> anyhow::Result<Vec<Request>> {
        let ours =
            |request: &Request| request.user == OPERATOR || matches!(request.agent.as_str(), "odc-tests" | PLAYER);
        Ok(self.stage.plane.requests()?.into_iter().skip(self.at).filter(ours).collect())
    }

    fn asked(&self) -> anyhow::Result<Asked> {
        let mut asked = Asked::default();
        let mut granted = BTreeSet::new();
        for request in self.requests()?.iter().filter(|request| request.agent != PLAYER) {
            let line = format!("{} {}/{} {}", request.verb, request.resource, request.name, request.code);
            match request.resource.as_str() {
                "leases" => {}
                _ if request.is_refused_write() => asked.refused.push(line),
                "events" => asked.events += 1,
                "devserverflavors/status" => asked.flavors += 1,
                "devserverusers/status" | "teams/status" => asked.kept += 1,
                // The first is the grant, or takes it back. What more it writes are places and times of those who wait.
                _ if is_of_queue(request) && !granted.insert(request.name.clone()) => asked.queue += 1,
                _ if request.is_write() => asked.writes.push(line),
                _ if matches!(request.verb.as_str(), "get" | "list") && request.user == OPERATOR => {
                    asked.reads.push(line);
                }
                _ => {}
            }
        }
        Ok(asked)
    }

    /// At most so many writes with the user's own, one more for a phase that lasted, and not one read.
    fn check(&self, what: &str, most: usize, passing: Option<Passing>) -> anyhow::Result<()> {
        let asked = self.asked()?;
        let lasted = passing.map(|passing| self.lasted(passing)).transpose()?.unwrap_or_default();
        let most = most + usize::from(lasted >= SignedDuration::from_secs(1));
        let Asked { writes, refused, reads, queue, flavors: _, kept, events } = asked;
        anyhow::ensure!(writes.len() <= most, "{what} took more than {most} writes, {passing:?} {lasted}: {writes:#?}");
        anyhow::ensure!(refused.len() <= 1, "{what} was refused: {refused:#?}");
        anyhow::ensure!(reads.is_empty(), "{what} read: {reads:#?}");
        anyhow::ensure!(queue <= 1, "{what} was told {queue} times where it stands");
        anyhow::ensure!(events <= 4, "{what} wrote {events} events");
        anyhow::ensure!(kept <= 1, "{what} wrote {kept} times what was used");
        Ok(())
    }

    /// How long a phase lasted by the API server's record, not by what the operator says of it: from the grant, or the
    /// user's word, until the pods were as they should be.
    fn lasted(&self, passing: Passing) -> anyhow::Result<SignedDuration> {
        let requests = self.requests()?;
        let begins = |request: &&Request| match passing {
            Passing::Starting => is_of_queue(request),
            Passing::Hibernating => request.agent == "odc-tests" && request.resource == "devservers",
        };
        let ends = |request: &&Request| {
            let last = match passing {
                Passing::Starting => "pods/status",
                Passing::Hibernating => "pods",
            };
            request.agent == PLAYER && request.is_write() && request.resource == last
        };
        let began = requests.iter().find(begins).context("it began")?.at;
        let ended = requests.iter().rfind(ends).context("it came to an end")?.at;
        Ok(ended.duration_since(began))
    }
}

/// A write of the queue's part of a server's status.
fn is_of_queue(request: &Request) -> bool {
    request.is_write() && request.resource == "devservers/status" && request.manager == "odc-queue"
}

#[tokio::test]
async fn a_life_costs_what_was_promised() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        stage.claim("home").await?;
        let home = json!({"home": {"claim": "home"}});

        let mark = Mark::set(stage)?;
        stage.create("one", home).await?;
        stage.until_phase("one", Phase::Running).await?;
        mark.check("a start", 5, Some(Passing::Starting))?;

        let mark = Mark::set(stage)?;
        stage.change("one", json!({"desired": "Hibernated"})).await?;
        stage.until_phase("one", Phase::Hibernated).await?;
        mark.check("hibernating", 4, Some(Passing::Hibernating))?;

        let mark = Mark::set(stage)?;
        stage.change("one", json!({"desired": "Running"})).await?;
        stage.until_phase("one", Phase::Running).await?;
        mark.check("waking", 4, Some(Passing::Starting))?;

        let mark = Mark::set(stage)?;
        stage.servers.delete("one", &DeleteParams::default()).await?;
        stage.until_pod("one-0", "gone", |pod| pod.is_none()).await?;
        mark.check("deleting", 3, None)?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_gang_costs_one_write_more_for_each_node() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let mark = Mark::set(stage)?;
        stage.create("gang", json!({"flavor": "gpu", "count": 8, "nodes": 2})).await?;
        let server = stage.until_phase("gang", Phase::Running).await?;
        mark.check("a gang", 5 + 2, Some(Passing::Starting))?;
        let mut nodes = server.status.unwrap_or_default().admission.unwrap_or_default().nodes;
        nodes.sort();
        assert_eq!(nodes, ["node-1", "node-2"]);
        Ok(())
    })
    .await
}

/// Of the servers that nobody touches.
const SERVERS: usize = 200;
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn what_nobody_touches_costs_nothing() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut operator = stage.operator().await?;
        let names: Vec<String> = (0..SERVERS).map(|number| format!("server-{number}")).collect();
        let created =
            stream::iter(&names).map(|name| stage.create(name, json!({"flavor": "cpu"}))).buffer_unordered(16);
        created.try_for_each(async |_| Ok(())).await?;
        wait::until("all run", 2 * LIMIT, async || {
            let all = stage.servers.list(&ListParams::default()).await?;
            let phase = |server: &DevServer| server.status.as_ref().and_then(|status| status.phase);
            let running = all.iter().filter(|server| phase(server) == Some(Phase::Running)).count();
            anyhow::ensure!(running == SERVERS, "{running} of {SERVERS}");
            Ok(())
        })
        .await?;
        // Flavors are told at most once a second, so the last time may still come.
        stage.quiet().await?;

        let mark = Mark::set(stage)?;
        tokio::time::sleep(MINUTE).await;
        let asked = mark.asked()?;
        asked.check_untouched();
        assert_eq!(asked.reads, [""; 0]);

        operator.kill().await?;
        stage.forget_leader().await?;
        let mark = Mark::set(stage)?;
        let _next = stage.operator().await?;
        // It has seen everything, and would have written by then.
        tokio::time::sleep(Duration::from_secs(5)).await;
        mark.asked()?.check_untouched();
        Ok(())
    })
    .await
}
