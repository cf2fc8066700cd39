//! Finished servers, with the installed operator.

use odc_tests::cleanup::with_cleanup;
use serde_json::json;

use crate::tenant::{TIMEOUT, Tenant, create_claim, with_exclusive_tenant};

#[tokio::test]
async fn finished_server_is_immutable_then_deleted_and_its_claim_stays() -> anyhow::Result<()> {
    with_exclusive_tenant(async |tenant| {
        create_claim(tenant, "outlives").await?;
        tenant.create("old", json!({"home": {"claim": "outlives"}})).await?;
        tenant.wait_for_phase("old", "Running").await?;
        tenant.exec("old-0", "echo precious > $HOME/work").await?;
        tenant.patch_spec("old", json!({"desired": "Ended"})).await?;
        tenant.wait_for_phase("old", "Cancelled").await?;
        for change in [json!({"desired": "Running"}), json!({"lifetime": "10h"}), json!({"wake": "again"})] {
            let error = tenant.patch_spec("old", change).await.unwrap_err().to_string();
            assert!(error.contains("the server has ended and is immutable"), "{error}");
        }

        // Set only now, so that the checks above do not race with the deletion. The test uses the cluster exclusively.
        let deleted = async {
            set_operator_env(tenant, "ODC_TTL_AFTER_FINISHED=1s").await?;
            let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
            tenant.kubectl(&["wait", "dsv/old", "--for=delete", &timeout]).await
        };
        with_cleanup(deleted, async || set_operator_env(tenant, "ODC_TTL_AFTER_FINISHED-").await).await?;

        assert!(tenant.kubectl(&["get", "pvc", "outlives"]).await?.contains("Bound"), "the claim outlives the server");
        tenant.create("new", json!({"home": {"claim": "outlives"}})).await?;
        tenant.wait_for_phase("new", "Running").await?;
        assert_eq!(tenant.exec("new-0", "cat $HOME/work").await?, "precious\n");
        Ok(())
    })
    .await
}

/// Sets or removes an environment variable of the operator, and waits for the rollout.
async fn set_operator_env(tenant: &Tenant<'_>, setting: &str) -> anyhow::Result<()> {
    let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
    for arguments in [
        &["set", "env", "deployment/odc-operator", setting][..],
        &["rollout", "status", "deployment/odc-operator", &timeout],
    ] {
        tenant.kubectl_as_admin(&[&["--namespace", "odc-system"], arguments].concat(), None).await?;
    }
    Ok(())
}
