//! Disruptions by administrators: a flavor changed or deleted while in use, a namespace deleted with a server in it, a
//! drained node.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use odc_api::v1alpha1::condition::Type;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, Phase};
use odc_tests::audit::Request;
use odc_tests::manifests;
use serde_json::json;

use super::fixture::{
    Fixture, NAMESPACE, OPERATOR, condition_message, flavor, status, wait_absent, wait_for, with_fixture,
};

/// Window in which retries are counted.
const RETRY_WINDOW: Duration = Duration::from_secs(6);
const MAX_RETRIES: usize = 4;

fn cpu_request(pod: &Pod) -> Option<String> {
    let container = pod.spec.as_ref()?.containers.iter().find(|container| container.name == "dev")?;
    Some(container.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0.clone())
}

/// Checks that the server still runs with the same pod, and that its objects were not written except for Events.
async fn check_still_running(fixture: &Fixture<'_>, mark: usize, before: &Pod) -> anyhow::Result<()> {
    fixture.wait_idle().await?;
    let server = fixture.servers.get("runs").await?;
    assert_eq!(server.status.unwrap_or_default().phase, Some(Phase::Running));
    let pod = fixture.pods.get("runs-0").await?;
    assert_eq!((pod.uid(), pod.metadata.deletion_timestamp), (before.uid(), None));
    let writes: Vec<String> = fixture.writes_since(mark)?.into_iter().filter(|line| line.contains("/runs-")).collect();
    let writes: Vec<&String> = writes.iter().filter(|line| !line.contains(" events ")).collect();
    assert_eq!(writes, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn running_server_survives_changes_and_deletion_of_its_flavor() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut operator = fixture.start_operator().await?;
        let admin = &fixture.plane.client;
        fixture.create_running("runs", json!({"flavor": "gpu", "count": 2})).await?;
        let before = fixture.pods.get("runs-0").await?;
        let mark = fixture.wait_idle().await?;

        // New servers use the new resources.
        let mut larger = flavor("gpu", false);
        larger["spec"]["resources"]["cpu"] = "300m".into();
        manifests::apply(admin, &larger).await?;
        fixture.create_running("larger", json!({"flavor": "gpu"})).await?;
        assert_eq!(
            (cpu_request(&before), cpu_request(&fixture.pods.get("larger-0").await?)),
            (Some("100m".into()), Some("300m".into()))
        );
        check_still_running(fixture, mark, &before).await?;

        // The flavor offers fewer devices than the running server has.
        let mut fewer = flavor("gpu", false);
        fewer["spec"]["device"]["perNode"] = 1.into();
        manifests::apply(admin, &fewer).await?;
        fixture.create("fewer", json!({"flavor": "gpu", "count": 2})).await?;
        let rejected = |server: &DevServer| condition_message(server, Type::Ready).contains("Invalid count 2");
        fixture.wait_for("fewer", "rejected", rejected).await?;
        check_still_running(fixture, mark, &before).await?;

        // The flavor is deleted, and another operator leads.
        let flavors: Api<DevServerFlavor> = Api::all(admin.clone());
        flavors.delete("gpu", &DeleteParams::default()).await?;
        fixture.create("late", json!({"flavor": "gpu"})).await?;
        let rejected = |server: &DevServer| condition_message(server, Type::Ready).contains("Flavor gpu not found");
        fixture.wait_for("late", "rejected", rejected).await?;
        check_still_running(fixture, mark, &before).await?;
        fixture.replace_operator(&mut operator).await?;
        check_still_running(fixture, mark, &before).await?;

        // The flavor is created again, and the rejected servers start.
        manifests::apply(admin, &flavor("gpu", false)).await?;
        for name in ["late", "fewer"] {
            fixture.wait_for_phase(name, Phase::Running).await?;
        }
        check_still_running(fixture, mark, &before).await
    })
    .await
}

