//! What only the kube-scheduler and the API server know of a node or a pod, and the queue counts all the same.

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use odc_api::v1alpha1::condition::{self, Sentence, Type};
use odc_api::v1alpha1::{DevServer, DevServerFlavor, Phase};
use odc_tests::odc;
use serde_json::{Value, json};

use super::stage::{Stage, flavor, until, with_stage};

const DRIVER: &str = "disks.example.org";

/// Waits until a server is in the queue for this reason.
async fn until_waiting(stage: &Stage<'_>, name: &str, reason: &str, why: &str) -> anyhow::Result<()> {
    let waits = |server: &DevServer| {
        let status = server.status.as_ref().filter(|status| status.phase == Some(Phase::Queued));
        let admission = status.and_then(|status| status.admission.as_ref());
        admission.is_some_and(|admission| {
            let said = admission.message.as_ref().map(Sentence::as_str);
            admission.reason.as_deref() == Some(reason) && said == Some(why)
        })
    };
    stage.until(name, &format!("waiting: {why}"), waits).await.map(drop)
}

/// On one node, so that no other one helps.
fn on(node: &str) -> Value {
    json!({"nodeLabels": {"kubernetes.io/hostname": node}})
}

#[tokio::test]
async fn whoever_brings_a_volume_waits_for_a_node_that_can_attach_it() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {"attachRequired": false}});
        let limits = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "node-1"},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": "node-1", "topologyKeys": [], "allocatable": {"count": 1}}]}});
        for object in [driver, limits] {
            odc::apply(&stage.plane.client, &object).await?;
        }
        for (server, claim) in [("first", "one"), ("second", "two")] {
            stage.claim_of(claim, &json!({"csi": {"driver": DRIVER, "volumeHandle": claim}})).await?;
            stage.create(server, json!({"home": {"claim": claim}, "scheduling": on("node-1")})).await?;
            if server == "first" {
                stage.until_phase(server, Phase::Running).await?;
            }
        }
        let why = format!(
            "Needs 0.1 CPU and 64Mi of memory with 1 volume of {DRIVER} on one node; no node can attach one more."
        );
        until_waiting(stage, "second", "InsufficientCapacity", &why).await?;
        // Who brings none is not concerned.
        stage.create("plain", json!({"scheduling": on("node-1")})).await?;
        stage.until_phase("plain", Phase::Running).await?;
        assert!(stage.pods.get_opt("second-0").await?.is_none());

        stage.change("first", json!({"desired": "Ended"})).await?;
        stage.until_phase("second", Phase::Running).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_the_runtime_takes_for_itself_is_waited_for_too() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let client = &stage.plane.client;
        let room = [("cpu", "200m"), ("memory", "1Gi"), ("ephemeral-storage", "10Gi")];
        stage.plane.add_node("small", &room).await?;
        let mut boxed = flavor("boxed", false);
        boxed["spec"]["runtimeClass"] = "sandbox".into();
        odc::apply(client, &boxed).await?;

        // Its runtime is missed, and nobody has to ask again when it comes.
        let flavors: Api<DevServerFlavor> = Api::all(client.clone());
        let lacks = |flavor: Option<&DevServerFlavor>| {
            let status = flavor.and_then(|flavor| flavor.status.as_ref());
            let ready = status.and_then(|status| condition::find(&status.conditions, Type::Ready));
            ready.is_some_and(|ready| ready.message.contains("RuntimeClass sandbox does not exist"))
        };
        until(&flavors, "boxed", "said to lack its runtime", lacks).await?;
        stage.create("plain", json!({"scheduling": on("small")})).await?;
        stage.until_phase("plain", Phase::Running).await?;
        stage.create("boxed", json!({"flavor": "boxed", "scheduling": on("small")})).await?;
        let refused = |server: &DevServer| {
            let status = server.status.as_ref();
            let accepted = status.and_then(|status| condition::find(&status.conditions, Type::Accepted));
            accepted.is_some_and(|accepted| accepted.reason == "NotSupported" && accepted.message.contains("sandbox"))
        };
        stage.until("boxed", "told what is missing", refused).await?;

        // Without what the runtime takes it would just fit.
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandbox"},
            "handler": "runsc", "overhead": {"podFixed": {"cpu": "50m"}}});
        odc::apply(client, &class).await?;
        let why = "Needs 0.15 CPU and 64Mi of memory on one node; at most 0.1 CPU are free on one node, 0.1 in all.";
        until_waiting(stage, "boxed", "InsufficientCapacity", why).await?;
        stage.change("plain", json!({"desired": "Ended"})).await?;
        stage.until_phase("boxed", Phase::Running).await?;
        let pod: Pod = stage.pods.get("boxed-0").await?;
        let overhead = pod.spec.and_then(|spec| spec.overhead).unwrap_or_default();
        assert_eq!(overhead.get("cpu").map(|cpu| cpu.0.as_str()), Some("50m"));
        Ok(())
    })
    .await
}
