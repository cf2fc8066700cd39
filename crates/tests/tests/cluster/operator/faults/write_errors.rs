//! Error responses to writes: every scenario converges to the outcome of a run without faults.

use anyhow::Context as _;
use futures_util::{StreamExt as _, stream};
use kube::api::DeleteParams;
use odc_api::v1alpha1::Phase;
use odc_tests::apifault::{Action, Fault, Moment, Pattern, TraceEntry, Verb};
use serde_json::json;

use super::super::fault_harness::{FaultHarness, Scenario};
use super::super::fixture::{NAMESPACE, with_fixture};

/// Servers that run a scenario concurrently.
const MAX_CONCURRENT: usize = 8;

/// Runs a scenario with every error code before and after each of its writes, and compares the outcomes.
async fn check_write_errors(scenario: Scenario) -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let harness = FaultHarness::start(fixture).await?;
        let (writes, reference) = harness.run_reference(scenario).await.with_context(|| harness.operator.log_tail())?;
        let min_writes = scenario.min_writes();
        anyhow::ensure!(writes >= min_writes, "{scenario:?} took {writes} writes, expected at least {min_writes}");
        let mut runs = Vec::new();
        for code in [409, 410, 429, 500, 503, 504] {
            for (label, moment) in [("before", Moment::Before), ("after", Moment::After)] {
                runs.extend((1..=writes).map(|k| (code, label, moment, k)));
            }
        }
        let all = runs.len();
        let fired: Vec<anyhow::Result<bool>> = stream::iter(runs)
            .map(async |(code, label, moment, k)| {
                let case = format!("{scenario:?}, {code} {label} write {k} of {writes}");
                let retry_after = (code == 429).then_some(1);
                let error = Action::Answer { code, reason: None, retry_after };
                let name = format!("{label}-{code}-{k:02}");
                let run = harness.run_with_fault(scenario, &name, k, moment, error).await;
                let run = run.with_context(|| format!("{case}:\n{}", harness.operator.log_tail()))?;
                run.assert_converges(&reference).context(case)?;
                fixture.servers.delete(&name, &DeleteParams::default()).await?;
                Ok(run.fired)
            })
            .buffer_unordered(MAX_CONCURRENT)
            .collect()
            .await;
        let fired: Vec<bool> = fired.into_iter().collect::<anyhow::Result<_>>()?;
        // A fast transition is not written, and then the fault at the last write does not fire.
        let fired = fired.into_iter().filter(|fired| *fired).count();
        anyhow::ensure!(fired >= all / writes * min_writes.min(writes - 1), "only {fired} of {all} faults have fired");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn start_converges_after_write_errors() -> anyhow::Result<()> {
    check_write_errors(Scenario::Create).await
}

#[tokio::test]
async fn hibernation_converges_after_write_errors() -> anyhow::Result<()> {
    check_write_errors(Scenario::Hibernate).await
}

#[tokio::test]
async fn wake_converges_after_write_errors() -> anyhow::Result<()> {
    check_write_errors(Scenario::Wake).await
}

#[tokio::test]
async fn expiry_converges_after_write_errors() -> anyhow::Result<()> {
    check_write_errors(Scenario::Expire).await
}

#[tokio::test]
async fn throttled_writes_are_retried_and_the_lease_is_kept() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut harness = FaultHarness::start(fixture).await?;
        let throttle = || Action::Answer { code: 429, reason: None, retry_after: Some(1) };
        for resource in ["devservers.odc.dev/status", "pods", "secrets"] {
            let pattern = Pattern::resource(resource).in_namespace(NAMESPACE);
            for verb in [Verb::Create, Verb::Patch] {
                let pattern = Pattern { verb: Some(verb), ..pattern.clone() };
                harness.proxy.add(Fault::request(1).matching(pattern).before(throttle()).times(20));
            }
        }
        let before = harness.proxy.trace().len();
        for number in 0..5 {
            fixture.create(&format!("server-{number}"), json!({})).await?;
        }
        for number in 0..5 {
            fixture.wait_for_phase(&format!("server-{number}"), Phase::Running).await?;
        }
        let trace = harness.proxy.trace();
        let writes = trace.iter().skip(before).filter(|entry| entry.write && entry.name.starts_with("server-"));
        let (rejected, accepted): (Vec<&TraceEntry>, Vec<&TraceEntry>) =
            writes.partition(|entry| entry.code == Some(429));
        assert_eq!(rejected.len(), 60);
        // Rejected writes are repeated, accepted ones are not.
        anyhow::ensure!(accepted.len() <= 5 * 10, "{} writes for five servers: {accepted:#?}", accepted.len());
        assert!(harness.operator.child.try_wait()?.is_none(), "{}", harness.operator.log_tail());
        Ok(())
    })
    .await
}
