//! Checks the history of disks: a pod that can write to a disk belongs to its holder, and data is deleted only if a
//! verified restore point contains it or its owner confirmed the deletion.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use odc_api::v1alpha1::Disk;
use odc_api::{annotation, label};

use super::watch_history::Revision;

/// Replays a history and records violations.
#[derive(Debug, Default)]
pub struct DiskLedger {
    /// By uid.
    disks: BTreeMap<String, DiskState>,
    /// The claims with data of disks, by uid. Deleted ones are kept.
    claims: BTreeMap<String, ClaimState>,
    /// The pods that can write to claims of disks, by uid.
    writers: BTreeMap<String, Writer>,
    /// By uid.
    snapshots: BTreeMap<String, SnapshotState>,
    /// Number of pods that could write to a disk.
    pub pods: usize,
    /// Number of volumes of disks that were deleted.
    pub deleted_volumes: usize,
    pub violations: Vec<String>,
}

#[derive(Debug, Default)]
struct DiskState {
    holder: Option<String>,
    is_deletion_confirmed: bool,
}

#[derive(Debug)]
struct ClaimState {
    name: String,
    disk_uid: String,
    has_volume: bool,
    /// The snapshot it was created from.
    source: Option<String>,
    /// The resource version at which the last pod that could write to it ended; 0 if there was none.
    last_write: u64,
}

#[derive(Debug)]
struct Writer {
    pod: String,
    claim_uid: String,
    /// `None` for pods of operations.
    server_uid: Option<String>,
}

#[derive(Debug)]
struct SnapshotState {
    name: String,
    created: u64,
    claim_uid: Option<String>,
    is_verified: bool,
}

impl DiskLedger {
    pub fn replay(&mut self, history: &[(u64, Revision)]) {
        for (version, revision) in history {
            match revision {
                Revision::Disk(disk) => self.update_disk(disk),
                Revision::Claim(claim) => self.update_claim(*version, claim),
                Revision::ClaimDeleted(claim) => {
                    self.check_data_kept(*version, &claim.uid().unwrap_or_default(), "claim");
                }
                Revision::VolumeDeleted(volume) => {
                    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.clone());
                    let claim = claim.unwrap_or_default();
                    self.deleted_volumes += usize::from(self.claims.contains_key(&claim));
                    self.check_data_kept(*version, &claim, "volume");
                }
                Revision::Snapshot(snapshot) => self.update_snapshot(*version, snapshot),
                Revision::SnapshotDeleted(snapshot) => drop(self.snapshots.remove(&snapshot.uid().unwrap_or_default())),
                Revision::Pod(pod) => self.update_pod(*version, pod),
                Revision::PodDeleted(pod) => self.remove_writer(*version, &pod.uid().unwrap_or_default()),
                Revision::Server(_) | Revision::ServerDeleted(_) | Revision::Lease(_) => {}
            }
        }
    }

    fn update_disk(&mut self, disk: &Disk) {
        let confirmation = disk.annotations().get(annotation::CONFIRM_DELETE);
        let state = DiskState {
            holder: disk.status.as_ref().and_then(|status| Some(status.holder.as_ref()?.uid.clone())),
            is_deletion_confirmed: confirmation == Some(&disk.name_any()) && disk.metadata.deletion_timestamp.is_some(),
        };
        self.disks.insert(disk.uid().unwrap_or_default(), state);
    }

    fn update_claim(&mut self, version: u64, claim: &PersistentVolumeClaim) {
        let labels = claim.labels();
        let (Some(disk_uid), None) = (labels.get(label::DISK_UID), labels.get(label::OPERATION_UID)) else { return };
        let uid = claim.uid().unwrap_or_default();
        let spec = claim.spec.clone().unwrap_or_default();
        let new = ClaimState {
            name: claim.name_any(),
            disk_uid: disk_uid.clone(),
            has_volume: false,
            source: spec.data_source.map(|source| source.name),
            last_write: 0,
        };
        self.claims.entry(uid.clone()).or_insert(new).has_volume |= spec.volume_name.is_some();
        if claim.metadata.deletion_timestamp.is_some() {
            self.check_data_kept(version, &uid, "claim");
        }
    }

    fn update_snapshot(&mut self, version: u64, snapshot: &DynamicObject) {
        let status = &snapshot.data["status"];
        let is_verified = status["readyToUse"] == true
            && status["error"].is_null()
            && status["boundVolumeSnapshotContentName"].is_string()
            && snapshot.metadata.deletion_timestamp.is_none();
        let claim_uid = snapshot.annotations().get(annotation::CLAIM_UID).cloned();
        let uid = snapshot.uid().unwrap_or_default();
        let created = self.snapshots.get(&uid).map_or(version, |known| known.created);
        self.snapshots.insert(uid, SnapshotState { name: snapshot.name_any(), created, claim_uid, is_verified });
    }

    fn update_pod(&mut self, version: u64, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return self.remove_writer(version, &uid);
        }
        if self.writers.contains_key(&uid) {
            return;
        }
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let writable = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
        let names: BTreeSet<&str> =
            writable.filter(|source| source.read_only != Some(true)).map(|source| source.claim_name.as_str()).collect();
        let claim = self.claims.iter().find(|(_, claim)| names.contains(claim.name.as_str()));
        let Some((claim_uid, claim)) = claim else { return };
        let writer = Writer {
            pod: pod.name_any(),
            claim_uid: claim_uid.clone(),
            server_uid: pod.annotations().get(annotation::SERVER_UID).cloned(),
        };
        let holder = self.disks.get(&claim.disk_uid).and_then(|disk| disk.holder.clone());
        if holder != writer.server_uid {
            let message = format!("version {version}: {writer:?} was created while {holder:?} holds the disk");
            self.violations.push(message);
        }
        let other = self.writers.values().find(|other| {
            other.claim_uid == writer.claim_uid && (other.server_uid != writer.server_uid || other.pod != writer.pod)
        });
        if let Some(other) = other {
            self.violations.push(format!("version {version}: {writer:?} was created while {other:?} can write"));
        }
        self.pods += 1;
        self.writers.insert(uid, writer);
    }

    fn remove_writer(&mut self, version: u64, uid: &str) {
        let Some(writer) = self.writers.remove(uid) else { return };
        if let Some(claim) = self.claims.get_mut(&writer.claim_uid) {
            claim.last_write = version;
        }
    }

    /// Records a violation if the data of a claim is deleted without a copy and without a confirmation.
    fn check_data_kept(&mut self, version: u64, claim_uid: &str, what: &str) {
        let Some(claim) = self.claims.get(claim_uid) else { return };
        let is_confirmed = self.disks.get(&claim.disk_uid).is_some_and(|disk| disk.is_deletion_confirmed);
        let has_copy = self.snapshots.values().any(|snapshot| {
            let is_of_claim = snapshot.claim_uid.as_deref() == Some(claim_uid);
            let is_source = claim.last_write == 0 && claim.source.as_ref() == Some(&snapshot.name);
            snapshot.is_verified && (is_source || is_of_claim && snapshot.created > claim.last_write)
        });
        if claim.has_volume && !is_confirmed && !has_copy {
            self.violations.push(format!("version {version}: the {what} of {claim:?} was deleted without a copy"));
        }
    }
}

