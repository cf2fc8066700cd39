//! What a server's life costs in requests, by the API server's own record: the table of writes that was promised.

use std::time::Duration;

use kube::api::DeleteParams;
use odc_api::v1alpha1::Phase;
use odc_tests::audit::Request;
use odc_tests::wait;
use serde_json::json;

use super::stage::{LIMIT, Stage, with_stage};

const OPERATOR: &str = "system:serviceaccount:odc-system:odc-operator";

/// A place in the record, to count from.
struct Mark<'a> {
    stage: &'a Stage<'a>,
    at: usize,
}

/// What was asked since, by the operator and the user. Counted apart are events, the Lease, flavors' statuses and what the
/// queue keeps of users and teams.
struct Asked {
    writes: Vec<String>,
    reads: Vec<String>,
    flavors: usize,
    kept: usize,
    events: usize,
}

impl<'a> Mark<'a> {
    fn set(stage: &'a Stage<'a>) -> anyhow::Result<Self> {
        Ok(Self { stage, at: stage.plane.requests()?.len() })
    }

    fn asked(&self) -> anyhow::Result<Asked> {
        let requests = self.stage.plane.requests()?;
        let ours = |request: &&Request| request.user == OPERATOR || request.agent == "odc-tests";
        let mut asked = Asked { writes: vec![], reads: vec![], flavors: 0, kept: 0, events: 0 };
        for request in requests[self.at..].iter().filter(ours) {
            let line = format!("{} {}/{} {}", request.verb, request.resource, request.name, request.code);
            match request.resource.as_str() {
                "leases" => {}
                "events" => asked.events += 1,
                "devserverflavors/status" => asked.flavors += 1,
                "devserverusers/status" | "teams/status" => asked.kept += 1,
                _ if request.is_write() => asked.writes.push(line),
                _ if matches!(request.verb.as_str(), "get" | "list") && request.user == OPERATOR => {
                    asked.reads.push(line);
                }
                _ => {}
            }
        }
        Ok(asked)
    }

    /// At most so many writes with the user's own, and not one read.
    fn check(&self, what: &str, most: usize) -> anyhow::Result<()> {
        let asked = self.asked()?;
        anyhow::ensure!(asked.writes.len() <= most, "{what} took more than {most} writes: {:#?}", asked.writes);
        anyhow::ensure!(asked.reads.is_empty(), "{what} read: {:#?}", asked.reads);
        anyhow::ensure!(asked.events <= 4, "{what} wrote {} events", asked.events);
        anyhow::ensure!(asked.kept <= 1, "{what} wrote {} times what was used", asked.kept);
        Ok(())
    }
}

/// What is written for phases that lasted over a second on a busy machine.
fn passing(stage_phases: &[&str], phase: &str) -> usize {
    usize::from(stage_phases.contains(&phase))
}

async fn phases(stage: &Stage<'_>, name: &str) -> anyhow::Result<Vec<String>> {
    let server = stage.servers.get(name).await?;
    Ok(server.status.unwrap_or_default().timeline.iter().map(|entry| entry.phase.to_string()).collect())
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
        let seen = phases(stage, "one").await?;
        let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
        mark.check("a start", 5 + passing(&seen, "Starting") + passing(&seen, "Queued"))?;

        let mark = Mark::set(stage)?;
        stage.change("one", json!({"desired": "Hibernated"})).await?;
        stage.until_phase("one", Phase::Hibernated).await?;
        let seen = phases(stage, "one").await?;
        let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
        mark.check("hibernating", 4 + passing(&seen, "Hibernating"))?;

        let mark = Mark::set(stage)?;
        stage.change("one", json!({"desired": "Running"})).await?;
        stage.until_phase("one", Phase::Running).await?;
        let all = phases(stage, "one").await?;
        let seen: Vec<&str> = all.iter().rev().take(3).map(String::as_str).collect();
        mark.check("waking", 4 + passing(&seen, "Starting") + passing(&seen, "Queued"))?;

        let mark = Mark::set(stage)?;
        stage.servers.delete("one", &DeleteParams::default()).await?;
        stage.until_pod("one-0", "gone", |pod| pod.is_none()).await?;
        mark.check("deleting", 3)?;
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
        let seen = phases(stage, "gang").await?;
        let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
        mark.check("a gang", 5 + 2 + passing(&seen, "Starting") + passing(&seen, "Queued"))?;
        let mut nodes = server.status.unwrap_or_default().admission.unwrap_or_default().nodes;
        nodes.sort();
        assert_eq!(nodes, ["node-1", "node-2"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_nobody_touches_costs_nothing() -> anyhow::Result<()> {
    let servers = if cfg!(feature = "full") { 200 } else { 30 };
    let quiet = Duration::from_secs(if cfg!(feature = "full") { 60 } else { 10 });
    with_stage(async |stage| {
        let mut operator = stage.operator().await?;
        for number in 0..servers {
            stage.create(&format!("server-{number}"), json!({"flavor": "cpu"})).await?;
        }
        for number in 0..servers {
            stage.until_phase(&format!("server-{number}"), Phase::Running).await?;
        }
        // Flavors are told at most once a second, so the last time may still come.
        let settled = async || {
            let before = stage.plane.requests()?.len();
            tokio::time::sleep(Duration::from_secs(2)).await;
            let later = Mark { stage, at: before }.asked()?;
            anyhow::ensure!(later.flavors == 0 && later.writes.is_empty(), "still writing: {:#?}", later.writes);
            Ok(())
        };
        wait::until("quiet", LIMIT, settled).await?;

        let mark = Mark::set(stage)?;
        tokio::time::sleep(quiet).await;
        let asked = mark.asked()?;
        assert_eq!((asked.writes, asked.reads, asked.flavors, asked.events), (vec![], vec![], 0, 0));

        operator.kill().await?;
        let mark = Mark::set(stage)?;
        // The next one waits until the old one's time is over.
        let _next = stage.operator().await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let asked = mark.asked()?;
        assert_eq!((asked.writes, asked.flavors, asked.events), (vec![], 0, 0));
        Ok(())
    })
    .await
}
