//! Disks as homes of servers, with real volumes and snapshots.

use anyhow::Context as _;
use odc_tests::user::wait_ready;
use serde_json::{Value, json};

use crate::tenant::{TIMEOUT, Tenant, with_tenant};

#[tokio::test]
async fn disk_keeps_the_home_across_stops_and_goes_back_to_a_restore_point() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        wait_ready(&tenant.cluster.namespace.client, &tenant.user).await?;
        create(tenant, "Disk", "home", json!({"size": "64Mi"})).await?;
        tenant.create("box", json!({"home": {"disk": "home"}, "setup": {"recreateEnv": true}})).await?;
        tenant.wait_for_phase("box", "Running").await?;
        tenant.exec("box-0", "cd $HOME && cmp .bashrc /etc/skel/.bashrc").await?;
        tenant.exec("box-0", "cd $HOME && echo first > work && echo mine > .bashrc && sync").await?;

        hibernate(tenant).await?;
        let point = wait_for_point(tenant).await?;
        assert_eq!((&point["reason"], &point["consistency"]), (&json!("Stop"), &json!("Clean")));
        wait_for(tenant, "disk/home", "{.status.points[0].listing.files}").await?;
        let name = point["name"].as_str().context("the point has no name")?;
        let listing = tenant.kubectl(&["get", "configmap", name, "-o", "json"]).await?;
        let listing: Value = serde_json::from_str(&listing)?;
        assert_eq!(listing["metadata"]["ownerReferences"][0]["name"], json!(name));
        wake(tenant).await?;
        assert_eq!(tenant.exec("box-0", "cat $HOME/work $HOME/.bashrc").await?, "first\nmine\n");
        tenant.exec("box-0", "echo second > $HOME/work && sync").await?;

        // Another server cannot use the disk meanwhile.
        tenant.create("second", json!({"home": {"disk": "home"}})).await?;
        wait_for(tenant, "dsv/second", "{.status.conditions[?(@.type=='DiskReady')].reason}=DiskInUse").await?;
        tenant.kubectl(&["delete", "dsv", "second", "--wait=true"]).await?;

        hibernate(tenant).await?;
        let arguments = json!({"disk": "home", "action": "Rollback", "arguments": {"point": point["name"]}});
        create(tenant, "DiskOperation", "back", arguments).await?;
        wait_for(tenant, "diskoperation/back", "{.status.phase}=Succeeded").await?;
        wake(tenant).await?;
        assert_eq!(tenant.exec("box-0", "cat $HOME/work").await?, "first\n");
        tenant.kubectl(&["delete", "dsv", "box", "--wait=true"]).await?;
        // Leaves a claim that waits for a server, and uses a restore point until then.
        let arguments = json!({"disk": "home", "action": "Rollback", "arguments": {"point": point["name"]}});
        create(tenant, "DiskOperation", "again", arguments).await?;
        wait_for(tenant, "diskoperation/again", "{.status.phase}=Succeeded").await?;

        let error = tenant.kubectl(&["delete", "disk", "home"]).await.unwrap_err().to_string();
        assert!(error.contains("odc.dev/confirm-delete: home"), "{error}");
        tenant.kubectl(&["annotate", "disk", "home", "odc.dev/confirm-delete=home"]).await?;
        tenant.kubectl(&["delete", "disk", "home", "--wait=false"]).await?;
        wait_deleted(tenant, "disk/home").await?;
        let claims = tenant.kubectl(&["get", "pvc", "-o", "name"]).await?;
        assert_eq!(claims, "", "the data is deleted with the disk");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn restore_point_is_browsed_compared_and_restored_from() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        wait_ready(&tenant.cluster.namespace.client, &tenant.user).await?;
        create(tenant, "Disk", "home", json!({"size": "64Mi"})).await?;
        tenant.create("box", json!({"home": {"disk": "home"}})).await?;
        tenant.wait_for_phase("box", "Running").await?;
        tenant.exec("box-0", "cd $HOME && echo first > work && mkdir dir && echo kept > dir/file && sync").await?;
        hibernate(tenant).await?;
        let point = wait_for_point(tenant).await?;
        wake(tenant).await?;
        tenant.exec("box-0", "cd $HOME && echo second > work && rm -r dir && sync").await?;

        // While the server runs.
        let operation = |action: &str| json!({"disk": "home", "action": action, "arguments": {"point": point["name"]}});
        create(tenant, "DiskOperation", "browse", operation("Browse")).await?;
        create(tenant, "DiskOperation", "diff", operation("Diff")).await?;
        wait_for(tenant, "diskoperation/diff", "{.status.phase}=Succeeded").await?;
        let diff = result(tenant, "diff").await?["diff"].clone();
        let paths = diff["paths"].as_array().context("the diff has no paths")?;
        assert!(paths.contains(&json!("D dir/")) && paths.contains(&json!("M work")), "{diff}");
        wait_for(tenant, "diskoperation/browse", "{.status.result.pod}").await?;
        let browse = result(tenant, "browse").await?;
        let pod = browse["pod"].as_str().context("the operation has no pod")?;
        assert!(browse["hostKey"].as_str().is_some_and(|key| key.starts_with("ssh-ed25519 ")), "{browse}");
        assert_eq!(tenant.exec(pod, "cat $HOME/work $HOME/dir/file").await?, "first\nkept\n");
        tenant.exec(pod, "touch $HOME/new 2>/dev/null && exit 1 || exit 0").await?;

        hibernate(tenant).await?;
        let mut restore = operation("Restore");
        restore["arguments"]["paths"] = json!(["dir"]);
        create(tenant, "DiskOperation", "restore", restore).await?;
        wait_for(tenant, "diskoperation/restore", "{.status.phase}=Succeeded").await?;
        wake(tenant).await?;
        assert_eq!(tenant.exec("box-0", "cat $HOME/work $HOME/dir/file").await?, "second\nkept\n");

        // The pod and its claim are deleted with the operation.
        tenant.kubectl(&["delete", "diskoperation", "browse"]).await?;
        wait_deleted(tenant, &format!("pod/{pod}")).await?;
        let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
        tenant.kubectl(&["wait", "pvc", "-l", "odc.dev/operation-uid", "--for=delete", &timeout]).await?;
        Ok(())
    })
    .await
}

