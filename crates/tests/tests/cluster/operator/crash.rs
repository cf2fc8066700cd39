//! Crash points: the operator dies, or loses the answer, after each of its writes in turn, and always arrives where it
//! would have arrived.
//!
//! A run without faults names the writes of a scenario; nobody lists them by hand. Then the scenario is run once for each
//! of them and each fault, and its end is compared with the end of the run without faults: the objects, and how often
//! each was created and deleted.

use anyhow::Context as _;
use kube::api::DeleteParams;
use odc_tests::apifault::Action;

use super::rig::{Rig, Scenario};
use super::stage::with_stage;

async fn converges(scenario: Scenario) -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut rig = Rig::start(stage).await?;
        let (writes, reference) = rig.reference(scenario).await.with_context(|| rig.operator.words())?;
        // Without a write of ours there is nothing to be cut off after.
        anyhow::ensure!(writes > 0 || matches!(scenario, Scenario::Delete), "{scenario:?} wrote nothing");
        if matches!(scenario, Scenario::LoseNode) {
            stage.servers.delete("ref", &DeleteParams::default()).await?;
        }
        for (word, action) in [("kill", Action::Kill), ("lost", Action::HangUp)] {
            for k in 1..=writes {
                let name = format!("{word}-{k}");
                if matches!(scenario, Scenario::LoseNode) {
                    for node in ["node-1", "node-2"] {
                        stage.plane.revive_node(node).await?;
                    }
                }
                let ending = rig.with_fault(scenario, &name, k as u64, action.clone()).await;
                let ending = ending.with_context(|| {
                    format!("{scenario:?}, {word} after write {k} of {writes}:\n{}", rig.operator.words())
                })?;
                anyhow::ensure!(
                    ending == reference,
                    "{scenario:?}, {word} after write {k} of {writes}: came to\n{ending:#?}\ninstead of\n{reference:#?}"
                );
                stage.servers.delete(&name, &DeleteParams::default()).await.map(drop).or_else(|error| match error {
                    kube::Error::Api(status) if status.code == 404 => Ok(()),
                    error => Err(error),
                })?;
            }
        }
        Ok(())
    })
    .await
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
    converges(Scenario::Delete).await
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
