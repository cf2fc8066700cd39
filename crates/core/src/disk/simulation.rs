//! A simulated namespace with one disk: the operator, which may crash after each of its writes, the storage controllers,
//! and servers that obey the holder. The safety rules are checked at each step.

mod interruption_scenario;
mod listings;
mod operation_pods;
mod operation_scenario;
mod refusal_scenario;
mod scenario;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::Timestamp;
use odc_api::annotation;
use odc_api::name::DiskName;
use odc_api::quantity::Quantity;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::{
    Admission, Desired, DevServer, DevServerFlavor, DevServerUser, Disk, DiskAction, DiskArguments, DiskOperation,
    DiskOperationPhase, DiskOperationStatus, Home,
};
use serde_json::json;

use super::{DiskState, Observed, ObservedSnapshots, OperationState, Plan, RefusedWrite, reconcile};
use crate::cluster::{Claim, ClaimPhase, Pod, Snapshot, SnapshotContent, StorageClass, Volume};
use crate::devserver::agent_requests::AgentRequest;
use crate::devserver::fixtures;
use crate::manifest::{Kind, Object};
use crate::plan::{Target, Write};
use crate::volume_in_use::may_write;

/// Steps after which a scenario that has not settled is a failure.
const MAX_STEPS: usize = 200;

#[derive(Clone)]
pub(super) struct Namespace {
    pub(super) now: Timestamp,
    pub(super) disks: Vec<Disk>,
    pub(super) servers: Vec<DevServer>,
    pub(super) pods: Vec<Pod>,
    pub(super) operations: Vec<DiskOperation>,
    pub(super) claims: Vec<Claim>,
    pub(super) volumes: Vec<Volume>,
    /// `None` if the cluster has no `VolumeSnapshot` API.
    pub(super) snapshots: Option<Vec<Snapshot>>,
    pub(super) contents: Vec<SnapshotContent>,
    /// The content of each volume, by the uid of its claim, and of each snapshot, by name.
    pub(super) data: BTreeMap<String, String>,
    /// Whether the storage system fails to take snapshots.
    pub(super) snapshots_fail: bool,
    /// The Secrets of operations: the name, and the uid of the claim that owns it.
    pub(super) secrets: Vec<(String, String)>,
    /// What the operator remembers until it crashes.
    pub(super) operation_states: BTreeMap<String, OperationState>,
    pub(super) disk_states: BTreeMap<String, DiskState>,
    /// How agents of servers answer requests to flush.
    pub(super) flush: FlushBehavior,
    pub(super) config_maps: Vec<ConfigMap>,
    /// The time without activity that agents report. They do not answer without it.
    pub(super) idle_seconds: Option<u64>,
    /// The kind of which the API server refuses to create objects.
    pub(super) refused: Option<Kind>,
    /// Why the API server refuses to create pods.
    pub(super) pod_error: Option<String>,
    /// The commands of jobs, by uid of the pod.
    jobs: BTreeMap<String, Vec<String>>,
    /// Why the command of each job fails.
    pub(super) job_error: Option<String>,
    pub(super) owner: DevServerUser,
    control_cas: Vec<String>,
    pub(super) flavors: Vec<DevServerFlavor>,
    pub(super) ready_nodes: Vec<String>,
    /// Whether the storage controllers do nothing.
    pub(super) is_storage_stopped: bool,
    /// Whether no server can be admitted.
    pub(super) is_full: bool,
    pub(super) class: StorageClass,
    /// The claims that the storage controllers are deleting.
    terminating: BTreeSet<String>,
    writes: usize,
    /// The operator crashes after this number of writes.
    crash_after: Option<usize>,
    next_uid: u32,
}

struct Crash;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushBehavior {
    /// The agent flushes the disk and lists it.
    Succeeds,
    /// The agent refuses, or does not know the request.
    Fails,
    /// No reply.
    Hangs,
}

/// A `ConfigMap` with a listing.
#[derive(Clone, Debug)]
pub(super) struct ConfigMap {
    pub(super) name: String,
    pub(super) uid: String,
    /// The uid of the snapshot that owns it.
    pub(super) owner: String,
}