/// Returns the result of an operation.
async fn result(tenant: &Tenant<'_>, name: &str) -> anyhow::Result<Value> {
    let operation: Value = serde_json::from_str(&tenant.kubectl(&["get", "diskoperation", name, "-o", "json"]).await?)?;
    Ok(operation["status"]["result"].clone())
}

async fn create(tenant: &Tenant<'_>, kind: &str, name: &str, spec: Value) -> anyhow::Result<()> {
    tenant
        .create_object(
            &json!({"apiVersion": "odc.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}),
        )
        .await
}

async fn hibernate(tenant: &Tenant<'_>) -> anyhow::Result<()> {
    tenant.patch_spec("box", json!({"desired": "Hibernated"})).await?;
    tenant.wait_for_phase("box", "Hibernated").await.map(drop)
}

async fn wake(tenant: &Tenant<'_>) -> anyhow::Result<()> {
    tenant.patch_spec("box", json!({"desired": "Running"})).await?;
    tenant.wait_for_phase("box", "Running").await.map(drop)
}

/// Waits until a field has a value.
async fn wait_for(tenant: &Tenant<'_>, object: &str, condition: &str) -> anyhow::Result<()> {
    wait(tenant, object, &format!("--for=jsonpath={condition}")).await
}

async fn wait_deleted(tenant: &Tenant<'_>, object: &str) -> anyhow::Result<()> {
    wait(tenant, object, "--for=delete").await
}

/// Waits for a condition, and describes the disk if it is not met.
async fn wait(tenant: &Tenant<'_>, object: &str, condition: &str) -> anyhow::Result<()> {
    let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
    if let Err(error) = tenant.kubectl(&["wait", object, condition, &timeout]).await {
        let state =
            tenant.kubectl_as_admin(&["get", "disk,diskoperation,pod,pvc,volumesnapshot", "-o", "yaml"], None).await;
        return Err(error.context(state.unwrap_or_default()));
    }
    Ok(())
}

/// Waits for the first verified restore point.
async fn wait_for_point(tenant: &Tenant<'_>) -> anyhow::Result<Value> {
    wait_for(tenant, "disk/home", "{.status.points[0].ready}=true").await?;
    let disk: Value = serde_json::from_str(&tenant.kubectl(&["get", "disk", "home", "-o", "json"]).await?)?;
    disk["status"]["points"].get(0).cloned().context("the disk has no restore point")
}
