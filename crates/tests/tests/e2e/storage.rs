//! Persistent volumes: snapshots, restore, expansion, a killed driver, and both nodes.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::await_condition;
use kube::{Resource, ResourceExt as _};
use odc_tests::cleanup::with_cleanup;
use odc_tests::{Namespace, pod, wait, with_cluster};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Of one step, including the election of another leader of the sidecars.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Appends a line every tenth of a second; the container fails with the first write that fails.
const TICK: &str = "while echo >> /home/ticks; do sleep 0.1; done; exit 1";

#[tokio::test]
async fn volume_survives_snapshot_expansion_driver_restart_and_move() -> anyhow::Result<()> {
    with_cluster(2, async |cluster| {
        let namespace = &cluster.namespace;
        // On the heap: the state of so many steps exceeds the stack of a test.
        with_cleanup(Box::pin(use_volumes(namespace)), async || Box::pin(delete_volumes(namespace)).await).await
    })
    .await
}

async fn use_volumes(namespace: &Namespace) -> anyhow::Result<()> {
    let snapshots = snapshot_api(namespace);
    create_claim(namespace, "home", None).await?;
    pod::run(namespace, volume_pod("first", "n1", "home", TICK)).await?;
    shell(namespace, "first", "echo old > /home/file").await?;

    let source = json!({"persistentVolumeClaimName": "home"});
    let spec = json!({"volumeSnapshotClassName": "odc-home", "source": source});
    let snapshot = DynamicObject::new("point", &snapshot_resource("VolumeSnapshot")).data(json!({"spec": spec}));
    snapshots.create(&PostParams::default(), &snapshot).await?;
    wait_for(snapshots, "point", |snapshot| snapshot.data["status"]["readyToUse"] == true).await?;
    shell(namespace, "first", "echo new > /home/file").await?;

    // The snapshot of a volume on one node is restored on the other.
    create_claim(namespace, "restored", Some("point")).await?;
    pod::run(namespace, volume_pod("second", "n2", "restored", "exec sleep infinity")).await?;
    assert_eq!(shell(namespace, "second", "cat /home/file").await?, "old\n");
    assert_eq!(shell(namespace, "first", "cat /home/file").await?, "new\n");

    Box::pin(expand(namespace)).await?;
    Box::pin(restart_driver(namespace)).await?;

    delete_pod(namespace, "first").await?;
    pod::run(namespace, volume_pod("third", "n2", "home", "exec sleep infinity")).await?;
    assert_eq!(shell(namespace, "third", "cat /home/file").await?, "new\n");

    delete_pod(namespace, "second").await?;
    delete_pod(namespace, "third").await?;
    delete_claims(namespace).await?;
    for volume in volumes(namespace).await? {
        wait_for(Api::all(namespace.client.clone()), &volume.name_any(), is_released).await?;
    }
    assert_eq!(volumes(namespace).await?.len(), 2, "the class retains volumes");
    Ok(())
}

/// A file of 96 MiB does not fit into the volume until it is expanded.
async fn expand(namespace: &Namespace) -> anyhow::Result<()> {
    let write = "head -c 100663296 /dev/zero > /home/large";
    let error = shell(namespace, "second", write).await.err().context("the file fits into the volume")?;
    assert!(error.to_string().contains("Disk quota exceeded"), "{error}");
    let claims: Api<PersistentVolumeClaim> = namespace.api();
    let patch = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "128Mi"}}}}));
    claims.patch("restored", &PatchParams::default(), &patch).await?;
    wait_for(claims.clone(), "restored", |claim| {
        let conditions = claim.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == "FileSystemResizePending"))
    })
    .await?;
    // The kubelet expands a volume when it next looks at the pod: at a change, or after a minute.
    let touch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/expanded": "true"}}}));
    namespace.api::<Pod>().patch("second", &PatchParams::default(), &touch).await?;
    wait_for(claims, "restored", |claim| {
        let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
        capacity.is_some_and(|capacity| capacity.get("storage").is_some_and(|size| size.0 == "128Mi"))
    })
    .await?;
    shell(namespace, "second", write).await.map(drop)
}

/// Kills the driver on the node of a pod that writes to its volume.
async fn restart_driver(namespace: &Namespace) -> anyhow::Result<()> {
    let drivers: Api<Pod> = Api::namespaced(namespace.client.clone(), "odc-csi");
    let on_node = ListParams::default().labels("app=odc-csi").fields("spec.nodeName=n1");
    let killed = drivers.list(&on_node).await?.items.pop().context("no driver on n1")?;
    drivers.delete(&killed.name_any(), &DeleteParams::default().grace_period(0)).await?;
    let tick = async || anyhow::Ok(shell(namespace, "first", "wc -l < /home/ticks").await?.trim().parse::<u64>()?);
    let before = tick().await?;
    wait::until("another driver on n1", STEP_TIMEOUT, async || {
        let current = drivers.list(&on_node).await?;
        let replaced = current.iter().any(|driver| driver.uid() != killed.uid() && pod::is_ready(driver));
        anyhow::ensure!(replaced, "not ready");
        Ok(())
    })
    .await?;
    wait::until("writes after the restart", STEP_TIMEOUT, async || {
        anyhow::ensure!(tick().await? > before, "no progress since {before}");
        Ok(())
    })
    .await?;
    let first = namespace.api::<Pod>().get("first").await?;
    let statuses = first.status.and_then(|status| status.container_statuses).unwrap_or_default();
    assert_eq!(statuses.iter().map(|status| status.restart_count).sum::<i32>(), 0, "a write failed");
    Ok(())
}