impl Namespace {
    pub(super) fn new() -> Self {
        Self {
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            disks: vec![Disk::test()],
            servers: vec![],
            pods: vec![],
            operations: vec![],
            claims: vec![],
            volumes: vec![],
            snapshots: Some(vec![]),
            contents: vec![],
            data: BTreeMap::new(),
            snapshots_fail: false,
            secrets: vec![],
            operation_states: BTreeMap::new(),
            disk_states: BTreeMap::new(),
            flush: FlushBehavior::Succeeds,
            config_maps: vec![],
            idle_seconds: Some(0),
            refused: None,
            pod_error: None,
            jobs: BTreeMap::new(),
            job_error: None,
            owner: DevServerUser::test(),
            control_cas: vec!["ssh-ed25519 ca".into()],
            flavors: vec![],
            ready_nodes: vec!["node-1".into()],
            is_storage_stopped: false,
            is_full: false,
            terminating: BTreeSet::new(),
            class: StorageClass {
                name: "standard".into(),
                is_default: true,
                waits_for_consumer: false,
                allows_expansion: true,
                provisioner: "csi.odc.dev".into(),
            },
            writes: 0,
            crash_after: None,
            next_uid: 0,
        }
    }

    pub(super) fn crashing_after(writes: usize) -> Self {
        Self { crash_after: Some(writes), ..Self::new() }
    }

    pub(super) fn has_crashed(&self) -> bool {
        self.crash_after.is_some_and(|crash| self.writes >= crash)
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disks[0]
    }

    fn uid(&mut self, prefix: &str) -> String {
        self.next_uid += 1;
        format!("{prefix}{}", self.next_uid)
    }

    pub(super) fn add_server(&mut self, name: &str) {
        let mut server = DevServer::test().named(name);
        server.spec.home = Home::Disk("disk-home".parse().unwrap());
        server.metadata.creation_timestamp = Some(to_api_precision(self.now));
        self.servers.push(server);
    }

    pub(super) fn set_desired(&mut self, name: &str, desired: Desired) {
        let server = self.servers.iter_mut().find(|server| server.metadata.name.as_deref() == Some(name)).unwrap();
        server.spec.desired = desired;
    }

    pub(super) fn add_operation(&mut self, uid: &str, action: DiskAction, point: Option<&str>, name: Option<&str>) {
        let mut operation = DiskOperation::test(uid, action);
        let name = name.map(|name| name.parse::<DiskName>().unwrap());
        operation.spec.arguments =
            Some(DiskArguments { point: point.map(|point| point.parse().unwrap()), name, ..Default::default() });
        operation.metadata.creation_timestamp = Some(to_api_precision(self.now));
        self.operations.push(operation);
    }

    pub(super) fn operation(&self, uid: &str) -> Option<DiskOperationPhase> {
        self.operation_status(uid)?.phase
    }

    pub(super) fn operation_status(&self, uid: &str) -> Option<&DiskOperationStatus> {
        let operation = self.operations.iter().find(|operation| operation.metadata.uid.as_deref() == Some(uid))?;
        operation.status.as_ref()
    }

    /// Runs all actors until nothing changes.
    pub(super) fn settle(&mut self) {
        for _ in 0..MAX_STEPS {
            let before = self.fingerprint();
            self.step();
            if self.fingerprint() == before {
                return;
            }
        }
        panic!("not settled after {MAX_STEPS} steps: {:#?}", self.disks);
    }

    /// Runs each actor once.
    pub(super) fn step(&mut self) {
        self.run_cluster();
        self.run_operator();
    }

    /// Runs everything but the disk controller.
    pub(super) fn run_cluster(&mut self) {
        if !self.is_storage_stopped {
            self.run_storage();
        }
        self.run_servers();
        self.run_operation_pods();
    }

    fn fingerprint(&self) -> String {
        let Self { disks, servers, pods, operations, claims, volumes, snapshots, contents, terminating, .. } = self;
        let Self { secrets, operation_states, disk_states, config_maps, .. } = self;
        format!(
            "{disks:?}{servers:?}{pods:?}{operations:?}{claims:?}{volumes:?}{snapshots:?}{contents:?}{terminating:?}\
             {secrets:?}{operation_states:?}{disk_states:?}{config_maps:?}"
        )
    }

