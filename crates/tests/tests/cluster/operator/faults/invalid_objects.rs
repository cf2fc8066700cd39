//! Stored objects that cannot be deserialized.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, Phase};
use odc_tests::{manifests, wait};
use serde_json::{Value, json};

use super::super::fixture::{Fixture, NAMESPACE, TIMEOUT, user, wait_absent, wait_for, with_fixture};

/// Returns the servers of ada without their types, to read invalid ones.
pub fn untyped_servers(fixture: &Fixture<'_>) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("odc.dev", "v1alpha1", "DevServer"));
    Api::namespaced_with(fixture.plane.client.clone(), NAMESPACE, &resource)
}

/// Waits until the status of a server says that the object is invalid.
pub async fn wait_reported_invalid(fixture: &Fixture<'_>, name: &str) -> anyhow::Result<()> {
    let reported = |server: Option<&DynamicObject>| {
        let conditions = server.and_then(|server| server.data["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(|condition| {
            let message = condition["message"].as_str().unwrap_or_default();
            condition["type"] == "Accepted"
                && condition["status"] == "False"
                && condition["reason"] == "Invalid"
                && message.starts_with("Invalid object: ")
                && message.ends_with("delete and recreate it.")
        })
    };
    wait_for(&untyped_servers(fixture), name, "reported as invalid", reported).await.map(drop)
}

#[tokio::test]
async fn invalid_server_affects_no_other_server() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut operator = fixture.start_operator().await?;
        let invalid = |name: &str, keys: Value| {
            json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"home": {"ephemeral": "1Gi"}, "flavor": "gpu", "count": 8, "nodes": 1, "idle": {"action": "None"},
                    "access": {"keys": keys}}})
        };
        let flavors: Api<DevServerFlavor> = Api::all(fixture.plane.client.clone());
        let wait_free = async |devices: i64| {
            let matches = |flavor: Option<&DevServerFlavor>| {
                flavor.and_then(|flavor| flavor.status.as_ref()?.free) == Some(devices)
            };
            wait_for(&flavors, "gpu", &format!("free: {devices}"), matches).await.map(drop)
        };
        fixture.create_running("good", json!({"flavor": "gpu", "count": 8})).await?;

        // It appears while the operator runs.
        fixture.store_invalid(&invalid("bad", json!(["no key"]))).await?;
        wait_reported_invalid(fixture, "bad").await?;
        fixture.create_running("second", json!({"flavor": "gpu", "count": 8})).await?;
        let mark = fixture.wait_idle().await?;
        assert!(operator.get("/metrics").await?.contains("odc_invalid_objects_total{kind=\"DevServer\"}"));

        // It exists when the operator starts.
        operator.kill().await?;
        fixture.release_lease().await?;
        let mut next = fixture.start_operator().await?;
        fixture.wait_idle().await?;
        assert_eq!(fixture.writes_since(mark)?, Vec::<String>::new());
        let phase = |server: DevServer| server.status.unwrap_or_default().phase;
        assert_eq!(phase(fixture.servers.get("good").await?), Some(Phase::Running));

        // A running server becomes invalid. It keeps its devices and releases them when it is deleted. No operator runs while
        // the schema is relaxed, so that the status is written under the strict one.
        next.kill().await?;
        fixture.store_invalid(&invalid("second", json!("none"))).await?;
        fixture.release_lease().await?;
        let _third = fixture.start_operator().await?;
        wait_reported_invalid(fixture, "second").await?;
        assert!(fixture.pods.get("second-0").await?.metadata.deletion_timestamp.is_none());
        wait_free(0).await?;
        untyped_servers(fixture).delete("second", &DeleteParams::default()).await?;
        fixture.wait_pod_deleted("second-0").await?;
        wait_free(8).await?;
        fixture.wait_idle().await?;

        // Corrected as the message says, the server starts.
        let corrected = json!({"spec": {"access": {"keys": []}}});
        untyped_servers(fixture).patch("bad", &PatchParams::default(), &Patch::Merge(&corrected)).await?;
        fixture.wait_for_phase("bad", Phase::Running).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn invalid_user_keeps_namespace_and_servers() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let operator = fixture.start_operator().await?;
        fixture.create_running("box", json!({})).await?;
        let mark = fixture.wait_idle().await?;
        let mut ada = user("ada");
        ada["spec"] = json!({"quota": "none"});
        fixture.store_invalid(&ada).await?;
        wait::until("invalid object metric", TIMEOUT, async || {
            let metrics = operator.get("/metrics").await?;
            let counted = metrics.contains("odc_invalid_objects_total{kind=\"DevServerUser\"}");
            anyhow::ensure!(counted, "{}", operator.log_tail());
            Ok(())
        })
        .await?;
        fixture.wait_idle().await?;
        let deletions: Vec<String> =
            fixture.writes_since(mark)?.into_iter().filter(|line| line.starts_with("delete")).collect();
        assert_eq!(deletions, Vec::<String>::new());
        assert_eq!(fixture.servers.get("box").await?.status.unwrap_or_default().phase, Some(Phase::Running));
        // Other users are not affected.
        manifests::apply(&fixture.plane.client, &user("bob")).await?;
        fixture.wait_user_ready("bob").await?;

        // A deleted invalid user is cleaned up like any other.
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("odc.dev", "v1alpha1", "DevServerUser"));
        let users: Api<DynamicObject> = Api::all_with(fixture.plane.client.clone(), &resource);
        users.delete("ada", &DeleteParams::default()).await?;
        wait_absent(&Api::<Namespace>::all(fixture.plane.client.clone()), NAMESPACE).await
    })
    .await
}
