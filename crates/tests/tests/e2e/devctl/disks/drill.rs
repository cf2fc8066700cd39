//! Recovery drill with a large tree: damage, a move to another node and expiry, with the operator, the CSI driver, its
//! sidecars and the kubelets killed on the way.

use std::time::Duration;

use kube::api::{Api, ListParams};
use odc_api::v1alpha1::{DiskAction, DiskOperation};
use odc_tests::devctl_user::User;
use odc_tests::tree::{Manifest, Tree};
use odc_tests::user::wait_ready;
use odc_tests::{ScratchCluster, operator, wait, with_scratch_cluster};
use serde_json::json;

use super::{damage, manifest, newest_point};
use crate::faults::{component_pid, kill};
use crate::tenant::{Tenant, with_tenant_on};

/// Of one step. A container that was killed several times is restarted after minutes.
const STEP_TIMEOUT: Duration = Duration::from_secs(300);
const TREE: Tree = Tree::LARGE;

/// Processes that are killed.
#[derive(Debug)]
enum Process {
    /// Of containers, by the start of their command, with their number.
    Container(&'static [&'static str], usize),
    /// Of the local cluster.
    Component(&'static str),
}

const SERVICES: &[Process] = &[Process::Container(&["/odc", "operator"], 1), Process::Container(&["/odc-csi"], 2)];
/// What mounts a volume, or creates it.
const NODE_PROCESSES: &[Process] = &[
    Process::Component("n1/kubelet"),
    Process::Component("n2/kubelet"),
    Process::Container(&["/csi-sidecars", "csi-provisioner"], 2),
    Process::Container(&["/csi-sidecars", "csi-snapshotter"], 2),
    Process::Container(&["/odc-csi"], 2),
];

struct Drill<'a> {
    scratch: &'a ScratchCluster,
    tenant: &'a Tenant<'a>,
    user: User,
    /// The tree as it was written.
    before: Manifest,
}

#[tokio::test]
async fn large_home_survives_damage_move_expiry_and_killed_components() -> anyhow::Result<()> {
    with_scratch_cluster(async |scratch| {
        scratch.odc_local(&["up", "--nodes", "2", "--gpus", "0"]).await?.check()?;
        operator::shorten_timeouts(&scratch.directory).await?;
        let cluster = scratch.cluster().await?;
        with_tenant_on(&cluster, async |tenant| {
            // On the heap: the state of so many steps exceeds the stack of a test.
            Box::pin(async {
                let drill = Drill::start(scratch, tenant).await?;
                drill.roll_back_damage().await?;
                drill.move_to_other_node().await?;
                drill.expire_and_recreate().await
            })
            .await
        })
        .await
    })
    .await
}

impl<'a> Drill<'a> {
    /// Creates the server and writes the tree.
    async fn start(scratch: &'a ScratchCluster, tenant: &'a Tenant<'a>) -> anyhow::Result<Self> {
        let user = User::new(tenant.cluster, &tenant.user).await?;
        wait_ready(&tenant.cluster.namespace.client, &tenant.user).await?;
        user.success(&["config", "set", "create.diskSize", "6Gi"]).await?;
        user.success(&["create", "box", "-t", "cpu", "--idle-action", "none", "--wait", "--yes"]).await?;
        user.success(&["ssh", "box", "--", &TREE.write_script()]).await?;
        let before = manifest(&user, "box", TREE).await?;
        Ok(Self { scratch, tenant, user, before })
    }

    async fn roll_back_damage(&self) -> anyhow::Result<()> {
        let snapshot = self.user.success(&["disk", "snapshot", "home", "--note", "drill"]);
        let point = self.kill_during(snapshot, async || self.has_started(DiskAction::Snapshot).await, SERVICES).await?;
        damage(&self.user, "box", point.trim(), &self.before).await?;
        let rollback = ["disk", "rollback", "home", point.trim(), "--yes", "--stop"];
        let has_started = async || self.has_started(DiskAction::Rollback).await;
        self.kill_during(self.user.success(&rollback), has_started, SERVICES).await?;
        self.check("box").await
    }

