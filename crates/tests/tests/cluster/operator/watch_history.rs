//! All revisions of servers, pods, the Lease and, if wanted, disks with their storage, as the API server's watches report them.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource, ResourceExt as _};
use odc_api::v1alpha1::{DevServer, Disk};
use odc_tests::wait;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::fixture::TIMEOUT;

/// One revision of one object.
#[derive(Clone, Debug)]
pub enum Revision {
    Server(Box<DevServer>),
    ServerDeleted(Box<DevServer>),
    Pod(Box<Pod>),
    PodDeleted(Box<Pod>),
    Lease(Box<Lease>),
    Disk(Box<Disk>),
    Claim(Box<PersistentVolumeClaim>),
    ClaimDeleted(Box<PersistentVolumeClaim>),
    VolumeDeleted(Box<PersistentVolume>),
    Snapshot(Box<DynamicObject>),
    SnapshotDeleted(Box<DynamicObject>),
}

/// Records revisions from its start.
pub struct WatchHistory {
    client: Client,
    record: Arc<Mutex<Record>>,
    watches: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Record {
    revisions: Vec<(u64, Revision)>,
    errors: Vec<String>,
}

impl WatchHistory {
    pub fn start(client: &Client) -> Self {
        let record = Arc::new(Mutex::new(Record::default()));
        let servers = watch(Api::all(client.clone()), record.clone(), |server: Box<DevServer>, exists| {
            Some(if exists { Revision::Server(server) } else { Revision::ServerDeleted(server) })
        });
        let pods = watch(Api::all(client.clone()), record.clone(), |pod: Box<Pod>, exists| {
            Some(if exists { Revision::Pod(pod) } else { Revision::PodDeleted(pod) })
        });
        let leases = Api::namespaced(client.clone(), "odc-system");
        let leases =
            watch(leases, record.clone(), |lease: Box<Lease>, exists| exists.then_some(Revision::Lease(lease)));
        Self { client: client.clone(), record, watches: vec![servers, pods, leases] }
    }

    /// Records disks, their claims, volumes and snapshots too. The CRDs of snapshots must be installed.
    pub fn start_with_disks(client: &Client) -> Self {
        let mut history = Self::start(client);
        let record = &history.record;
        let disks = watch(Api::all(client.clone()), record.clone(), |disk: Box<Disk>, exists| {
            exists.then_some(Revision::Disk(disk))
        });
        let claims = watch(Api::all(client.clone()), record.clone(), |claim: Box<PersistentVolumeClaim>, exists| {
            Some(if exists { Revision::Claim(claim) } else { Revision::ClaimDeleted(claim) })
        });
        let volumes = watch(Api::all(client.clone()), record.clone(), |volume: Box<PersistentVolume>, exists| {
            (!exists).then_some(Revision::VolumeDeleted(volume))
        });
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshot"));
        let snapshots =
            watch(Api::all_with(client.clone(), &kind), record.clone(), |snapshot: Box<DynamicObject>, exists| {
                Some(if exists { Revision::Snapshot(snapshot) } else { Revision::SnapshotDeleted(snapshot) })
            });
        history.watches.extend([disks, claims, volumes, snapshots]);
        history
    }

    /// Waits until a deleted volume is recorded for each of these claims.
    pub async fn wait_volumes_deleted(&self, claims: &[String]) -> anyhow::Result<()> {
        wait::until("deleted volumes in the history", TIMEOUT, async || {
            let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
            let deleted: Vec<&str> = record
                .revisions
                .iter()
                .filter_map(|(_, revision)| match revision {
                    Revision::VolumeDeleted(volume) => volume.spec.as_ref()?.claim_ref.as_ref()?.name.as_deref(),
                    _ => None,
                })
                .collect();
            anyhow::ensure!(claims.iter().all(|claim| deleted.contains(&claim.as_str())), "{deleted:?} of {claims:?}");
            Ok(())
        })
        .await
    }

    /// Waits until the current revision of every server is recorded, and returns all revisions in the order of storage.
    pub async fn finish(self) -> anyhow::Result<Vec<(u64, Revision)>> {
        let servers: Api<DevServer> = Api::all(self.client.clone());
        let current = servers.list(&ListParams::default()).await?;
        wait::until("complete history", TIMEOUT, async || {
            let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
            for server in &current {
                let version = version(server)?;
                let recorded = record.revisions.iter().any(|(recorded, _)| *recorded == version);
                anyhow::ensure!(recorded, "{} is not recorded at version {version}", server.name_any());
            }
            Ok(())
        })
        .await?;
        self.watches.iter().for_each(JoinHandle::abort);
        let Record { mut revisions, errors } =
            std::mem::take(&mut *self.record.lock().unwrap_or_else(PoisonError::into_inner));
        anyhow::ensure!(errors.is_empty(), "the history is incomplete: {errors:#?}");
        revisions.sort_by_key(|(version, _)| *version);
        Ok(revisions)
    }
}

/// Returns the resource version as a number. All kinds share one store, so the numbers give the order.
fn version<K: Resource>(object: &K) -> anyhow::Result<u64> {
    let version = object.meta().resource_version.as_deref().context("the object has no resource version")?;
    version.parse().with_context(|| format!("parsing resource version {version}"))
}

fn watch<K>(
    api: Api<K>,
    record: Arc<Mutex<Record>>,
    revision: impl Fn(Box<K>, bool) -> Option<Revision> + Send + 'static,
) -> JoinHandle<()>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    tokio::spawn(async move {
        let mut events = Box::pin(watcher::watcher(api, watcher::Config::default()));
        let mut lists = 0;
        while let Some(event) = events.next().await {
            let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
            let (object, exists) = match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => (object, true),
                Ok(Event::Delete(object)) => (object, false),
                Ok(Event::Init) => {
                    lists += 1;
                    if lists > 1 {
                        record.errors.push("a watch was restarted".into());
                    }
                    continue;
                }
                Ok(Event::InitDone) => continue,
                Err(error) => {
                    record.errors.push(format!("a watch failed: {error}"));
                    continue;
                }
            };
            match version(&object) {
                Ok(version) => {
                    record.revisions.extend(revision(Box::new(object), exists).map(|revision| (version, revision)));
                }
                Err(error) => record.errors.push(format!("{error:#}")),
            }
        }
    })
}
