//! Crash points: the operator is killed, or loses the response, after each of its writes in turn, and converges.
//!
//! A run without faults gives the writes of a scenario. Then the scenario runs once for each write and fault, and its outcome
//! is compared with that of the run without faults: the objects, and the number of creations and deletions.

use anyhow::Context as _;
use kube::api::DeleteParams;
use odc_tests::apifault::Action;
use serde_json::json;

use super::fault_harness::{FaultHarness, Outcome, Scenario};
use super::fixture::with_fixture;

/// Attempts of a run whose last write may be omitted.
const ATTEMPTS: usize = 3;

async fn check_crash_points(scenario: Scenario) -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut harness = FaultHarness::start(fixture).await?;
        let (writes, reference) = harness.run_reference(scenario).await.with_context(|| harness.operator.log_tail())?;
        let min_writes = scenario.min_writes();
        anyhow::ensure!(writes >= min_writes, "{scenario:?} took {writes} writes, expected at least {min_writes}");
        if matches!(scenario, Scenario::LoseNode) {
            fixture.servers.delete("ref", &DeleteParams::default()).await?;
        }
        for (label, action) in [("kill", Action::Kill), ("lost", Action::HangUp)] {
            for k in 1..=writes {
                let case = format!("{scenario:?}, {label} after write {k} of {writes}");
                let mut fired = false;
                for attempt in 1..=ATTEMPTS {
                    let name = format!("{label}{attempt}-{k:02}");
                    fired = check_crash_point(&mut harness, scenario, &name, k, &action, &reference)
                        .await
                        .with_context(|| case.clone())?;
                    if fired {
                        break;
                    }
                }
                // The run without faults may have written a transition that was faster in the other runs.
                anyhow::ensure!(fired || k == writes, "{case}: the write did not occur in {ATTEMPTS} runs");
            }
        }
        Ok(())
    })
    .await
}

/// Runs a scenario with a fault and checks its outcome. Reports whether the fault has fired.
async fn check_crash_point(
    harness: &mut FaultHarness<'_>,
    scenario: Scenario,
    name: &str,
    k: usize,
    action: &Action,
    reference: &Outcome,
) -> anyhow::Result<bool> {
    let fixture = harness.fixture;
    if matches!(scenario, Scenario::LoseNode) {
        for node in ["node-1", "node-2"] {
            fixture.plane.recover_node(node).await?;
        }
    }
    let run =
        harness.run_with_crash(scenario, name, k, action.clone()).await.with_context(|| harness.operator.log_tail())?;
    run.assert_converges(reference)?;
    fixture.servers.delete(name, &DeleteParams::default()).await.map(drop).or_else(|error| match error {
        kube::Error::Api(status) if status.code == 404 => Ok(()),
        error => Err(error),
    })?;
    Ok(run.fired)
}

#[tokio::test]
async fn start_converges_after_every_crash_point() -> anyhow::Result<()> {
    check_crash_points(Scenario::Create).await
}

#[tokio::test]
async fn hibernation_converges_after_every_crash_point() -> anyhow::Result<()> {
    check_crash_points(Scenario::Hibernate).await
}

#[tokio::test]
async fn wake_converges_after_every_crash_point() -> anyhow::Result<()> {
    check_crash_points(Scenario::Wake).await
}

#[tokio::test]
async fn expiry_converges_after_every_crash_point() -> anyhow::Result<()> {
    check_crash_points(Scenario::Expire).await
}

#[tokio::test]
async fn deletion_needs_no_write_of_the_operator() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut harness = FaultHarness::start(fixture).await?;
        let (writes, reference) =
            harness.run_reference(Scenario::Delete).await.with_context(|| harness.operator.log_tail())?;
        // There is no crash point. The outcome is the same if no operator runs during the deletion.
        assert_eq!(writes, 0);
        for name in ["without-operator", "with-operator"] {
            harness.prepare(Scenario::Delete, name).await?;
            let since = harness.proxy.trace().len();
            if name == "without-operator" {
                harness.operator.kill().await?;
            }
            Scenario::Delete.perform(fixture, name).await?;
            harness.restart().await?;
            Scenario::Delete.wait_done(fixture, name).await?;
            assert_eq!(harness.outcome(name, since).await?, reference, "{name}");
        }
        // Its devices are free.
        for name in ["first", "second"] {
            fixture.create_running(name, json!({"flavor": "gpu", "count": 8})).await?;
        }
        Ok(())
    })
    .await
}

#[cfg(feature = "full")]
mod full {
    use super::*;

    #[tokio::test]
    async fn gang_start_converges_after_every_crash_point() -> anyhow::Result<()> {
        check_crash_points(Scenario::CreateGang).await
    }

    #[tokio::test]
    async fn extension_converges_after_every_crash_point() -> anyhow::Result<()> {
        check_crash_points(Scenario::Extend).await
    }

    #[tokio::test]
    async fn end_converges_after_every_crash_point() -> anyhow::Result<()> {
        check_crash_points(Scenario::End).await
    }

    #[tokio::test]
    async fn move_from_a_lost_node_converges_after_every_crash_point() -> anyhow::Result<()> {
        check_crash_points(Scenario::LoseNode).await
    }
}
