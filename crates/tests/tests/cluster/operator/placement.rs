//! Placement constraints of the kube-scheduler and the API server that the queue accounts for.

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use odc_api::v1alpha1::condition::{self, Message, Type};
use odc_api::v1alpha1::{DevServer, DevServerFlavor, Phase};
use odc_tests::manifests;
use serde_json::{Value, json};

use super::fixture::{Fixture, flavor, wait_for, with_fixture};

const DRIVER: &str = "disks.example.org";

/// Waits until a server is queued with this reason and message.
async fn wait_queued(fixture: &Fixture<'_>, name: &str, reason: &str, message: &str) -> anyhow::Result<()> {
    let queued = |server: &DevServer| {
        let status = server.status.as_ref().filter(|status| status.phase == Some(Phase::Queued));
        let admission = status.and_then(|status| status.admission.as_ref());
        admission.is_some_and(|admission| {
            let reported = admission.message.as_ref().map(Message::as_str);
            admission.reason.as_deref() == Some(reason) && reported == Some(message)
        })
    };
    fixture.wait_for(name, &format!("queued: {message}"), queued).await.map(drop)
}

/// Returns scheduling constraints for one node.
fn pin_to_node(node: &str) -> Value {
    json!({"nodeLabels": {"kubernetes.io/hostname": node}})
}

#[tokio::test]
async fn server_with_a_volume_waits_for_an_attachable_node() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {"attachRequired": false}});
        let limits = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "node-1"},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": "node-1", "topologyKeys": [], "allocatable": {"count": 1}}]}});
        for object in [driver, limits] {
            manifests::apply(&fixture.plane.client, &object).await?;
        }
        for (server, claim) in [("first", "one"), ("second", "two")] {
            fixture.create_claim_with_source(claim, &json!({"csi": {"driver": DRIVER, "volumeHandle": claim}})).await?;
            fixture.create(server, json!({"home": {"claim": claim}, "scheduling": pin_to_node("node-1")})).await?;
            if server == "first" {
                fixture.wait_for_phase(server, Phase::Running).await?;
            }
        }
        let message = format!("Insufficient volume attachments of {DRIVER}: requires 1 on one node; none free.");
        wait_queued(fixture, "second", "InsufficientCapacity", &message).await?;
        // A server without a volume starts.
        fixture.create_running("plain", json!({"scheduling": pin_to_node("node-1")})).await?;
        assert!(fixture.pods.get_opt("second-0").await?.is_none());

        fixture.patch_spec("first", json!({"desired": "Ended"})).await?;
        fixture.wait_for_phase("second", Phase::Running).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn runtime_class_overhead_counts_as_a_request() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let client = &fixture.plane.client;
        let capacity = [("cpu", "200m"), ("memory", "1Gi"), ("ephemeral-storage", "10Gi")];
        fixture.plane.add_node("small", &capacity).await?;
        let mut boxed = flavor("boxed", false);
        boxed["spec"]["runtimeClass"] = "sandbox".into();
        manifests::apply(client, &boxed).await?;

        // The RuntimeClass is missing at first, and is detected when it is created.
        let flavors: Api<DevServerFlavor> = Api::all(client.clone());
        let missing = |flavor: Option<&DevServerFlavor>| {
            let status = flavor.and_then(|flavor| flavor.status.as_ref());
            let ready = status.and_then(|status| condition::find(&status.conditions, Type::Ready));
            ready.is_some_and(|ready| ready.message.contains("RuntimeClass sandbox not found"))
        };
        wait_for(&flavors, "boxed", "reported without RuntimeClass", missing).await?;
        fixture.create_running("plain", json!({"scheduling": pin_to_node("small")})).await?;
        fixture.create("boxed", json!({"flavor": "boxed", "scheduling": pin_to_node("small")})).await?;
        let rejected = |server: &DevServer| {
            let status = server.status.as_ref();
            let accepted = status.and_then(|status| condition::find(&status.conditions, Type::Accepted));
            accepted.is_some_and(|accepted| accepted.reason == "NotSupported" && accepted.message.contains("sandbox"))
        };
        fixture.wait_for("boxed", "rejected", rejected).await?;

        // Without the overhead it would fit.
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandbox"},
            "handler": "runsc", "overhead": {"podFixed": {"cpu": "50m"}}});
        manifests::apply(client, &class).await?;
        let message = "Insufficient CPU: requires 0.15 on one node; at most 0.1 free on a node, 0.1 in total.";
        wait_queued(fixture, "boxed", "InsufficientCapacity", message).await?;
        fixture.patch_spec("plain", json!({"desired": "Ended"})).await?;
        fixture.wait_for_phase("boxed", Phase::Running).await?;
        let pod: Pod = fixture.pods.get("boxed-0").await?;
        let overhead = pod.spec.and_then(|spec| spec.overhead).unwrap_or_default();
        assert_eq!(overhead.get("cpu").map(|cpu| cpu.0.as_str()), Some("50m"));
        Ok(())
    })
    .await
}