#[test]
fn ledger_detects_foreign_pods_and_lost_data() -> anyhow::Result<()> {
    use serde_json::{Value, from_value, json};

    fn disk(holder: &Value, confirmed: bool) -> anyhow::Result<Revision> {
        let annotations = if confirmed { json!({annotation::CONFIRM_DELETE: "home"}) } else { json!({}) };
        let deleted = confirmed.then_some("2026-01-01T00:00:00Z");
        let metadata = json!({"name": "home", "uid": "d", "annotations": annotations, "deletionTimestamp": deleted});
        let disk = json!({"metadata": metadata, "spec": {"size": "1Gi"}, "status": {"holder": holder}});
        Ok(Revision::Disk(Box::new(from_value(disk)?)))
    }
    fn pod(name: &str, server: &str) -> anyhow::Result<Revision> {
        let volumes = json!([{"name": "home", "persistentVolumeClaim": {"claimName": "c"}}]);
        let metadata = json!({"name": name, "uid": name, "annotations": {annotation::SERVER_UID: server}});
        let pod = json!({"metadata": metadata, "spec": {"containers": [], "volumes": volumes}});
        Ok(Revision::Pod(Box::new(from_value(pod)?)))
    }
    let holder = json!({"server": "box", "uid": "s", "since": "2026-01-01T00:00:00Z"});
    let labels = json!({label::DISK_UID: "d"});
    let claim: PersistentVolumeClaim =
        from_value(json!({"metadata": {"name": "c", "uid": "c", "labels": labels}, "spec": {"volumeName": "v"}}))?;
    let start = [disk(&holder, false)?, Revision::Claim(Box::new(claim.clone())), pod("p", "s")?];
    let replay = |rest: Vec<Revision>| {
        let mut ledger = DiskLedger::default();
        let all = start.iter().cloned().chain(rest);
        ledger.replay(&all.zip(1..).map(|(revision, version)| (version, revision)).collect::<Vec<_>>());
        ledger.violations.len()
    };
    let lost = Revision::ClaimDeleted(Box::new(claim));
    assert_eq!(replay(vec![]), 0);
    assert_eq!(replay(vec![pod("q", "s")?]), 1);
    assert_eq!(replay(vec![pod("q", "t")?]), 2);
    assert_eq!(replay(vec![lost.clone()]), 1);
    assert_eq!(replay(vec![disk(&Value::Null, true)?, lost.clone()]), 0);
    let snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "p", "uid": "p", "annotations": {annotation::CLAIM_UID: "c"}},
        "status": {"readyToUse": true, "boundVolumeSnapshotContentName": "content"}});
    let snapshot = Revision::Snapshot(Box::new(from_value(snapshot)?));
    let Revision::Pod(ended) = pod("p", "s")? else { unreachable!() };
    let ended = Revision::PodDeleted(ended);
    assert_eq!(replay(vec![ended.clone(), snapshot.clone(), lost.clone()]), 0);
    // The point is older than the last write.
    assert_eq!(replay(vec![snapshot, ended, lost]), 1);
    Ok(())
}