    async fn move_to_other_node(&self) -> anyhow::Result<()> {
        let first = self.node("box").await?;
        self.tenant.kubectl_as_admin(&["cordon", &first], None).await?;
        let is_stopping = async || self.is_stopping().await;
        self.kill_during(self.user.success(&["hibernate", "box"]), is_stopping, SERVICES).await?;
        let is_starting = async || Ok(!self.tenant.pods().await?.is_empty());
        self.kill_during(self.user.success(&["wake", "box"]), is_starting, NODE_PROCESSES).await?;
        assert_ne!(self.node("box").await?, first);
        self.tenant.kubectl_as_admin(&["uncordon", &first], None).await?;
        self.check("box").await?;
        self.damage_and_roll_back("box").await
    }

    async fn expire_and_recreate(&self) -> anyhow::Result<()> {
        // It has run for longer.
        self.tenant.patch_spec("box", json!({"lifetime": "1m"})).await?;
        let expired = wait::until("expired server", STEP_TIMEOUT, async || {
            let server = self.tenant.get("box").await?;
            anyhow::ensure!(server["status"]["phase"] == "Expired", "{server}");
            Ok(())
        });
        self.kill_during(expired, async || self.is_stopping().await, SERVICES).await?;
        self.user.success(&["create", "again", "-t", "cpu", "--idle-action", "none", "--wait", "--yes"]).await?;
        self.check("again").await?;
        self.damage_and_roll_back("again").await
    }

    /// Rolls back to the restore point of the last stop.
    async fn damage_and_roll_back(&self, server: &str) -> anyhow::Result<()> {
        let point = newest_point(&self.user).await?;
        damage(&self.user, server, &point, &self.before).await?;
        self.user.success(&["disk", "rollback", "home", &point, "--yes", "--stop"]).await?;
        self.check(server).await
    }

    /// Checks that the tree is as it was written.
    async fn check(&self, server: &str) -> anyhow::Result<()> {
        self.before.check_equal(&manifest(&self.user, server, TREE).await?)
    }

    /// Runs a step. Kills processes on both nodes as soon as `has_started` returns true.
    async fn kill_during<T>(
        &self,
        step: impl Future<Output = anyhow::Result<T>>,
        mut has_started: impl AsyncFnMut() -> anyhow::Result<bool>,
        killed: &[Process],
    ) -> anyhow::Result<T> {
        for (namespace, workload) in [("odc-system", "deployment/odc-operator"), ("odc-csi", "daemonset/odc-csi")] {
            let timeout = format!("--timeout={}s", STEP_TIMEOUT.as_secs());
            self.tenant
                .kubectl_as_admin(&["--namespace", namespace, "rollout", "status", workload, &timeout], None)
                .await?;
        }
        let kill = async {
            wait::until("the step has started", STEP_TIMEOUT, async || {
                anyhow::ensure!(has_started().await?, "not started");
                Ok(())
            })
            .await?;
            for process in killed {
                match process {
                    Process::Container(command, expected) => {
                        let count = self.scratch.kill(command)?;
                        anyhow::ensure!(count == *expected, "killed {count} of {process:?}");
                    }
                    Process::Component(name) => kill(component_pid(self.tenant.cluster, name).await?)?,
                }
            }
            Ok(())
        };
        Ok(tokio::try_join!(step, kill)?.0)
    }

    /// Reports whether an operation with this action has started. It may have ended meanwhile.
    async fn has_started(&self, action: DiskAction) -> anyhow::Result<bool> {
        let client = self.tenant.cluster.namespace.client.clone();
        let operations: Api<DiskOperation> = Api::namespaced(client, &self.tenant.namespace());
        let all = operations.list(&ListParams::default()).await?;
        let is_started = |operation: &DiskOperation| {
            let started = operation.status.as_ref().and_then(|status| status.started_at.as_ref());
            operation.spec.action == action && started.is_some()
        };
        Ok(all.iter().any(is_started))
    }

    async fn is_stopping(&self) -> anyhow::Result<bool> {
        Ok(self.tenant.get("box").await?["status"]["phase"] != "Running")
    }

    async fn node(&self, server: &str) -> anyhow::Result<String> {
        let server = self.tenant.get(server).await?;
        Ok(server["status"]["admission"]["nodes"][0].as_str().unwrap_or_default().to_owned())
    }
}
