//! Bad luck that people bring about: a flavor changed or taken away in use, a namespace deleted with a server in it, a node
//! that is drained.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{DevServer, DevServerFlavor, Phase};
use odc_tests::audit::Request;
use odc_tests::odc;
use serde_json::json;

use super::stage::{NAMESPACE, OPERATOR, Stage, flavor, until, until_none, with_stage};

fn message(server: &DevServer) -> String {
    let conditions = server.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, Type::Ready).map(|condition| condition.message.to_string()).unwrap_or_default()
}

fn cpu(pod: &Pod) -> Option<String> {
    let container = pod.spec.as_ref()?.containers.iter().find(|container| container.name == "dev")?;
    Some(container.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0.clone())
}

/// The server runs on with the pod it had, and nobody wrote anything but words about it.
async fn check_runs_on(stage: &Stage<'_>, mark: usize, before: &Pod) -> anyhow::Result<()> {
    stage.quiet().await?;
    let server = stage.servers.get("runs").await?;
    assert_eq!(server.status.unwrap_or_default().phase, Some(Phase::Running));
    let now = stage.pods.get("runs-0").await?;
    assert_eq!((now.uid(), now.metadata.deletion_timestamp), (before.uid(), None));
    let touched: Vec<String> = stage.written_since(mark)?.into_iter().filter(|line| line.contains("/runs-")).collect();
    let touched: Vec<&String> = touched.iter().filter(|line| !line.contains(" events ")).collect();
    assert_eq!(touched, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_flavor_changed_or_taken_away_leaves_those_who_run_alone() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut operator = stage.operator().await?;
        let admin = &stage.plane.client;
        stage.create("runs", json!({"flavor": "gpu", "count": 2})).await?;
        stage.until_phase("runs", Phase::Running).await?;
        let before = stage.pods.get("runs-0").await?;
        let mark = stage.quiet().await?;

        // New ones get what it says now.
        let mut larger = flavor("gpu", false);
        larger["spec"]["resources"]["cpu"] = "300m".into();
        odc::apply(admin, &larger).await?;
        stage.create("larger", json!({"flavor": "gpu"})).await?;
        stage.until_phase("larger", Phase::Running).await?;
        assert_eq!((cpu(&before), cpu(&stage.pods.get("larger-0").await?)), (Some("100m".into()), Some("300m".into())));
        check_runs_on(stage, mark, &before).await?;

        // It offers less than somebody has.
        let mut fewer = flavor("gpu", false);
        fewer["spec"]["device"]["perNode"] = 1.into();
        odc::apply(admin, &fewer).await?;
        stage.create("fewer", json!({"flavor": "gpu", "count": 2})).await?;
        let told = |server: &DevServer| message(server).contains("nvidia.com/gpu on a node, not 2");
        stage.until("fewer", "told that it is too much", told).await?;
        check_runs_on(stage, mark, &before).await?;

        // It is gone, for whoever leads.
        let flavors: Api<DevServerFlavor> = Api::all(admin.clone());
        flavors.delete("gpu", &DeleteParams::default()).await?;
        stage.create("late", json!({"flavor": "gpu"})).await?;
        let told = |server: &DevServer| message(server).contains("Flavor gpu does not exist");
        stage.until("late", "told that there is none", told).await?;
        check_runs_on(stage, mark, &before).await?;
        operator.kill().await?;
        stage.forget_leader().await?;
        let _next = stage.operator().await?;
        check_runs_on(stage, mark, &before).await?;

        // It comes back, and nobody has to ask again.
        odc::apply(admin, &flavor("gpu", false)).await?;
        for name in ["late", "fewer"] {
            stage.until_phase(name, Phase::Running).await?;
        }
        check_runs_on(stage, mark, &before).await
    })
    .await
}

/// Everything the operator asked for in ada's namespace, stored or not.
fn asked(stage: &Stage<'_>, since: usize) -> anyhow::Result<Vec<Request>> {
    let requests = stage.plane.requests()?.into_iter().skip(since);
    let ours = requests.filter(|request| request.user == OPERATOR && request.namespace == NAMESPACE);
    Ok(ours.filter(|request| request.verb != "watch").collect())
}

#[tokio::test]
async fn a_namespace_deleted_with_a_server_in_it_is_let_go_and_made_anew() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let admin = &stage.plane.client;
        stage.create("box", json!({"flavor": "gpu", "count": 8})).await?;
        stage.until_phase("box", Phase::Running).await?;
        // Somebody keeps it from going at once.
        let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), NAMESPACE);
        let kept = json!({"metadata": {"name": "kept", "finalizers": ["example.org/hold"]}});
        maps.create(&PostParams::default(), &serde_json::from_value(kept)?).await?;
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        let before = namespaces.get(NAMESPACE).await?.uid();
        namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
        stage.until_gone("box").await?;
        until_none(&stage.pods, "box-0").await?;

        // While it goes, nothing is made in it, and it is not asked for all the time either.
        let mark = stage.quiet().await?;
        tokio::time::sleep(Duration::from_secs(6)).await;
        let asked = asked(stage, mark)?;
        anyhow::ensure!(asked.len() <= 4, "it does not wait: {asked:#?}");
        assert_eq!(namespaces.get(NAMESPACE).await?.uid(), before);

        // When it is gone the user has a new one, and what the server held is free.
        let free = json!({"metadata": {"finalizers": null}});
        maps.patch("kept", &PatchParams::default(), &Patch::Merge(&free)).await?;
        until(&namespaces, NAMESPACE, "new", |now| now.is_some_and(|now| now.uid() != before)).await?;
        stage.user_ready("ada").await?;
        for name in ["box", "other"] {
            stage.create(name, json!({"flavor": "gpu", "count": 8})).await?;
            stage.until_phase(name, Phase::Running).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_drained_node_gives_its_servers_to_another() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        stage.create("leaves", json!({"flavor": "gpu", "count": 4})).await?;
        let server = stage.until_phase("leaves", Phase::Running).await?;
        let nodes = |server: &DevServer| {
            let admission = server.status.as_ref().and_then(|status| status.admission.clone());
            admission.unwrap_or_default().nodes
        };
        let first = nodes(&server);
        let there = json!({"nodeLabels": {"kubernetes.io/hostname": first[0]}});
        stage.create("stays", json!({"flavor": "gpu", "count": 2, "scheduling": there})).await?;
        stage.until_phase("stays", Phase::Running).await?;
        let stays = stage.pods.get("stays-0").await?.uid();

        // As `kubectl drain` does it: no new pods there, and this one goes.
        let all: Api<Node> = Api::all(stage.plane.client.clone());
        let closed = json!({"spec": {"unschedulable": true}});
        all.patch(&first[0], &PatchParams::default(), &Patch::Merge(&closed)).await?;
        stage.pods.delete("leaves-0", &DeleteParams::default()).await?;
        let elsewhere = |server: &DevServer| {
            let now = nodes(server);
            let phase = server.status.as_ref().and_then(|status| status.phase);
            phase == Some(Phase::Running) && !now.is_empty() && now != first
        };
        stage.until("leaves", "on another node", elsewhere).await?;
        let pod = stage.pods.get("leaves-0").await?;
        assert_ne!(pod.spec.and_then(|spec| spec.node_name).as_ref(), first.first());
        // Whose pod nobody deleted stays where it is.
        assert_eq!(stage.pods.get("stays-0").await?.uid(), stays);
        assert_eq!(stage.servers.get("stays").await?.status.unwrap_or_default().phase, Some(Phase::Running));
        Ok(())
    })
    .await
}
