//! Homes and the nodes that reach their pool: one pool while a node is stopped, and a pool per node.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::runtime::wait::await_condition;
use odc_tests::cleanup::with_cleanup;
use odc_tests::devctl_user::User;
use odc_tests::user::wait_ready;
use odc_tests::{ScratchCluster, operator, wait, with_scratch_cluster};
use serde_json::{Value, json};

use super::newest_point;
use crate::tenant::{Tenant, with_tenant_on};

/// Includes the start of a driver that formats its pool.
const STEP_TIMEOUT: Duration = Duration::from_secs(180);

/// Written into `deploy/local` of the cluster, and completed with the images that it runs.
const NODE_POOLS: &str = include_str!("node-pools.yaml");

#[tokio::test]
async fn home_is_restored_on_a_node_that_reaches_its_pool() -> anyhow::Result<()> {
    with_scratch_cluster(async |scratch| {
        scratch.odc_local(&["up", "--nodes", "2", "--gpus", "0"]).await?.check()?;
        operator::shorten_timeouts(&scratch.directory).await?;
        let cluster = scratch.cluster().await?;
        // On the heap: the state of so many steps exceeds the stack of a test.
        with_tenant_on(&cluster, async |tenant| Box::pin(restore_while_a_node_is_stopped(scratch, tenant)).await)
            .await?;
        let cluster = scratch.cluster().await?;
        with_tenant_on(&cluster, async |tenant| Box::pin(restore_in_the_pool_of_a_node(tenant)).await).await
    })
    .await
}

/// Both nodes reach the pool, so the home of the stopped node is restored on the other one.
async fn restore_while_a_node_is_stopped(scratch: &ScratchCluster, tenant: &Tenant<'_>) -> anyhow::Result<()> {
    move_controllers_to(tenant, "n1").await?;
    let (user, point) = create_box_on(tenant, "n2").await?;
    scratch.odc_local(&["node", "stop", "n2"]).await?.check()?;
    let restore = async {
        let nodes: Api<Node> = Api::all(tenant.cluster.namespace.client.clone());
        let not_ready = |node: Option<&Node>| node.is_some_and(|node| !odc_local::cluster::is_ready(node));
        tokio::time::timeout(STEP_TIMEOUT, await_condition(nodes, "n2", not_ready)).await??;
        user.success(&["disk", "rollback", "home", &point, "--yes"]).await?;
        assert_eq!(user.success(&["ssh", "box", "--", "cat file"]).await?, "first\n");
        assert_eq!(node(tenant, "box").await?, "n1");
        user.success(&["delete", "box", "--yes"]).await.map(drop)
    };
    with_cleanup(restore, async || scratch.odc_local(&["node", "start", "n2"]).await?.check().map(drop)).await
}

/// Only node n2 reaches the pool of the home, so every copy of the home is used there, and a server waits for the node.
async fn restore_in_the_pool_of_a_node(tenant: &Tenant<'_>) -> anyhow::Result<()> {
    install_node_pools(tenant).await?;
    let (user, point) = create_box_on(tenant, "n2").await?;
    tenant.kubectl_as_admin(&["cordon", "n2"], None).await?;
    user.success(&["disk", "rollback", "home", &point, "--yes"]).await?;
    tenant.patch_spec("box", json!({"desired": "Running"})).await?;
    wait::until("the server waits for the node of its home", STEP_TIMEOUT, async || {
        let shown = user.success(&["show", "box"]).await?;
        anyhow::ensure!(shown.contains("The home is on node n2."), "{shown}");
        Ok(())
    })
    .await?;
    tenant.kubectl_as_admin(&["uncordon", "n2"], None).await?;
    tenant.wait_for_phase("box", "Running").await?;
    assert_eq!(node(tenant, "box").await?, "n2");
    assert_eq!(user.success(&["ssh", "box", "--", "cat file"]).await?, "first\n");

    user.success(&["ssh", "box", "--", "echo second > file && sync"]).await?;
    let changed = user.success(&["disk", "diff", "home", &point]).await?;
    assert!(changed.lines().any(|line| line.ends_with("file")), "{changed}");
    user.success(&["disk", "clone", "home", "copy"]).await?;
    user.success(&["create", "second", "-t", "cpu", "--disk", "copy", "--wait", "--yes"]).await?;
    assert_eq!(user.success(&["ssh", "second", "--", "cat file"]).await?, "second\n");
    assert_eq!(node(tenant, "second").await?, "n2");
    Ok(())
}

