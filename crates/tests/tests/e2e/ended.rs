//! What becomes of a server that has ended, with the operator in the cluster under its own rights.

use odc_tests::finally::finally;
use serde_json::json;

use crate::demo::{Demo, LIMIT, claim, with_demo};

#[tokio::test]
async fn an_ended_server_is_final_then_deleted_and_its_data_stays() -> anyhow::Result<()> {
    with_demo(async |demo| {
        claim(demo, "outlives").await?;
        demo.create("old", json!({"home": {"claim": "outlives"}})).await?;
        demo.until_phase("old", "Running").await?;
        demo.inside("old-0", "echo precious > $HOME/work").await?;
        demo.change("old", json!({"desired": "Ended"})).await?;
        demo.until_phase("old", "Cancelled").await?;
        for change in [json!({"desired": "Running"}), json!({"lifetime": "10h"}), json!({"wake": "again"})] {
            let refused = demo.change("old", change).await.unwrap_err().to_string();
            assert!(refused.contains("this server has ended and can no longer change"), "{refused}");
        }

        // Only now is its time short: the tests here have the cluster to themselves, and what they look at has not to be
        // faster than the operator.
        let gone = async {
            keep_ended(demo, "ODC_KEEP_ENDED=1s").await?;
            let timeout = format!("--timeout={}s", LIMIT.as_secs());
            demo.kubectl(&["wait", "dsv/old", "--for=delete", &timeout]).await
        };
        finally(gone, async || keep_ended(demo, "ODC_KEEP_ENDED-").await).await?;

        assert!(demo.kubectl(&["get", "pvc", "outlives"]).await?.contains("Bound"), "data outlives the server");
        demo.create("new", json!({"home": {"claim": "outlives"}})).await?;
        demo.until_phase("new", "Running").await?;
        assert_eq!(demo.inside("new-0", "cat $HOME/work").await?, "precious\n");
        Ok(())
    })
    .await
}

/// Sets how long ended servers stay, or takes that back, until the operator goes by it.
async fn keep_ended(demo: &Demo<'_>, setting: &str) -> anyhow::Result<()> {
    let timeout = format!("--timeout={}s", LIMIT.as_secs());
    for arguments in [
        &["set", "env", "deployment/odc-operator", setting][..],
        &["rollout", "status", "deployment/odc-operator", &timeout],
    ] {
        demo.kubectl_as("odc-local", &[&["--namespace", "odc-system"], arguments].concat(), None).await?;
    }
    Ok(())
}
