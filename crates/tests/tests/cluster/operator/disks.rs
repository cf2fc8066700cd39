//! Disks with real volumes and snapshots; pods are played.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use odc_api::v1alpha1::{Disk, DiskOperation, DiskOperationPhase, DiskStatus, Phase, RestorePoint};
use odc_tests::apifault::{Action, EventAction, Fault, Pattern, Verb};
use odc_tests::storage::Storage;
use odc_tests::wait;
use serde_json::{Value, json};

use super::disk_ledger::DiskLedger;
use super::fault_harness::FaultHarness;
use super::fixture::{Fixture, NAMESPACE, TIMEOUT, wait_absent, wait_for, with_fixture};
use super::rbac::disk_permissions;
use super::watch_history::WatchHistory;

const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
const NODES: [&str; 2] = ["node-1", "node-2"];

/// The disks of ada and the operations on them.
struct Disks<'a> {
    fixture: &'a Fixture<'a>,
    api: Api<Disk>,
    operations: Api<DiskOperation>,
    storage: Storage,
}

impl<'a> Disks<'a> {
    async fn start(fixture: &'a Fixture<'a>) -> anyhow::Result<Self> {
        let client = &fixture.plane.client;
        Ok(Self {
            fixture,
            api: Api::namespaced(client.clone(), NAMESPACE),
            operations: Api::namespaced(client.clone(), NAMESPACE),
            storage: Storage::start(fixture.plane, &fixture.directory, &NODES).await?,
        })
    }

    async fn create(&self, name: &str) -> anyhow::Result<()> {
        let disk = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Disk",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"size": "32Mi"}});
        self.api.create(&PostParams::default(), &serde_json::from_value(disk)?).await?;
        Ok(())
    }

    /// Waits until the status of a disk meets a condition.
    async fn wait(&self, name: &str, expected: &str, met: impl Fn(&DiskStatus) -> bool) -> anyhow::Result<DiskStatus> {
        let met = |disk: Option<&Disk>| disk.and_then(|disk| disk.status.as_ref()).is_some_and(&met);
        let disk = wait_for(&self.api, name, expected, met).await.with_context(|| self.storage.log_tail())?;
        disk.and_then(|disk| disk.status).context("the disk has no status")
    }

    /// Starts a server with the disk and hibernates it. Returns the restore point of the stop.
    async fn use_once(&self, disk: &str) -> anyhow::Result<RestorePoint> {
        let server = format!("{disk}-server");
        let created = self.fixture.create_running(&server, json!({"home": {"disk": disk}})).await;
        created.with_context(|| self.storage.log_tail())?;
        self.fixture.patch_spec(&server, json!({"desired": "Hibernated"})).await?;
        self.fixture.wait_for_phase(&server, Phase::Hibernated).await?;
        let status = self.wait(disk, "released with a verified point", is_released).await?;
        status.points.first().cloned().context("the disk has no restore point")
    }

    async fn operate(&self, name: &str, disk: &str, action: &str, arguments: Value) -> anyhow::Result<DiskOperation> {
        let operation = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DiskOperation",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"disk": disk, "action": action, "arguments": arguments}});
        self.operations.create(&PostParams::default(), &serde_json::from_value(operation)?).await?;
        let finished = |operation: Option<&DiskOperation>| {
            let phase = operation.and_then(|operation| operation.status.as_ref()?.phase);
            phase.is_some_and(DiskOperationPhase::is_terminal)
        };
        wait_for(&self.operations, name, "finished", finished).await?.context("the operation was deleted")
    }

    /// Creates a disk, uses it, rolls it back, clones it, and deletes all of it. Returns its claims.
    async fn live(&self, name: &str) -> anyhow::Result<Vec<String>> {
        self.create(name).await?;
        let point = self.use_once(name).await?;
        let back = self.operate(name, name, "Rollback", json!({"point": point.name})).await?;
        anyhow::ensure!(phase(&back) == Some(DiskOperationPhase::Succeeded), "{back:#?}");
        let rolled_back = |status: &DiskStatus| status.retired_claims.len() == 1 && is_released(status);
        let status = self.wait(name, "rolled back", rolled_back).await?;
        let claims = status.claim.iter().chain(status.retired_claims.iter().map(|retired| &retired.name));
        let copy = format!("{name}-copy");
        let cloned = self.operate(&copy, name, "Clone", json!({"name": copy})).await?;
        anyhow::ensure!(phase(&cloned) == Some(DiskOperationPhase::Succeeded), "{cloned:#?}");
        self.fixture.servers.delete(&format!("{name}-server"), &DeleteParams::default()).await?;
        for disk in [copy.as_str(), name] {
            self.purge(disk).await?;
        }
        Ok(claims.map(ToString::to_string).collect())
    }

