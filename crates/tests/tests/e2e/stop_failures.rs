//! Failures during a stop, as owners see them.

use odc_tests::wait;
use serde_json::json;

use crate::tenant::{TIMEOUT, with_tenant};

#[tokio::test]
async fn failed_pre_stop_script_is_reported_with_its_output() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let setup = json!({"preStop": "echo run >> $HOME/runs; echo no space is left; exit 3"});
        crate::tenant::create_claim(tenant, "home").await?;
        tenant.create("box", json!({"home": {"claim": "home"}, "setup": setup})).await?;
        tenant.wait_for_phase("box", "Running").await?;
        // The operator runs preStop through an agent that has its access file.
        wait::until("access file of the agent", TIMEOUT, async || {
            tenant.exec("box-0", "test -e /run/odc/access.json").await
        })
        .await?;
        tenant.patch_spec("box", json!({"desired": "Hibernated"})).await?;
        let server = tenant.wait_for_phase("box", "Hibernated").await?;
        let failure = &server["status"]["lastFailure"];
        assert_eq!(failure["reason"], "PreStopFailed", "{server}");
        assert_eq!(failure["message"], "preStop exited with code 3. The stop was continued.");
        assert_eq!(failure["logTail"], "no space is left");
        wait::until("event about preStop", TIMEOUT, async || {
            let events = tenant.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).await?;
            anyhow::ensure!(events.contains("PreStopFailed"), "{events}");
            Ok(())
        })
        .await?;

        // The script ran once for this stop.
        tenant.patch_spec("box", json!({"desired": "Running"})).await?;
        tenant.wait_for_phase("box", "Running").await?;
        assert_eq!(tenant.exec("box-0", "cat $HOME/runs").await?, "run\n");
        Ok(())
    })
    .await
}
