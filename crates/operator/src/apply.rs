//! Executes the writes of a plan. All objects except statuses, the Lease and the operator's own Secrets are written
//! here.

use std::time::Instant;

use k8s_openapi::api::core::v1 as k8s;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};
use odc_api::v1alpha1::Disk;
use odc_core::cluster::{self, creator_uid};
use odc_core::manifest::{Kind, Object};
use odc_core::plan::{Target, Write};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::agents::ssh_keygen::KeyPair;
use crate::cache::Cache;
use crate::context::Context;
use crate::dynamic_api::{api, with_timeout};
use crate::error::{Error, code};
use crate::status_writer::FIELD_MANAGER;

/// Executes one write. Returns the stored object, if there is one.
pub async fn apply(ctx: &Context, write: &Write) -> Result<Option<Value>, Error> {
    ctx.ensure_leader()?;
    let started = Instant::now();
    let relists = relists(ctx, write.kind());
    let result = match write {
        Write::Apply(object) => patch(ctx, object).await,
        Write::Create(object) => create(ctx, object).await,
        Write::CreateWithKeys { secret, names } => create(ctx, &with_keys(secret, names)?).await,
        Write::Delete(target) => delete(ctx, target).await,
        Write::Adopt { target, owner } => adopt(ctx, target, owner).await,
    };
    // Manifests contain scripts and keys, so they are not logged.
    let (verb, kind, name) = (write.verb(), write.kind().as_str(), write.name());
    tracing::debug!(verb, kind, name, duration = ?started.elapsed(), ok = result.is_ok(), "executed write");
    let stored = result?;
    if let Some(stored) = &stored {
        assume(ctx, write.kind(), stored, relists);
    }
    Ok(stored)
}

fn failed(verb: &'static str, kind: Kind, name: &str, source: kube::Error) -> Error {
    Error::Write { verb, kind, name: name.to_owned(), source: Box::new(source) }
}

async fn patch(ctx: &Context, object: &Object) -> Result<Option<Value>, Error> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let api = api(&ctx.client, object.kind, object.namespace.as_deref());
    let body = Patch::Apply(&object.body);
    let mut response = with_timeout(api.patch(&object.name, &params, &body)).await;
    let invalid = response.as_ref().is_err_and(|error| code(error) == Some(422));
    if invalid && let Some(binding) = binding_with_other_role(ctx, object).await? {
        tracing::warn!(name = object.name, "role binding exists with another role, recreating");
        ctx.ensure_leader()?;
        delete(ctx, &binding).await?;
        ctx.ensure_leader()?;
        response = with_timeout(api.patch(&object.name, &params, &body)).await;
    }
    let stored = response.map_err(|source| failed("applying", object.kind, &object.name, source))?;
    ctx.metrics.record_write("apply", object.kind.as_str());
    Ok(Some(value(&stored)))
}

/// Returns a binding of the same name with another role, which cannot be changed in place. Plans delete such bindings
/// if they are in the cache; this one lacks the operator's label, so only the error of the API server reveals it.
async fn binding_with_other_role(ctx: &Context, object: &Object) -> Result<Option<Target>, Error> {
    if object.kind != Kind::RoleBinding {
        return Ok(None);
    }
    let (kind, name) = (object.kind, &object.name);
    let by_name = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = with_timeout(api(&ctx.client, kind, object.namespace.as_deref()).list(&by_name)).await;
    let found =
        found.map_err(|source| Error::Read { kind: kind.as_str(), name: name.clone(), source: Box::new(source) })?;
    let other = found.items.into_iter().find(|binding| binding.data["roleRef"] != object.body["roleRef"]);
    Ok(other.map(|binding| Target::from_metadata(kind, &binding.metadata)))
}

/// Returns the Secret with a new key pair for each name.
fn with_keys(secret: &Object, names: &[&str]) -> Result<Object, Error> {
    let mut secret = secret.clone();
    for name in names {
        let pair = KeyPair::generate(&format!("{}/{name}", secret.name))
            .map_err(|error| Error::Internal(format!("generating an SSH key: {error:#}")))?;
        let data = &mut secret.body["stringData"];
        data[*name] = pair.private.into();
        data[format!("{name}.pub")] = pair.public.into();
    }
    Ok(secret)
}

/// An existing object that was created for the same object counts as created: the response of an earlier attempt was lost.
async fn create(ctx: &Context, object: &Object) -> Result<Option<Value>, Error> {
    let (kind, name) = (object.kind, &object.name);
    let api = api(&ctx.client, kind, object.namespace.as_deref());
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let body: DynamicObject = serde_json::from_value(object.body.clone()).map_err(|error| Error::Malformed {
        subject: format!("{} {name}", kind.as_str()),
        reason: error.to_string(),
    })?;
    match with_timeout(api.create(&params, &body)).await {
        Ok(stored) => {
            ctx.metrics.record_write("create", kind.as_str());
            Ok(Some(value(&stored)))
        }
        Err(source) if code(&source) == Some(409) => {
            let response = with_timeout(api.get(name)).await;
            let existing = response.map_err(|source| Error::Read {
                kind: kind.as_str(),
                name: name.clone(),
                source: Box::new(source),
            })?;
            let owner = creator_uid(&existing.metadata);
            if owner.is_some() && owner == creator_uid(&body.metadata) {
                Ok(Some(value(&existing)))
            } else {
                Err(Error::Foreign { kind, name: name.clone() })
            }
        }
        Err(source) => Err(failed("creating", kind, name, source)),
    }
}

