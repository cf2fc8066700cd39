//! A second operator: expired and released leases.

use anyhow::Context as _;
use odc_api::v1alpha1::Phase;
use odc_tests::apifault::{Action, Apifault, Fault, Pattern, Plan, TraceEntry};
use odc_tests::operator::Operator;
use odc_tests::{manifests, operator, wait};
use rustix::process::Signal;
use serde_json::json;
use std::time::Instant;

use super::super::fault_harness::FaultHarness;
use super::super::fixture::{Fixture, LEASE, TIMEOUT, user, with_fixture};
use super::super::watch_history::{Revision, WatchHistory};
use super::{EVENTS, LEASE_DURATION, LEASES, RENEW_INTERVAL, is_stored, pod_uids, send_signal, wait_exit};

/// Starts a standby operator behind its own proxy.
async fn start_standby(fixture: &Fixture<'_>) -> anyhow::Result<(Apifault, Operator)> {
    let proxy = Apifault::start(&fixture.plane.kubeconfig, Plan::default()).await?;
    let path = fixture.directory.join("standby.kubeconfig");
    proxy.kubeconfig(&path, Some(&operator::service_account_token(&fixture.plane.client).await?))?;
    let operator = Operator::spawn(&path, &fixture.directory, &operator::fast_timeouts())?;
    wait::until("standby operator", TIMEOUT, async || {
        let has_read = proxy.trace().iter().any(|entry| entry.resource == LEASES && entry.code == Some(200));
        anyhow::ensure!(has_read, "the standby has not read the Lease:\n{}", operator.log_tail());
        Ok(())
    })
    .await?;
    Ok((proxy, operator))
}

async fn epoch(fixture: &Fixture<'_>) -> anyhow::Result<i32> {
    let spec = fixture.leases().get(LEASE).await?.spec.unwrap_or_default();
    spec.lease_transitions.context("the Lease has no transitions")
}

#[tokio::test]
async fn paused_leader_writes_nothing_after_its_lease_expired() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut first = FaultHarness::start(fixture).await?;
        fixture.create_running("before", json!({"flavor": "gpu"})).await?;
        let first_epoch = epoch(fixture).await?;

        // Each of these holds one of the writes of a start until another operator leads. The admission comes last: while it
        // is in flight, no other server is admitted.
        for (k, name) in [(2, "secret"), (3, "pod"), (4, "status"), (1, "admission")] {
            let fired = first.proxy.fired();
            first.proxy.add(Fault::write(k).matching(Pattern::default().with_name_prefix(name)).before(Action::Hold));
            fixture.create(name, json!({"flavor": "gpu"})).await?;
            first.proxy.wait_fired(fired + 1, TIMEOUT).await?;
        }
        send_signal(&first.operator, Signal::STOP)?;
        let paused_at = Instant::now();
        let (proxy, mut second) = start_standby(fixture).await?;
        second.wait_ready().await?;
        anyhow::ensure!(
            paused_at.elapsed() + RENEW_INTERVAL >= LEASE_DURATION,
            "the second operator led before the lease expired"
        );
        assert_eq!(epoch(fixture).await?, first_epoch + 1);
        for name in ["secret", "pod", "status", "admission"] {
            fixture.wait_for_phase(name, Phase::Running).await?;
        }
        fixture.patch_spec("before", json!({"desired": "Ended"})).await?;
        fixture.wait_for_phase("before", Phase::Cancelled).await?;
        fixture.create_running("after", json!({"flavor": "gpu"})).await?;
        let pods = pod_uids(fixture).await?;

        // The held writes arrive, and the first operator resumes.
        let mark = first.proxy.trace().len();
        let held: Vec<u64> = first
            .proxy
            .trace()
            .iter()
            .filter(|entry| entry.write && entry.server_code.is_none() && !entry.faults.is_empty())
            .map(|entry| entry.sequence)
            .collect();
        assert_eq!(held.len(), 4);
        first.proxy.release();
        send_signal(&first.operator, Signal::CONT)?;
        let status = wait_exit(&mut first.operator).await?;
        assert!(!status.success(), "{status}");
        let trace = wait::until("responses to the held writes", TIMEOUT, async || {
            let trace = first.proxy.trace();
            let all =
                trace.iter().filter(|entry| held.contains(&entry.sequence)).all(|entry| entry.server_code.is_some());
            anyhow::ensure!(all, "some are missing");
            Ok(trace)
        })
        .await?;
        let stored: Vec<&TraceEntry> = trace
            .iter()
            .filter(|entry| held.contains(&entry.sequence) || entry.sequence > mark as u64)
            .filter(|entry| is_stored(entry))
            .collect();
        assert!(stored.is_empty(), "{stored:#?}");

        // The second operator still leads, and nothing exists twice.
        fixture.wait_idle().await?;
        assert_eq!(epoch(fixture).await?, first_epoch + 1);
        assert_eq!(pod_uids(fixture).await?, pods);
        assert!(second.child.try_wait()?.is_none());
        drop(proxy);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn terminated_leader_releases_its_lease() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut first = FaultHarness::start(fixture).await?;
        let (_proxy, second) = start_standby(fixture).await?;
        let history = WatchHistory::start(&fixture.plane.client);
        // While it works.
        for number in 0..20 {
            fixture.create(&format!("server-{number}"), json!({})).await?;
        }
        // The response to a write for another user arrives during the shutdown, with more writes to follow.
        let delay = |pattern: Pattern, milliseconds: u64| {
            Fault::write(1).matching(pattern).after(Action::Delay { milliseconds })
        };
        first.proxy.add(delay(Pattern::resource("limitranges").in_namespace("dev-bob"), 1_000));
        let fired = first.proxy.fired();
        manifests::apply(&fixture.plane.client, &user("bob")).await?;
        first.proxy.wait_fired(fired + 1, TIMEOUT).await?;
        // The first write of the Lease may be a renewal.
        first.proxy.add(delay(Pattern::resource(LEASES), 2_000).times(2));
        send_signal(&first.operator, Signal::TERM)?;
        let status = wait_exit(&mut first.operator).await?;
        assert!(status.success(), "{status}: {}", first.operator.log_tail());
        second.wait_ready().await?;
        let revisions = history.finish().await?;
        let released = revisions.iter().any(|(_, revision)| match revision {
            Revision::Lease(lease) => lease.spec.as_ref().is_some_and(|spec| spec.holder_identity.is_none()),
            _ => false,
        });
        assert!(released, "the Lease was not released");
        // After the release there are no writes except Events.
        let trace = first.proxy.trace();
        let release = trace.iter().rposition(|entry| entry.resource == LEASES && entry.write);
        let after = trace.iter().skip(release.context("the Lease was not written")? + 1);
        let writes: Vec<&TraceEntry> = after.filter(|entry| entry.write && entry.resource != EVENTS).collect();
        assert!(writes.is_empty(), "{writes:#?}");
        for number in 0..20 {
            fixture.wait_for_phase(&format!("server-{number}"), Phase::Running).await?;
        }
        fixture.wait_user_ready("bob").await
    })
    .await
}