/// Creates a server on this node with a file in its home, hibernates it, and returns its restore point.
async fn create_box_on(tenant: &Tenant<'_>, node: &str) -> anyhow::Result<(User, String)> {
    let user = User::new(tenant.cluster, &tenant.user).await?;
    wait_ready(&tenant.cluster.namespace.client, &tenant.user).await?;
    user.success(&["config", "set", "create.diskSize", "512Mi"]).await?;
    let other = if node == "n1" { "n2" } else { "n1" };
    tenant.kubectl_as_admin(&["cordon", other], None).await?;
    user.success(&["create", "box", "-t", "cpu", "--idle-action", "none", "--wait", "--yes"]).await?;
    tenant.kubectl_as_admin(&["uncordon", other], None).await?;
    assert_eq!(self::node(tenant, "box").await?, node);
    user.success(&["ssh", "box", "--", "echo first > file && sync"]).await?;
    user.success(&["hibernate", "box"]).await?;
    let point = newest_point(&user).await?;
    Ok((user, point))
}

/// Moves the operator and the snapshot controller, which run once in a local cluster, to this node.
async fn move_controllers_to(tenant: &Tenant<'_>, node: &str) -> anyhow::Result<()> {
    let other = if node == "n1" { "n2" } else { "n1" };
    tenant.kubectl_as_admin(&["cordon", other], None).await?;
    for (namespace, deployment) in
        [("odc-system", "deployment/odc-operator"), ("odc-csi", "deployment/snapshot-controller")]
    {
        tenant.kubectl_as_admin(&["--namespace", namespace, "rollout", "restart", deployment], None).await?;
        wait_rolled_out(tenant, namespace, deployment).await?;
    }
    tenant.kubectl_as_admin(&["uncordon", other], None).await.map(drop)
}

/// Replaces the pool that all nodes share by one pool per node.
async fn install_node_pools(tenant: &Tenant<'_>) -> anyhow::Result<()> {
    let drivers: Api<DaemonSet> = Api::namespaced(tenant.cluster.namespace.client.clone(), "odc-csi");
    let containers = drivers.get("odc-csi").await?.spec.and_then(|spec| spec.template.spec).map(|spec| spec.containers);
    let image = |name: &str| {
        let mut all = containers.iter().flatten();
        let image = all.find(|container| container.name == name).and_then(|container| container.image.clone());
        image.with_context(|| format!("container {name} has no image"))
    };
    let overlay = NODE_POOLS.replace("ODC_CSI", &image("odc-csi")?).replace("SIDECARS", &image("csi-provisioner")?);
    let directory = tenant.cluster.directory.join("config/deploy/local/node-pools");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("kustomization.yaml"), overlay)?;
    let directory = directory.to_str().context("the path is not UTF-8")?;
    let manifests = tenant.kubectl_as_admin(&["kustomize", directory], None).await?;

    let timeout = format!("--timeout={}s", STEP_TIMEOUT.as_secs());
    let delete = ["--namespace", "odc-csi", "delete", "daemonset", "odc-csi", "--cascade=foreground", &timeout];
    tenant.kubectl_as_admin(&delete, None).await?;
    // The kubelet does not change the pool of a node.
    tenant.kubectl_as_admin(&["label", "nodes", "n1", "n2", "csi.odc.dev/pool-"], None).await?;
    let apply = ["--namespace", "odc-csi", "apply", "--server-side", "--force-conflicts", "-f", "-"];
    tenant.kubectl_as_admin(&apply, Some(&manifests)).await?;
    wait_rolled_out(tenant, "odc-csi", "daemonset/odc-csi").await?;
    wait_rolled_out(tenant, "odc-csi", "deployment/snapshot-controller").await?;
    for node in ["n1", "n2"] {
        let pool = format!("--for=jsonpath={{.metadata.labels.csi\\.odc\\.dev/pool}}={node}");
        tenant.kubectl_as_admin(&["wait", &format!("node/{node}"), &pool, &timeout], None).await?;
    }
    Ok(())
}

async fn wait_rolled_out(tenant: &Tenant<'_>, namespace: &str, workload: &str) -> anyhow::Result<()> {
    let timeout = format!("--timeout={}s", STEP_TIMEOUT.as_secs());
    tenant.kubectl_as_admin(&["--namespace", namespace, "rollout", "status", workload, &timeout], None).await.map(drop)
}

async fn node(tenant: &Tenant<'_>, server: &str) -> anyhow::Result<String> {
    let server: Value = tenant.get(server).await?;
    Ok(server["status"]["admission"]["nodes"][0].as_str().unwrap_or_default().to_owned())
}