    /// Enlarges a disk and waits until its claim requests the size.
    async fn resize(&self, name: &str, size: &str) -> anyhow::Result<()> {
        let disk =
            self.api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": {"size": size}}))).await?;
        let claim = disk.status.and_then(|status| status.claim).context("the disk has no claim")?;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.fixture.plane.client.clone(), NAMESPACE);
        let is_resized = |claim: Option<&PersistentVolumeClaim>| {
            let requests = claim.and_then(|claim| claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref());
            requests.and_then(|requests| requests.get("storage")).is_some_and(|requested| requested.0 == size)
        };
        wait_for(&claims, claim.as_str(), "resized", is_resized).await.map(drop)
    }

    /// Marks a disk as deleted and lets 30 days pass.
    async fn expire(&self, name: &str) -> anyhow::Result<()> {
        let params = PatchParams::default();
        self.api.patch(name, &params, &Patch::Merge(json!({"spec": {"deleted": true}}))).await?;
        self.wait(name, "marked as deleted", |status| status.deletion.is_some()).await?;
        let passed = Patch::Merge(json!({"status": {"deletion": {"days": 30}}}));
        self.api.patch_status(name, &params, &passed).await?;
        wait_absent(&self.api, name).await
    }

    /// Lets more than a week pass since an operation finished.
    async fn expire_operation(&self, name: &str) -> anyhow::Result<()> {
        let finished = Patch::Merge(json!({"status": {"finishedAt": "2026-01-01T00:00:00Z"}}));
        self.operations.patch_status(name, &PatchParams::default(), &finished).await?;
        wait_absent(&self.operations, name).await
    }

    /// Creates a disk, and deletes it with its server while the restore point of the stop is taken.
    async fn purge_during_stop(&self, name: &str) -> anyhow::Result<()> {
        self.create(name).await?;
        let server = format!("{name}-server");
        self.fixture.create_running(&server, json!({"home": {"disk": name}})).await?;
        self.fixture.servers.delete(&server, &DeleteParams::default()).await?;
        self.wait(name, "with a point", |status| !status.points.is_empty()).await?;
        self.purge(name).await.with_context(|| self.storage.log_tail())
    }

    /// Deletes a disk with its data.
    async fn purge(&self, name: &str) -> anyhow::Result<()> {
        let confirm = json!({"metadata": {"annotations": {"odc.dev/confirm-delete": name}}});
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(confirm)).await?;
        self.api.delete(name, &DeleteParams::default()).await?;
        wait_absent(&self.api, name).await
    }
}

/// Loses the response of the next creation and holds its events, so that the operator repeats it and reads the object.
async fn lose_response(harness: &FaultHarness<'_>, creation: Pattern) -> anyhow::Result<()> {
    let resource = creation.resource.clone().context("the pattern has no resource")?;
    let count_reads =
        || harness.proxy.trace().iter().filter(|entry| entry.verb == Verb::Get && entry.resource == resource).count();
    let before = count_reads();
    harness.proxy.add(Fault::event(1, Pattern { verb: None, ..creation.clone() }, None, EventAction::Hold));
    harness.proxy.add(Fault::write(1).matching(creation).after(Action::HangUp));
    wait::until(&format!("read of {resource}"), TIMEOUT, async || {
        anyhow::ensure!(count_reads() > before, "no such request");
        Ok(())
    })
    .await?;
    harness.proxy.release();
    Ok(())
}

fn is_released(status: &DiskStatus) -> bool {
    status.holder.is_none() && status.points.first().is_some_and(|point| point.ready)
}

fn phase(operation: &DiskOperation) -> Option<DiskOperationPhase> {
    operation.status.as_ref()?.phase
}