    /// Provisions claims, takes snapshots, and removes what is deleted.
    fn run_storage(&mut self) {
        for index in 0..self.claims.len() {
            if self.claims[index].phase == ClaimPhase::Pending && self.has_consumer(&self.claims[index].name) {
                let uid = self.uid("volume-");
                let claim = &mut self.claims[index];
                claim.phase = ClaimPhase::Bound;
                claim.volume = Some(uid.clone());
                let source = claim.snapshot.as_ref().map(|snapshot| self.data[snapshot].clone());
                self.data.entry(claim.uid.clone()).or_insert(source.unwrap_or_default());
                self.volumes.push(Volume {
                    name: uid.clone(),
                    affinity: claim.source_affinity.clone(),
                    csi: None,
                    uid,
                    claim_namespace: Some("dev-ada".into()),
                    claim_uid: Some(claim.uid.clone()),
                    is_retained: false,
                });
            }
        }
        let fails = self.snapshots_fail;
        for snapshot in self.snapshots.iter_mut().flatten() {
            if fails {
                snapshot.error = Some("out of space".into());
            } else if snapshot.taken_at.is_none() {
                let claim = snapshot.claim_uid.clone().unwrap();
                self.data.insert(snapshot.name.clone(), self.data[&claim].clone());
                snapshot.taken_at = Some(self.now);
            } else if !snapshot.is_ready {
                snapshot.is_ready = true;
                snapshot.restore_size = Some(Quantity::bytes(1 << 30));
                snapshot.content = Some(format!("content-{}", snapshot.name));
                self.contents.push(SnapshotContent {
                    name: format!("content-{}", snapshot.name),
                    uid: format!("uid-content-{}", snapshot.name),
                    snapshot_namespace: Some("dev-ada".into()),
                    snapshot_uid: Some(snapshot.uid.clone()),
                    has_handle: true,
                    is_retained: false,
                });
            }
        }
        let deleted: Vec<Claim> = self.claims.iter().filter(|claim| claim.is_deleting).cloned().collect();
        for claim in deleted {
            // The controllers see a deletion some time later.
            let is_mounted = self.pods.iter().any(|pod| pod.claims.iter().any(|mounted| **mounted == *claim.name));
            if self.terminating.insert(claim.uid.clone()) || is_mounted {
                continue;
            }
            self.claims.retain(|other| other.uid != claim.uid);
            self.volumes.retain(|volume| volume.is_retained || volume.claim_uid.as_ref() != Some(&claim.uid));
            // Garbage collection.
            self.secrets.retain(|(_, owner)| *owner != claim.uid);
        }
    }

    /// Makes new claims wait for a pod that mounts them.
    pub(super) fn wait_for_consumers(&mut self) {
        self.class.waits_for_consumer = true;
    }

    /// Reports whether a claim can be bound.
    fn has_consumer(&self, claim: &str) -> bool {
        let mut pods = self.pods.iter();
        !self.class.waits_for_consumer || pods.any(|pod| pod.claims.iter().any(|mounted| &**mounted == claim))
    }