/// Returns the requests of the operator in the namespace of ada.
fn requests_since(fixture: &Fixture<'_>, since: usize) -> anyhow::Result<Vec<Request>> {
    let requests = fixture.plane.requests()?.into_iter().skip(since);
    let by_operator = requests.filter(|request| request.user == OPERATOR && request.namespace == NAMESPACE);
    Ok(by_operator.filter(|request| request.verb != "watch").collect())
}

#[tokio::test]
async fn deleted_namespace_is_released_and_recreated() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let admin = &fixture.plane.client;
        fixture.create_running("box", json!({"flavor": "gpu", "count": 8})).await?;
        // A finalizer delays the deletion.
        let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), NAMESPACE);
        let held = json!({"metadata": {"name": "held", "finalizers": ["example.org/hold"]}});
        maps.create(&PostParams::default(), &serde_json::from_value(held)?).await?;
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        let before = namespaces.get(NAMESPACE).await?.uid();
        namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
        fixture.wait_deleted("box").await?;
        wait_absent(&fixture.pods, "box-0").await?;

        // While the namespace terminates, the operator creates nothing in it and retries rarely.
        let mark = fixture.wait_idle().await?;
        let start = Timestamp::now();
        tokio::time::sleep(RETRY_WINDOW).await;
        let mut retries = requests_since(fixture, mark)?;
        retries.retain(|request| request.received_at >= start && request.received_at <= start + RETRY_WINDOW);
        anyhow::ensure!(retries.len() <= MAX_RETRIES, "{} requests in {RETRY_WINDOW:?}: {retries:#?}", retries.len());
        assert_eq!(namespaces.get(NAMESPACE).await?.uid(), before);

        // Then the user has a new namespace, and the devices of the server are free.
        let released = json!({"metadata": {"finalizers": null}});
        maps.patch("held", &PatchParams::default(), &Patch::Merge(&released)).await?;
        wait_for(&namespaces, NAMESPACE, "recreated", |current| current.is_some_and(|current| current.uid() != before))
            .await?;
        fixture.wait_user_ready("ada").await?;
        for name in ["box", "other"] {
            fixture.create_running(name, json!({"flavor": "gpu", "count": 8})).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn server_of_a_drained_node_moves_to_another() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let server = fixture.create_running("leaves", json!({"flavor": "gpu", "count": 4})).await?;
        let nodes = |server: &DevServer| status(server).admission.unwrap_or_default().nodes;
        let first = nodes(&server);
        let same_node = json!({"nodeLabels": {"kubernetes.io/hostname": first[0]}});
        fixture.create_running("stays", json!({"flavor": "gpu", "count": 2, "scheduling": same_node})).await?;
        let stays = fixture.pods.get("stays-0").await?.uid();

        // As `kubectl drain` does: cordon the node and delete the pod.
        let nodes_api: Api<Node> = Api::all(fixture.plane.client.clone());
        let cordon = json!({"spec": {"unschedulable": true}});
        nodes_api.patch(&first[0], &PatchParams::default(), &Patch::Merge(&cordon)).await?;
        fixture.pods.delete("leaves-0", &DeleteParams::default()).await?;
        // The phase is Running until the operator has observed the deletion, so wait for the pod first.
        let moved = |pod: Option<&Pod>| {
            let node = pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref());
            node.is_some_and(|node| !first.contains(node))
        };
        fixture.wait_for_pod("leaves-0", "on another node", moved).await?;
        let elsewhere = |server: &DevServer| {
            let current = nodes(server);
            status(server).phase == Some(Phase::Running) && !current.is_empty() && current != first
        };
        fixture.wait_for("leaves", "running on another node", elsewhere).await?;
        // The server whose pod was not deleted stays.
        assert_eq!(fixture.pods.get("stays-0").await?.uid(), stays);
        assert_eq!(fixture.servers.get("stays").await?.status.unwrap_or_default().phase, Some(Phase::Running));
        Ok(())
    })
    .await
}
