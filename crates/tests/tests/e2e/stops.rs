//! What owners learn of a stop that was not quite in order.

use odc_tests::wait;
use serde_json::json;

use crate::demo::{LIMIT, with_demo};

#[tokio::test]
async fn an_owner_learns_that_pre_stop_failed_and_why() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let setup = json!({"preStop": "echo run >> $HOME/runs; echo no space is left; exit 3"});
        crate::demo::claim(demo, "kept").await?;
        demo.create("box", json!({"home": {"claim": "kept"}, "setup": setup})).await?;
        demo.until_phase("box", "Running").await?;
        // Only an agent that was told something is asked before a stop.
        wait::until("its agent is known", LIMIT, async || demo.inside("box-0", "test -e /run/odc/access.json").await)
            .await?;
        demo.change("box", json!({"desired": "Hibernated"})).await?;
        let server = demo.until_phase("box", "Hibernated").await?;
        let failure = &server["status"]["lastFailure"];
        assert_eq!(failure["reason"], "PreStopFailed", "{server}");
        assert_eq!(failure["message"], "preStop ended with exit code 3; the stop went on without it.");
        assert_eq!(failure["logTail"], "no space is left");
        wait::until("an event tells it", LIMIT, async || {
            let events = demo.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).await?;
            anyhow::ensure!(events.contains("PreStopFailed"), "{events}");
            Ok(())
        })
        .await?;

        // It ran once for this stop, and runs again for the next.
        demo.change("box", json!({"desired": "Running"})).await?;
        demo.until_phase("box", "Running").await?;
        assert_eq!(demo.inside("box-0", "cat $HOME/runs").await?, "run\n");
        Ok(())
    })
    .await
}