    /// Plays scheduler and server controller: a server is admitted and gets its pod only if it holds the disk.
    fn run_servers(&mut self) {
        let holder = self.disks.first().and_then(|disk| disk.status.as_ref()?.holder.clone());
        let claim = self.disks.first().and_then(|disk| disk.status.as_ref()?.claim.clone());
        let mut stopped = Vec::new();
        for server in &mut self.servers {
            let name = server.metadata.name.clone().unwrap();
            let uid = server.metadata.uid.clone().unwrap();
            let pod_name = format!("{name}-0");
            let position = self.pods.iter().position(|pod| pod.name == pod_name);
            let status = server.status.get_or_insert_default();
            let holds = holder.as_ref().is_some_and(|holder| holder.uid == uid && holder.releasing_since.is_none());
            match (server.spec.desired, status.admission.is_some(), position) {
                (Desired::Running, false, None) if holds && claim.is_some() && !self.is_full => {
                    let nodes = vec!["node-1".into()];
                    status.admission = Some(Admission { run: 1, nodes, ..Admission::default() });
                }
                (Desired::Running, true, None) if holds => {
                    let claim = claim.as_ref().unwrap().to_string();
                    assert!(!self.pods.iter().any(|pod| may_write(pod, &claim)), "two writers");
                    let claim_uid = &self.claims.iter().find(|found| found.name == claim).unwrap().uid;
                    self.data.entry(claim_uid.clone()).and_modify(|data| data.push_str(&format!("{name};")));
                    let mut pod = fixtures::pod(&pod_name);
                    let details = pod.server.as_mut().unwrap();
                    details.owner = Some(uid.clone());
                    details.created_for.clone_from(&details.owner);
                    (details.ip, details.host_key) = (Some("10.0.0.2".into()), Some("ssh-ed25519 key".into()));
                    pod.claims = [claim.into()].into();
                    self.pods.push(pod);
                }
                (Desired::Hibernated | Desired::Ended, _, Some(position)) => {
                    stopped.push(self.pods.remove(position));
                }
                (Desired::Hibernated | Desired::Ended, true, None) => status.admission = None,
                _ => {}
            }
        }
        for pod in stopped {
            // The agent is quiesced before.
            self.record_listing(&pod);
        }
    }

    pub(super) fn run_operator(&mut self) {
        for index in 0..self.disks.len() {
            let Some(disk) = self.disks.get(index).cloned() else { continue };
            let plan = self.plan(&disk);
            if self.execute(&disk, plan).is_err() {
                // The next leader starts from the stored state.
                self.operation_states.clear();
                self.disk_states.clear();
                return;
            }
        }
    }

    pub(super) fn plan(&self, disk: &Disk) -> Plan {
        let snapshots = self.snapshots.as_ref().map(|snapshots| ObservedSnapshots {
            snapshots: snapshots.iter().collect(),
            contents: self.contents.iter().map(|content| (content.name.as_str(), content)).collect(),
        });
        let name = disk.metadata.name.as_deref().unwrap();
        let is_home = |server: &&DevServer| matches!(&server.spec.home, Home::Disk(home) if home.as_str() == name);
        let observed = Observed {
            claims: self.claims.iter().collect(),
            volumes: self.volumes.iter().map(|volume| (volume.name.as_str(), volume)).collect(),
            classes: vec![&self.class],
            snapshots,
            servers: self.servers.iter().filter(is_home).collect(),
            pods: self.pods.iter().collect(),
            operations: self.operations.iter().collect(),
            operation_states: self.operation_states.iter().map(|(uid, state)| (uid.as_str(), state.clone())).collect(),
            disk_state: disk
                .metadata
                .uid
                .as_ref()
                .and_then(|uid| self.disk_states.get(uid))
                .cloned()
                .unwrap_or_default(),
            disks: self.disks.iter().collect(),
            owner: Some(&self.owner),
            control_cas: &self.control_cas,
            is_namespace_deleting: false,
            ready_nodes: self.ready_nodes.iter().map(String::as_str).collect(),
            flavors: self.flavors.iter().collect(),
        };
        reconcile(disk, &observed, &fixtures::settings(), self.now)
    }

    fn execute(&mut self, disk: &Disk, plan: Plan) -> Result<(), Crash> {
        let uid = disk.metadata.uid.clone();
        for write in plan.writes {
            self.write(&write);
            self.count()?;
        }
        // Everything after the status may be refused.
        if let Some(stored) = self.disks.iter_mut().find(|stored| stored.metadata.uid == uid)
            && stored.status.as_ref() != Some(&plan.status)
        {
            stored.status = Some(plan.status);
            self.count()?;
        }
        for (name, status) in plan.operations {
            let named = |operation: &&mut DiskOperation| operation.metadata.name.as_deref() == Some(&name);
            let operation = self.operations.iter_mut().find(named).unwrap();
            assert!(!super::operation::is_finished(operation), "a final status is overwritten");
            operation.status = Some(status);
            self.count()?;
        }
        let mut refused = None;
        for write in plan.disk_writes {
            match self.refuse(&write) {
                None => self.write(&write),
                Some(message) => refused = Some(RefusedWrite { kind: write.kind(), message }),
            }
            self.count()?;
        }
        if let Some(uid) = &uid {
            self.disk_states.entry(uid.clone()).or_default().refused = refused;
        }
        for (uid, write) in plan.operation_writes {
            self.write_for_operation(&uid, &write);
            self.count()?;
        }
        self.execute_listings(disk, plan.listings)?;
        for (uid, call) in plan.agent_calls {
            match call.request {
                AgentRequest::Flush(_) => self.flush(disk, &call),
                _ => self.answer(&uid, call),
            }
        }
        Ok(())
    }

