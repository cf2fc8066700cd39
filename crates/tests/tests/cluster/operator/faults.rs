//! Faults between the operator and the API server.

pub mod invalid_objects;
mod leadership;
mod lists;
mod outage;
mod watch_events;
mod write_errors;

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::ListParams;
use odc_tests::apifault::{TraceEntry, Verb};
use odc_tests::operator::Operator;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::time::Duration;

use super::fault_harness::FaultHarness;
use super::fixture::{Fixture, TIMEOUT};

const SERVERS: &str = "devservers.odc.dev";

const USERS: &str = "devserverusers.odc.dev";

const EVENTS: &str = "events.events.k8s.io";

const LEASES: &str = "leases.coordination.k8s.io";

/// Time without a renewal after which another operator may lead.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Interval of the renewals. So much of the lease duration may have passed when a leader is stopped.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);

/// Checks the pods of a server and how many were created in total.
async fn check_pods(harness: &FaultHarness<'_>, server: &str, nodes: usize, created: usize) -> anyhow::Result<()> {
    let selector = ListParams::default().labels(&format!("odc.dev/server={server}"));
    let mut names: Vec<String> =
        harness.fixture.pods.list(&selector).await?.iter().map(kube::ResourceExt::name_any).collect();
    names.sort();
    let expected: Vec<String> = (0..nodes).map(|ordinal| format!("{server}-{ordinal}")).collect();
    anyhow::ensure!(names == expected, "{server} has pods {names:?}");
    let trace = harness.proxy.trace();
    let creations: Vec<&TraceEntry> = trace
        .iter()
        .filter(|entry| entry.verb == Verb::Create && entry.resource == "pods" && entry.server_code == Some(201))
        .filter(|entry| entry.name.rsplit_once('-').is_some_and(|(prefix, _)| prefix == server))
        .collect();
    anyhow::ensure!(creations.len() == created, "{server}: {} pods were created: {creations:#?}", creations.len());
    Ok(())
}

async fn pod_uids(fixture: &Fixture<'_>) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let pods = fixture.pods.list(&ListParams::default()).await?;
    Ok(pods.into_iter().map(|pod| (pod.name_any(), pod.uid())).collect())
}

/// Reports whether a request is a write that was stored.
fn is_stored(entry: &TraceEntry) -> bool {
    entry.write && entry.server_code.is_some_and(|code| code < 300)
}

pub fn send_signal(operator: &Operator, signal: Signal) -> anyhow::Result<()> {
    let pid = operator.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    Ok(kill_process(pid.context("the operator has exited")?, signal)?)
}

pub async fn wait_exit(operator: &mut Operator) -> anyhow::Result<ExitStatus> {
    let finished = tokio::time::timeout(TIMEOUT, operator.child.wait()).await;
    Ok(finished.with_context(|| format!("the operator does not exit:\n{}", operator.log_tail()))??)
}
