//! Crash points: the operator dies, or loses the answer, after each of its writes in turn, and always arrives where it
//! would have arrived.
//!
//! A run without faults names the writes of a scenario; nobody lists them by hand. Then the scenario is run once for each
//! of them and each fault, and its end is compared with the end of the run without faults: the objects, and how often
//! each was created and deleted.

use anyhow::Context as _;
use kube::api::DeleteParams;
use odc_api::v1alpha1::Phase;
use odc_tests::apifault::Action;
use serde_json::json;

use super::rig::{Ending, Rig, Scenario};
use super::stage::with_stage;

/// So often a run is tried in which the write that is to be the last one did not come.
const ATTEMPTS: usize = 3;

async fn converges(scenario: Scenario) -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut rig = Rig::start(stage).await?;
        let (writes, reference) = rig.reference(scenario).await.with_context(|| rig.operator.words())?;
        let least = scenario.least_writes();
        anyhow::ensure!(
            writes >= least,
            "{scenario:?} took {writes} writes, and cannot have done it with less than {least}"
        );
        if matches!(scenario, Scenario::LoseNode) {
            stage.servers.delete("ref", &DeleteParams::default()).await?;
        }
        for (word, action) in [("kill", Action::Kill), ("lost", Action::HangUp)] {
            for k in 1..=writes {
                let told = format!("{scenario:?}, {word} after write {k} of {writes}");
                let mut fired = false;
                for attempt in 1..=ATTEMPTS {
                    let name = format!("{word}{attempt}-{k:02}");
                    fired = cut_off(&mut rig, scenario, &name, k, &action, &reference)
                        .await
                        .with_context(|| told.clone())?;
                    if fired {
                        break;
                    }
                }
                // One phase may have lasted long enough to be written in the run without faults only.
                anyhow::ensure!(fired || k == writes, "{told}: it did not come to that write in {ATTEMPTS} runs");
            }
        }
        Ok(())
    })
    .await
}

/// One run with a fault. Tells whether it met anything; it ends the same either way.
async fn cut_off(
    rig: &mut Rig<'_>,
    scenario: Scenario,
    name: &str,
    k: usize,
    action: &Action,
    reference: &Ending,
) -> anyhow::Result<bool> {
    let stage = rig.stage;
    if matches!(scenario, Scenario::LoseNode) {
        for node in ["node-1", "node-2"] {
            stage.plane.revive_node(node).await?;
        }
    }
    let run = rig.with_fault(scenario, name, k, action.clone()).await.with_context(|| rig.operator.words())?;
    anyhow::ensure!(run.ending == *reference, "came to\n{:#?}\ninstead of\n{reference:#?}", run.ending);
    stage.servers.delete(name, &DeleteParams::default()).await.map(drop).or_else(|error| match error {
        kube::Error::Api(status) if status.code == 404 => Ok(()),
        error => Err(error),
    })?;
    Ok(run.fired)
}

#[tokio::test]
async fn a_start_cut_off_anywhere_is_finished() -> anyhow::Result<()> {
    converges(Scenario::Create).await
}

#[tokio::test]
async fn hibernating_cut_off_anywhere_is_finished() -> anyhow::Result<()> {
    converges(Scenario::Hibernate).await
}

#[tokio::test]
async fn waking_cut_off_anywhere_is_finished() -> anyhow::Result<()> {
    converges(Scenario::Wake).await
}

#[tokio::test]
async fn an_expiry_cut_off_anywhere_is_finished() -> anyhow::Result<()> {
    converges(Scenario::Expire).await
}

#[tokio::test]
async fn a_deletion_needs_no_write_to_be_finished() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut rig = Rig::start(stage).await?;
        let (writes, reference) = rig.reference(Scenario::Delete).await.with_context(|| rig.operator.words())?;
        // So there is nothing to be cut off after, and it comes to the same without anybody.
        assert_eq!(writes, 0);
        for word in ["before", "meanwhile"] {
            rig.prepare(Scenario::Delete, word).await?;
            let since = rig.proxy.trace().len();
            if word == "before" {
                rig.operator.kill().await?;
            }
            Scenario::Delete.act(stage, word).await?;
            rig.restart().await?;
            Scenario::Delete.until_done(stage, word).await?;
            assert_eq!(rig.ending(word, since).await?, reference);
        }
        // What it held is free for the next.
        for name in ["first", "second"] {
            stage.create(name, json!({"flavor": "gpu", "count": 8})).await?;
            stage.until_phase(name, Phase::Running).await?;
        }
        Ok(())
    })
    .await
}

#[cfg(feature = "full")]
mod full {
    use super::*;

    #[tokio::test]
    async fn the_start_of_a_gang_cut_off_anywhere_is_finished() -> anyhow::Result<()> {
        converges(Scenario::CreateGang).await
    }

    #[tokio::test]
    async fn an_extension_cut_off_anywhere_is_finished() -> anyhow::Result<()> {
        converges(Scenario::Extend).await
    }

    #[tokio::test]
    async fn an_end_cut_off_anywhere_is_finished() -> anyhow::Result<()> {
        converges(Scenario::End).await
    }

    #[tokio::test]
    async fn a_move_from_a_lost_node_cut_off_anywhere_is_finished() -> anyhow::Result<()> {
        converges(Scenario::LoseNode).await
    }
}