    /// Returns why the API server refuses to create an object.
    pub(super) fn refuse(&self, write: &Write) -> Option<String> {
        let is_refused = matches!(write, Write::Create(_)) && self.refused == Some(write.kind());
        is_refused.then(|| format!("Creating {} {} failed: exceeded quota", write.kind().as_str(), write.name()))
    }

    fn count(&mut self) -> Result<(), Crash> {
        self.writes += 1;
        if self.crash_after == Some(self.writes) { Err(Crash) } else { Ok(()) }
    }

    fn write(&mut self, write: &Write) {
        match write {
            Write::Create(object) => self.create(object),
            Write::Apply(object) => self.patch(object),
            Write::Delete(target) => self.delete(target),
            Write::CreateWithKeys { .. } | Write::Adopt { .. } => panic!("unexpected write {write:?}"),
        }
    }

    fn create(&mut self, object: &Object) {
        let name = object.name.clone();
        match object.kind {
            Kind::PersistentVolumeClaim => {
                assert!(self.claims.iter().all(|claim| claim.name != name), "claim {name} exists");
                let mut claim: PersistentVolumeClaim = serde_json::from_value(object.body.clone()).unwrap();
                claim.metadata.uid = Some(self.uid("claim-"));
                self.claims.push(Claim::from_api(&claim));
            }
            Kind::VolumeSnapshot => {
                let uid = self.uid("snapshot-");
                let snapshots = self.snapshots.as_mut().unwrap();
                assert!(snapshots.iter().all(|snapshot| snapshot.name != name), "snapshot {name} exists");
                let mut body = object.body.clone();
                body["metadata"]["uid"] = uid.into();
                snapshots.push(Snapshot::from_api(&body));
            }
            Kind::Disk => {
                let mut disk: Disk = serde_json::from_value(object.body.clone()).unwrap();
                assert!(self.disks.iter().all(|other| other.metadata.name != disk.metadata.name), "disk {name} exists");
                disk.metadata.uid = Some(self.uid("disk-"));
                self.disks.push(disk);
            }
            Kind::Pod => self.create_operation_pod(object),
            other => panic!("unexpected creation of {other:?}"),
        }
    }

    fn patch(&mut self, object: &Object) {
        let (name, body) = (&object.name, &object.body);
        match object.kind {
            Kind::PersistentVolume => {
                let volume = self.volumes.iter_mut().find(|volume| volume.name == *name).unwrap();
                assert_eq!(body["metadata"]["uid"], json!(volume.uid));
                volume.is_retained = body["spec"]["persistentVolumeReclaimPolicy"] == "Retain";
            }
            Kind::VolumeSnapshotContent => {
                let content = self.contents.iter_mut().find(|content| content.name == *name).unwrap();
                content.is_retained = body["spec"]["deletionPolicy"] == "Retain";
            }
            Kind::Disk => {
                let disk = self.disks.iter_mut().find(|disk| disk.metadata.name.as_ref() == Some(name)).unwrap();
                let finalizers: Vec<String> = serde_json::from_value(body["metadata"]["finalizers"].clone()).unwrap();
                disk.metadata.finalizers = Some(finalizers);
                self.collect_disks();
            }
            Kind::VolumeSnapshot => self.annotate(object),
            Kind::PersistentVolumeClaim => {
                let claim = self.claims.iter_mut().find(|claim| claim.name == *name).unwrap();
                let size = body["spec"]["resources"]["requests"]["storage"].as_str().unwrap();
                claim.size = Some(size.parse().unwrap());
            }
            other => panic!("unexpected patch of {other:?}"),
        }
    }