/// An object that does not exist, or has another uid or version, is left to the next reconciliation.
async fn delete(ctx: &Context, target: &Target) -> Result<Option<Value>, Error> {
    let (kind, name) = (target.kind, &target.name);
    let api = api(&ctx.client, kind, target.namespace.as_deref());
    let params = DeleteParams {
        grace_period_seconds: target.grace,
        preconditions: Some(Preconditions {
            uid: Some(target.uid.clone()),
            resource_version: target.resource_version.clone(),
        }),
        ..DeleteParams::background()
    };
    match with_timeout(api.delete(name, &params)).await {
        Ok(response) => {
            ctx.metrics.record_write("delete", kind.as_str());
            Ok(response.left().as_ref().map(value))
        }
        Err(source) if matches!(code(&source), Some(404 | 409)) => Ok(None),
        Err(source) => Err(failed("deleting", kind, name, source)),
    }
}

async fn adopt(ctx: &Context, target: &Target, owner: &Value) -> Result<Option<Value>, Error> {
    let (kind, name) = (target.kind, &target.name);
    let api = api(&ctx.client, kind, target.namespace.as_deref());
    let body = json!({"metadata": {"uid": target.uid, "ownerReferences": [owner]}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let response = with_timeout(api.patch(name, &params, &Patch::Merge(&body))).await;
    let stored = response.map_err(|source| failed("adopting", kind, name, source))?;
    ctx.metrics.record_write("adopt", kind.as_str());
    Ok(Some(value(&stored)))
}

fn value(object: &DynamicObject) -> Value {
    // Serializing what was deserialized from JSON cannot fail.
    serde_json::to_value(object).unwrap_or_default()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Inserts the stored object into its cache, so that the next reconciliation does not repeat the write.
fn assume(ctx: &Context, kind: Kind, stored: &Value, relists: u64) {
    let text = |field: &str| stored["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (key, version) = ((text("namespace"), text("name")), version(stored));
    match kind {
        Kind::Pod => {
            if let Ok(pod) = k8s::Pod::deserialize(stored) {
                ctx.cluster.pods.assume(key.clone(), cluster::Pod::from_api(&pod), version, relists);
                ctx.cluster.index_pod(&key);
            }
        }
        Kind::PersistentVolumeClaim => {
            if let Ok(claim) = k8s::PersistentVolumeClaim::deserialize(stored) {
                ctx.cluster.claims.assume(key, cluster::Claim::from_api(&claim), version, relists);
            }
        }
        Kind::PersistentVolume => {
            if let Ok(volume) = k8s::PersistentVolume::deserialize(stored) {
                ctx.cluster.volumes.assume(key, cluster::Volume::from_api(&volume), version, relists);
            }
        }
        Kind::VolumeSnapshot => {
            ctx.cluster.snapshots.assume(key, cluster::Snapshot::from_api(stored), version, relists);
        }
        Kind::VolumeSnapshotContent => {
            let content = cluster::SnapshotContent::from_api(stored);
            ctx.cluster.snapshot_contents.assume(key, content, version, relists);
        }
        Kind::Disk => {
            if let Ok(disk) = Disk::deserialize(stored) {
                ctx.assumed_disks.send(disk, relists);
            }
        }
        Kind::Secret | Kind::ConfigMap | Kind::DevServer | Kind::DiskOperation => {}
        _ => {
            if let Some(cache) = managed_cache(ctx, kind) {
                cache.assume(key, cluster::ManagedObject::from_api(kind, stored.clone()), version, relists);
            }
        }
    }
}

fn relists(ctx: &Context, kind: Kind) -> u64 {
    match kind {
        Kind::Pod => ctx.cluster.pods.relists(),
        Kind::PersistentVolumeClaim => ctx.cluster.claims.relists(),
        Kind::PersistentVolume => ctx.cluster.volumes.relists(),
        Kind::VolumeSnapshot => ctx.cluster.snapshots.relists(),
        Kind::VolumeSnapshotContent => ctx.cluster.snapshot_contents.relists(),
        Kind::Disk => ctx.assumed_disks.relists(),
        _ => managed_cache(ctx, kind).map_or(0, Cache::relists),
    }
}

fn managed_cache(ctx: &Context, kind: Kind) -> Option<&Cache<cluster::ManagedObject>> {
    match kind {
        Kind::Namespace => Some(&ctx.cluster.namespaces),
        _ => ctx.cluster.managed_objects.kind(kind),
    }
}
