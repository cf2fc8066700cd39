//! A user with servers, disks and operations.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use odc_api::v1alpha1::{DevServer, Disk, DiskOperation, DiskOperationPhase, Phase};
use odc_tests::devctl_user::User;
use odc_tests::{Cluster, Namespace, wait};
use serde_json::{Value, json};

/// Of one server or operation.
const TIMEOUT: Duration = Duration::from_secs(300);

pub(super) struct Fixture {
    /// Namespace of the user, with the client of the administrator.
    pub(super) namespace: Namespace,
    pub(super) user: User,
}

impl Fixture {
    /// Creates a user with an SSH key.
    pub(super) async fn new(cluster: &Cluster, name: &str) -> anyhow::Result<Self> {
        let user = User::new(cluster, name).await?;
        user.create_key().await?;
        let namespace = Namespace { name: format!("dev-{name}"), ..cluster.namespace.clone() };
        odc_tests::namespace::wait_ready(&namespace.client, &namespace.name).await?;
        odc_tests::user::wait_ready(&namespace.client, name).await?;
        Ok(Self { namespace, user })
    }

    pub(super) fn servers(&self) -> Api<DevServer> {
        self.namespace.api()
    }

    pub(super) fn disks(&self) -> Api<Disk> {
        self.namespace.api()
    }

    pub(super) async fn create_disk(&self, name: &str, size: &str) -> anyhow::Result<()> {
        let disk = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"size": size}}))?;
        self.disks().create(&PostParams::default(), &disk).await?;
        Ok(())
    }

    /// Creates a server with this `spec.home`.
    pub(super) async fn create_server(&self, name: &str, flavor: &str, home: &Value) -> anyhow::Result<()> {
        let spec = json!({"flavor": flavor, "home": home, "idle": {"action": "None"}});
        let server = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        self.servers().create(&PostParams::default(), &server).await?;
        Ok(())
    }

    /// Creates a server and waits until it is running, with its home mounted.
    pub(super) async fn start_server(&self, name: &str, home: &Value) -> anyhow::Result<()> {
        self.create_server(name, "cpu", home).await?;
        let is_running = |server: Option<&DevServer>| phase(server) == Some(Phase::Running);
        let running = await_condition(self.servers(), name, is_running);
        tokio::time::timeout(TIMEOUT, running).await.with_context(|| format!("server {name} is not running"))??;
        Ok(())
    }

    /// Deletes a server and waits until it is gone.
    pub(super) async fn delete_server(&self, name: &str) -> anyhow::Result<()> {
        self.servers().delete(name, &DeleteParams::default()).await?;
        let deleted = await_condition(self.servers(), name, |server: Option<&DevServer>| server.is_none());
        tokio::time::timeout(TIMEOUT, deleted).await.with_context(|| format!("server {name} is not deleted"))??;
        Ok(())
    }

    /// Waits until no server holds a disk and its restore points are verified.
    pub(super) async fn wait_released(&self, disk: &str) -> anyhow::Result<()> {
        let released = await_condition(self.disks(), disk, |disk: Option<&Disk>| disk.is_some_and(is_released));
        tokio::time::timeout(TIMEOUT, released).await.with_context(|| format!("disk {disk} is not released"))??;
        Ok(())
    }

    /// Takes a restore point and waits until it is verified. Returns its name.
    pub(super) async fn take_point(&self, disk: &str) -> anyhow::Result<String> {
        let operations: Api<DiskOperation> = self.namespace.api();
        let operation = json!({"metadata": {"generateName": "bench-"}, "spec": {"disk": disk, "action": "Snapshot"}});
        let created = operations.create(&PostParams::default(), &serde_json::from_value(operation)?).await?;
        let name = created.metadata.name.context("the operation has no name")?;
        let is_finished = |operation: Option<&DiskOperation>| {
            let phase = operation.and_then(|operation| operation.status.as_ref()?.phase);
            phase.is_some_and(DiskOperationPhase::is_terminal)
        };
        let finished = tokio::time::timeout(TIMEOUT, await_condition(operations, &name, is_finished)).await;
        let operation = finished.with_context(|| format!("operation {name} has not finished"))??;
        let status = operation.and_then(|operation| operation.status).unwrap_or_default();
        anyhow::ensure!(status.phase == Some(DiskOperationPhase::Succeeded), "operation {name} failed: {status:?}");
        let point = status.result.and_then(|result| result.point).context("the operation has no restore point")?;
        Ok(point.to_string())
    }

    /// Fails unless a restore point is in the status of the disk and verified.
    pub(super) async fn check_point(&self, disk: &str, point: &str) -> anyhow::Result<()> {
        wait::until("verified restore point", TIMEOUT, async || {
            let status = self.disks().get(disk).await?.status.unwrap_or_default();
            let is_ready = status.points.iter().any(|other| other.name.as_str() == point && other.ready);
            anyhow::ensure!(is_ready, "{point} is not ready: {:?}", status.points);
            Ok(())
        })
        .await
    }

    /// Deletes all operations and waits until their pods are gone.
    pub(super) async fn delete_operations(&self) -> anyhow::Result<()> {
        let operations: Api<DiskOperation> = self.namespace.api();
        operations.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let pods: Api<Pod> = self.namespace.api();
        wait::until("deleted pods of operations", TIMEOUT, async || {
            let left = pods.list(&ListParams::default().labels("odc.dev/operation-uid")).await?.items;
            anyhow::ensure!(left.is_empty(), "{} pods are left", left.len());
            Ok(())
        })
        .await
    }
}

pub(super) fn phase(server: Option<&DevServer>) -> Option<Phase> {
    server.and_then(|server| server.status.as_ref()?.phase)
}

/// Reports whether a disk was used, no server holds it, and all its restore points are verified.
pub(super) fn is_released(disk: &Disk) -> bool {
    let is_verified = |status: &odc_api::v1alpha1::DiskStatus| {
        status.holder.is_none() && !status.points.is_empty() && status.points.iter().all(|point| point.ready)
    };
    disk.status.as_ref().is_some_and(is_verified)
}