    fn delete(&mut self, target: &Target) {
        match target.kind {
            Kind::PersistentVolumeClaim => {
                if !self.claims.iter().any(|claim| claim.uid == target.uid && claim.operation_uid.is_some()) {
                    self.check_copy_exists(&target.uid);
                }
                let claim = self.claims.iter_mut().find(|claim| claim.uid == target.uid).unwrap();
                claim.is_deleting = true;
            }
            Kind::VolumeSnapshot => {
                let snapshots = self.snapshots.as_mut().unwrap();
                let deleted = snapshots.iter().position(|snapshot| snapshot.uid == target.uid).unwrap();
                let deleted = snapshots.remove(deleted);
                // Garbage collection.
                self.config_maps.retain(|config_map| config_map.owner != deleted.uid);
                let is_ready = |snapshot: &Snapshot| {
                    snapshot.is_ready && !snapshot.is_temporary && snapshot.claim_uid == deleted.claim_uid
                };
                let is_last = is_ready(&deleted) && !deleted.is_temporary && !snapshots.iter().any(is_ready);
                self.contents
                    .retain(|content| content.is_retained || content.snapshot_uid.as_ref() != Some(&deleted.uid));
                let has_claim = self.claims.iter().any(|claim| Some(&claim.uid) == deleted.claim_uid.as_ref());
                assert!(!is_last || !has_claim || self.is_confirmed(), "the last point {} is deleted", deleted.name);
            }
            Kind::Disk => {
                let named = |disk: &&mut Disk| disk.metadata.uid.as_ref() == Some(&target.uid);
                let disk = self.disks.iter_mut().find(named).unwrap();
                disk.metadata.deletion_timestamp = Some(to_api_precision(self.now));
                self.collect_disks();
            }
            Kind::Pod => self.pods.retain(|pod| pod.uid != target.uid),
            Kind::ConfigMap => self.config_maps.retain(|config_map| config_map.uid != target.uid),
            other => panic!("unexpected deletion of {other:?}"),
        }
    }

    /// A claim with data may be deleted only if a verified snapshot with the same data exists, or its owner confirmed it.
    fn check_copy_exists(&self, claim_uid: &str) {
        let Some(data) = self.data.get(claim_uid) else { return };
        let source =
            self.claims.iter().find(|claim| claim.uid == claim_uid).and_then(|claim| claim.snapshot.as_deref());
        let is_related = |snapshot: &&Snapshot| {
            snapshot.claim_uid.as_deref() == Some(claim_uid) || Some(snapshot.name.as_str()) == source
        };
        let mut copies = self.snapshots.iter().flatten().filter(is_related);
        let has_copy = copies.any(|snapshot| snapshot.is_ready && self.data.get(&snapshot.name) == Some(data));
        assert!(has_copy || self.is_confirmed(), "claim {claim_uid} is deleted without a copy");
    }

    fn is_confirmed(&self) -> bool {
        self.disks.iter().filter(|disk| disk.metadata.deletion_timestamp.is_some()).any(|disk| {
            let annotations = disk.metadata.annotations.as_ref();
            let confirmation = annotations.and_then(|annotations| annotations.get(annotation::CONFIRM_DELETE));
            let days =
                disk.status.as_ref().and_then(|status| status.deletion.as_ref()).map_or(0, |deletion| deletion.days);
            confirmation == disk.metadata.name.as_ref() || days >= 30
        })
    }

    pub(super) fn delete_disk(&mut self, confirmation: Option<&str>) {
        let disk = &mut self.disks[0];
        disk.metadata.deletion_timestamp = Some(to_api_precision(self.now));
        disk.metadata.annotations =
            confirmation.map(|name| [(annotation::CONFIRM_DELETE.to_owned(), name.to_owned())].into());
        self.collect_disks();
    }

    fn collect_disks(&mut self) {
        self.disks.retain(|disk| {
            let has_finalizer = disk.metadata.finalizers.iter().flatten().next().is_some();
            disk.metadata.deletion_timestamp.is_none() || has_finalizer
        });
    }
}