#[tokio::test]
#[ignore = "requires root"]
async fn disk_is_retained_snapshotted_rolled_back_and_deleted() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let disks = Disks::start(fixture).await?;
        let mut harness = FaultHarness::start(fixture).await?;
        disks.create("home").await?;
        let lose_responses = async {
            lose_response(&harness, Pattern::verb(Verb::Create, "persistentvolumeclaims")).await?;
            lose_response(&harness, Pattern::verb(Verb::Create, SNAPSHOTS)).await
        };
        let (point, ()) = tokio::try_join!(disks.use_once("home"), lose_responses)?;
        let claim = disks.api.get("home").await?.status.and_then(|status| status.claim).context("no claim")?;
        let volumes: Api<PersistentVolume> = Api::all(fixture.plane.client.clone());
        for volume in volumes.list(&ListParams::default()).await? {
            let policy = volume.spec.and_then(|spec| spec.persistent_volume_reclaim_policy);
            assert_eq!(policy.as_deref(), Some("Retain"));
        }

        let back = disks.operate("back", "home", "Rollback", json!({"point": point.name})).await?;
        assert_eq!(phase(&back), Some(DiskOperationPhase::Succeeded), "{back:#?}");
        let rolled_back =
            disks.wait("home", "on another claim", |status| status.claim.as_ref() != Some(&claim)).await?;
        assert_eq!(rolled_back.retired_claims.len(), 1);
        let clone = disks.operate("copy", "home", "Clone", json!({"name": "copy"}));
        let creation = Pattern::verb(Verb::Create, "disks.odc.dev").with_name("copy");
        let (copy, ()) = tokio::try_join!(clone, lose_response(&harness, creation))?;
        assert_eq!(phase(&copy), Some(DiskOperationPhase::Succeeded), "{copy:#?}");
        let missing = disks.operate("missing", "home", "Rollback", json!({"point": "nothing"})).await?;
        assert_eq!(phase(&missing), Some(DiskOperationPhase::Failed));

        let error = disks.api.delete("home", &DeleteParams::default()).await.unwrap_err().to_string();
        assert!(error.contains("odc.dev/confirm-delete: home"), "{error}");
        fixture.servers.delete("home-server", &DeleteParams::default()).await?;
        disks.resize("home", "48Mi").await?;
        disks.expire("copy").await?;
        disks.expire_operation("copy").await?;
        disks.purge("home").await?;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(fixture.plane.client.clone(), NAMESPACE);
        wait_absent(&claims, claim.as_str()).await?;
        wait::until("all volumes deleted", TIMEOUT, async || {
            let left: Vec<String> =
                volumes.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
            anyhow::ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await?;
        disks.purge_during_stop("brief").await?;
        disks.create("kept").await?;
        disks.use_once("kept").await?;
        check_namespace_deletion_keeps_data(&fixture.plane.client).await.with_context(|| disks.storage.log_tail())?;
        harness.operator.kill().await?;
        disk_permissions::check_used(&harness).await
    })
    .await
}

/// Deletes the namespace. Its volume and the content of its snapshot must stay.
async fn check_namespace_deletion_keeps_data(client: &Client) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent");
    let contents: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    wait::until("the claim of the volume deleted", TIMEOUT, async || {
        let all = volumes.list(&ListParams::default()).await?;
        let phases: Vec<Option<String>> = all.into_iter().map(|volume| volume.status?.phase).collect();
        anyhow::ensure!(phases == [Some("Released".to_owned())], "{phases:?}");
        Ok(())
    })
    .await?;
    let snapshots: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind { kind: "VolumeSnapshot".into(), ..kind }),
    );
    wait::until("the snapshot deleted", TIMEOUT, async || {
        let left = snapshots.list(&ListParams::default()).await?.items;
        anyhow::ensure!(left.is_empty(), "{left:#?}");
        Ok(())
    })
    .await?;
    let kept = contents.list(&ListParams::default()).await?.items;
    let policies: Vec<&Value> = kept.iter().map(|content| &content.data["spec"]["deletionPolicy"]).collect();
    anyhow::ensure!(policies == ["Retain"], "{kept:#?}");
    Ok(())
}

/// The operator is killed after each of its writes in the namespace, then after each third one: from the creation of a
/// server to the release of its disk, a rollback, a clone and the deletion of both disks. No pod gets a disk of another
/// server, and no data is deleted without a copy or a confirmation.
#[tokio::test]
#[ignore = "requires root"]
async fn disk_converges_after_every_crash_point() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let disks = Disks::start(fixture).await?;
        let mut harness = FaultHarness::start(fixture).await?;
        let history = WatchHistory::start_with_disks(&fixture.plane.client);
        let mut claims = Vec::new();
        for writes_per_process in [1, 3] {
            let name = format!("every-{writes_per_process}");
            let life = disks.live(&name);
            tokio::pin!(life);
            let mut crashes = 0;
            // Volumes and contents have no namespace.
            for resource in ["persistentvolumes", "volumesnapshotcontents.snapshot.storage.k8s.io"] {
                harness.proxy.add(Fault::write(1).matching(Pattern::resource(resource)).after(Action::Kill));
            }
            loop {
                let pattern = Pattern::default().in_namespace(NAMESPACE);
                harness.proxy.add(Fault::write(writes_per_process).matching(pattern).after(Action::Kill));
                tokio::select! {
                    lived = &mut life => {
                        claims.extend(lived.with_context(|| harness.operator.log_tail())?);
                        break;
                    }
                    status = harness.operator.child.wait() => {
                        anyhow::ensure!(!status?.success(), "the operator was not killed");
                        crashes += 1;
                        harness.spawn_next().await?;
                    }
                }
            }
            anyhow::ensure!(crashes * writes_per_process >= 24, "{crashes} crashes in the life of {name}");
        }
        history.wait_volumes_deleted(&claims).await?;
        let mut ledger = DiskLedger::default();
        ledger.replay(&history.finish().await?);
        anyhow::ensure!(ledger.violations.is_empty(), "{:#?}", ledger.violations);
        anyhow::ensure!(ledger.pods >= 2 && ledger.deleted_volumes >= claims.len(), "{ledger:#?}");
        Ok(())
    })
    .await
}
