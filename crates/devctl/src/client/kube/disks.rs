//! Disks and operations on them.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use ::kube::ResourceExt as _;
use ::kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use odc_api::annotation::CONFIRM_DELETE;
use odc_api::v1alpha1::{Disk, DiskOperation, DiskOperationSpec, LISTING_KEY};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{FIELD_MANAGER, KubeClient};
use crate::client::status::{is_uncounted, with_object};
use crate::client::{Disks, WatchEvent};
use crate::error::{Error, Kind, Result};
use crate::model::disk::{self, DiskSummary};

/// How long to wait until Kubernetes has counted the objects of a namespace.
const QUOTA_TIMEOUT: Duration = Duration::from_secs(60);
const QUOTA_RETRY_DELAY: Duration = Duration::from_secs(1);

impl KubeClient {
    /// Converts the error of a request to a collection. It is not found if the custom resource is not installed.
    fn collection_error(&self, error: ::kube::Error) -> Error {
        match error {
            ::kube::Error::Api(status) if status.code == 404 => unsupported(&self.target.context),
            error => self.error(error),
        }
    }

    /// Creates an object that the quota of the namespace counts. The quota of a new user rejects it until Kubernetes has
    /// counted all kinds, which takes seconds.
    async fn create_counted<K>(&self, object: &K, dry_run: bool) -> Result<K>
    where
        K: ::kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
    {
        let deadline = Instant::now() + QUOTA_TIMEOUT;
        loop {
            match self.own_api::<K>().create(&Self::post_params(dry_run), object).await {
                Err(::kube::Error::Api(status)) if is_uncounted(&status) && Instant::now() < deadline => {
                    tokio::time::sleep(QUOTA_RETRY_DELAY).await;
                }
                created => return created.map_err(|error| self.collection_error(error)),
            }
        }
    }

    fn post_params(dry_run: bool) -> PostParams {
        PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) }
    }
}

fn unsupported(context: &str) -> Error {
    Error::not_found(format!("disks are not installed on context {context}"))
        .with_hint("ask your administrator to update ODC, or pass `--ephemeral` to create a server without a disk")
}

#[async_trait]
impl Disks for KubeClient {
    async fn disks(&self) -> Result<Vec<DiskSummary>> {
        let api: Api<DiskSummary> = self.own_api();
        let list = api.list(&ListParams::default()).await.map_err(|error| self.collection_error(error))?;
        Ok(list.items)
    }

    async fn disk(&self, name: &str) -> Result<Option<DiskSummary>> {
        self.own_api::<DiskSummary>().get_opt(name).await.map_err(|error| self.error(error))
    }

    async fn create_disk(&self, disk: &Disk, dry_run: bool) -> Result<DiskSummary> {
        let created = self.create_counted(disk, dry_run).await?;
        DiskSummary::try_from(&created).map_err(|error| self.error(::kube::Error::SerdeError(error)))
    }

    async fn patch_disk(&self, name: &str, patch: Value, dry_run: bool) -> Result<DiskSummary> {
        let params = PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patched = self.own_api::<DiskSummary>().patch(name, &params, &Patch::Merge(&patch)).await;
        patched.map_err(|error| match self.error(error) {
            error if error.kind == Kind::NotFound => disk::not_found(name, None),
            error => error,
        })
    }

    async fn purge_disk(&self, name: &str, uid: &str) -> Result<()> {
        // The UID is a precondition of the patch.
        let confirmation = json!({"metadata": {"uid": uid, "annotations": {CONFIRM_DELETE: name}}});
        self.patch_disk(name, confirmation, false).await?;
        self.delete_own::<DiskSummary>(name, uid, false).await
    }

    async fn listing(&self, _: &str, point: &str) -> Result<Option<Vec<u8>>> {
        let stored = self.own_api::<ConfigMap>().get_opt(point).await;
        let stored = stored.map_err(|error| with_object(self.error(error), &format!("listing of {point}")))?;
        Ok(stored.and_then(|stored| stored.binary_data?.remove(LISTING_KEY)).map(|content| content.0))
    }

    async fn create_operation(&self, spec: &DiskOperationSpec) -> Result<DiskOperation> {
        let mut operation = DiskOperation::new("", spec.clone());
        operation.metadata.name = None;
        let action = disk::action_str(spec.action).to_lowercase();
        operation.metadata.generate_name = Some(format!("{}-{action}-", spec.disk));
        self.create_counted(&operation, false).await
    }

    async fn delete_operation(&self, name: &str, uid: &str) -> Result<()> {
        self.delete_own::<DiskOperation>(name, uid, false).await
    }

    async fn operations(&self, disk: &str) -> Result<Vec<DiskOperation>> {
        let api: Api<DiskOperation> = self.own_api();
        let params = ListParams::default().fields(&format!("spec.disk={disk}"));
        let mut operations = api.list(&params).await.map_err(|error| self.collection_error(error))?.items;
        operations.sort_by_key(|operation| operation.creation_timestamp().map(|time| time.0));
        Ok(operations)
    }

    fn watch_operation(&self, name: &str) -> BoxStream<'static, Result<WatchEvent<DiskOperation>>> {
        self.watch_objects(self.own_api(), Some(name))
    }
}