/// Deletes the data of all volumes and snapshots of the namespace.
async fn delete_volumes(namespace: &Namespace) -> anyhow::Result<()> {
    let params = PatchParams::default();
    let persistent: Api<PersistentVolume> = Api::all(namespace.client.clone());
    for volume in volumes(namespace).await? {
        let patch = Patch::Merge(json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
        persistent.patch(&volume.name_any(), &params, &patch).await?;
    }
    let contents: Api<DynamicObject> =
        Api::all_with(namespace.client.clone(), &snapshot_resource("VolumeSnapshotContent"));
    for content in contents_of(namespace, &contents).await? {
        contents
            .patch(&content.name_any(), &params, &Patch::Merge(json!({"spec": {"deletionPolicy": "Delete"}})))
            .await?;
    }
    let now = DeleteParams::default().grace_period(0);
    namespace.api::<Pod>().delete_collection(&now, &ListParams::default()).await?;
    delete_claims(namespace).await?;
    snapshot_api(namespace).delete_collection(&now, &ListParams::default()).await?;
    wait::until("deleted volumes and snapshots", STEP_TIMEOUT, async || {
        let left = (volumes(namespace).await?, contents_of(namespace, &contents).await?);
        anyhow::ensure!(left.0.is_empty() && left.1.is_empty(), "{left:#?}");
        Ok(())
    })
    .await
}

/// Waits until an object meets `condition`.
async fn wait_for<K>(api: Api<K>, name: &str, condition: impl Fn(&K) -> bool) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + Send + DeserializeOwned + Resource + 'static,
{
    let met = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&condition));
    if let Ok(result) = tokio::time::timeout(STEP_TIMEOUT, met).await {
        return result.map(drop).map_err(Into::into);
    }
    anyhow::bail!(
        "{name} does not meet the condition after {}s: {:#?}",
        STEP_TIMEOUT.as_secs(),
        api.get_opt(name).await?
    )
}

fn is_released(volume: &PersistentVolume) -> bool {
    volume.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Released"))
}

/// Returns a pod of an unprivileged user with the claim at `/home`.
fn volume_pod(name: &str, node: &str, claim: &str, script: &str) -> Value {
    let mut manifest = pod::manifest(name, script);
    let spec = &mut manifest["spec"];
    spec["restartPolicy"] = json!("OnFailure");
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    spec["securityContext"] = json!({"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000});
    spec["volumes"] = json!([{"name": "home", "persistentVolumeClaim": {"claimName": claim}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "home", "mountPath": "/home"}]);
    manifest
}

/// Creates a claim of the default class, empty or from a snapshot.
async fn create_claim(namespace: &Namespace, name: &str, snapshot: Option<&str>) -> anyhow::Result<()> {
    let mut claim = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "64Mi"}}},
    });
    if let Some(snapshot) = snapshot {
        claim["spec"]["dataSource"] =
            json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot});
    }
    let claims: Api<PersistentVolumeClaim> = namespace.api();
    claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    Ok(())
}

/// Deletes all claims of the namespace and waits until they are gone.
async fn delete_claims(namespace: &Namespace) -> anyhow::Result<()> {
    let claims: Api<PersistentVolumeClaim> = namespace.api();
    claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    wait::until("deleted claims", STEP_TIMEOUT, async || {
        let left = claims.list(&ListParams::default()).await?.items;
        anyhow::ensure!(left.is_empty(), "{left:#?}");
        Ok(())
    })
    .await
}

async fn delete_pod(namespace: &Namespace, name: &str) -> anyhow::Result<()> {
    let pods: Api<Pod> = namespace.api();
    pods.delete(name, &DeleteParams::default()).await?;
    let deleted = await_condition(pods, name, |pod: Option<&Pod>| pod.is_none());
    tokio::time::timeout(STEP_TIMEOUT, deleted).await.with_context(|| format!("pod {name} is not deleted"))??;
    Ok(())
}

/// Returns the persistent volumes of claims in the namespace, which may be deleted.
async fn volumes(namespace: &Namespace) -> anyhow::Result<Vec<PersistentVolume>> {
    let all = Api::<PersistentVolume>::all(namespace.client.clone()).list(&ListParams::default()).await?;
    let claimed = |volume: &PersistentVolume| {
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        claim.is_some_and(|claim| claim.namespace.as_ref() == Some(&namespace.name))
    };
    Ok(all.into_iter().filter(claimed).collect())
}

async fn contents_of(namespace: &Namespace, contents: &Api<DynamicObject>) -> anyhow::Result<Vec<DynamicObject>> {
    let all = contents.list(&ListParams::default()).await?;
    let bound =
        |content: &DynamicObject| content.data["spec"]["volumeSnapshotRef"]["namespace"] == namespace.name.as_str();
    Ok(all.into_iter().filter(bound).collect())
}

async fn shell(namespace: &Namespace, pod: &str, script: &str) -> anyhow::Result<String> {
    pod::exec(namespace, pod, &["sh", "-c", script]).await
}

fn snapshot_resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind))
}

fn snapshot_api(namespace: &Namespace) -> Api<DynamicObject> {
    Api::namespaced_with(namespace.client.clone(), &namespace.name, &snapshot_resource("VolumeSnapshot"))
}
