//! The only writer of objects other than statuses. It carries out what a plan says, write by write, and chooses nothing.

use std::time::Instant;

use k8s_openapi::api::core::v1 as k8s;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};
use odc_core::object::{Kind, Object};
use odc_core::plan::{Target, Write};
use odc_core::seen;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::context::Context;
use crate::error::{Error, code};
use crate::request::{api, in_time};

pub const MANAGER: &str = "odc-operator";

/// Gives the object as it is stored now, where there is one.
pub async fn apply(ctx: &Context, write: &Write) -> Result<Option<Value>, Error> {
    ctx.may_write()?;
    let started = Instant::now();
    let lists = lists(ctx, kind(write));
    let done = match write {
        Write::Apply(object) => patch(ctx, object).await,
        Write::Create(object) => create(ctx, object).await,
        Write::Delete(target) => delete(ctx, target).await,
        Write::Adopt { target, owner } => adopt(ctx, target, owner).await,
    };
    tracing::debug!(?write, took = ?started.elapsed(), ok = done.is_ok(), "wrote");
    let stored = done?;
    if let Some(stored) = &stored {
        remember(ctx, kind(write), stored, lists);
    }
    Ok(stored)
}

const fn kind(write: &Write) -> Kind {
    match write {
        Write::Apply(object) | Write::Create(object) => object.kind,
        Write::Delete(target) | Write::Adopt { target, .. } => target.kind,
    }
}

fn failed(verb: &'static str, kind: Kind, name: &str, source: kube::Error) -> Error {
    Error::Write { verb, kind, name: name.to_owned(), source: Box::new(source) }
}

async fn patch(ctx: &Context, object: &Object) -> Result<Option<Value>, Error> {
    let how = PatchParams::apply(MANAGER).force();
    let api = api(&ctx.client, object.kind, object.namespace.as_deref());
    let body = Patch::Apply(&object.body);
    let mut answer = in_time(api.patch(&object.name, &how, &body)).await;
    let refused = answer.as_ref().is_err_and(|error| code(error) == Some(422));
    if refused && let Some(other) = other_role(ctx, object).await? {
        tracing::warn!(name = object.name, "a binding of our name had another role; it is made anew");
        ctx.may_write()?;
        delete(ctx, &other).await?;
        ctx.may_write()?;
        answer = in_time(api.patch(&object.name, &how, &body)).await;
    }
    let stored = answer.map_err(|source| failed("applying", object.kind, &object.name, source))?;
    ctx.metrics.wrote("apply", object.kind.as_str());
    Ok(Some(value(&stored)))
}

/// A binding of that name with another role, which cannot be changed. Plans delete those they see; this one has no label of
/// ours, so it is not among our copies, and nothing but the refusal tells of it.
async fn other_role(ctx: &Context, object: &Object) -> Result<Option<Target>, Error> {
    if object.kind != Kind::RoleBinding {
        return Ok(None);
    }
    let (kind, name) = (object.kind, &object.name);
    let by_name = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = in_time(api(&ctx.client, kind, object.namespace.as_deref()).list(&by_name)).await;
    let found = found.map_err(|source| Error::Read { kind, name: name.clone(), source: Box::new(source) })?;
    let other = found.items.into_iter().find(|there| there.data["roleRef"] != object.body["roleRef"]);
    Ok(other.map(|there| Target {
        kind,
        namespace: object.namespace.clone(),
        name: name.clone(),
        uid: there.metadata.uid.unwrap_or_default(),
        grace: None,
    }))
}

/// An object of that name is fine if it is ours: then an earlier answer was lost.
async fn create(ctx: &Context, object: &Object) -> Result<Option<Value>, Error> {
    let (kind, name) = (object.kind, &object.name);
    let api = api(&ctx.client, kind, object.namespace.as_deref());
    let how = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
    let body: DynamicObject = serde_json::from_value(object.body.clone())
        .map_err(|error| Error::Malformed { what: format!("{} {name}", kind.as_str()), reason: error.to_string() })?;
    match in_time(api.create(&how, &body)).await {
        Ok(stored) => {
            ctx.metrics.wrote("create", kind.as_str());
            Ok(Some(value(&stored)))
        }
        Err(source) if code(&source) == Some(409) => {
            let read = in_time(api.get(name)).await;
            let there = read.map_err(|source| Error::Read { kind, name: name.clone(), source: Box::new(source) })?;
            let there = value(&there);
            if owner(&there).is_some() && owner(&there) == owner(&object.body) {
                Ok(Some(there))
            } else {
                Err(Error::Foreign { kind, name: name.clone() })
            }
        }
        Err(source) => Err(failed("creating", kind, name, source)),
    }
}

/// The uid of the controller.
fn owner(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}

/// One that is gone, or whose name another has taken, is deleted enough.
async fn delete(ctx: &Context, target: &Target) -> Result<Option<Value>, Error> {
    let (kind, name) = (target.kind, &target.name);
    let api = api(&ctx.client, kind, target.namespace.as_deref());
    let how = DeleteParams {
        grace_period_seconds: target.grace,
        preconditions: Some(Preconditions { uid: Some(target.uid.clone()), resource_version: None }),
        ..DeleteParams::background()
    };
    match in_time(api.delete(name, &how)).await {
        Ok(answer) => {
            ctx.metrics.wrote("delete", kind.as_str());
            Ok(answer.left().as_ref().map(value))
        }
        Err(source) if matches!(code(&source), Some(404 | 409)) => Ok(None),
        Err(source) => Err(failed("deleting", kind, name, source)),
    }
}

async fn adopt(ctx: &Context, target: &Target, owner: &Value) -> Result<Option<Value>, Error> {
    let (kind, name) = (target.kind, &target.name);
    let api = api(&ctx.client, kind, target.namespace.as_deref());
    let body = json!({"metadata": {"uid": target.uid, "ownerReferences": [owner]}});
    let how = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let answer = in_time(api.patch(name, &how, &Patch::Merge(&body))).await;
    let stored = answer.map_err(|source| failed("adopting", kind, name, source))?;
    ctx.metrics.wrote("adopt", kind.as_str());
    Ok(Some(value(&stored)))
}

fn value(object: &DynamicObject) -> Value {
    // What came as JSON goes as JSON.
    serde_json::to_value(object).unwrap_or_default()
}

pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Puts what was written into our copies, so that the next look does not write it again before the watch tells us.
fn remember(ctx: &Context, kind: Kind, stored: &Value, lists: u64) {
    let text = |field: &str| stored["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (key, version) = ((text("namespace"), text("name")), version(stored));
    match kind {
        Kind::Pod => {
            if let Ok(pod) = k8s::Pod::deserialize(stored) {
                ctx.cluster.pods.insert_own(key, seen::Pod::of(&pod), version, lists);
            }
        }
        Kind::Secret | Kind::DevServer => {}
        _ => {
            if let Some(cache) = copies(ctx, kind) {
                cache.insert_own(key, seen::Child::of(kind, stored.clone()), version, lists);
            }
        }
    }
}

/// How often that kind was listed.
fn lists(ctx: &Context, kind: Kind) -> u64 {
    match kind {
        Kind::Pod => ctx.cluster.pods.lists(),
        _ => copies(ctx, kind).map_or(0, Cache::lists),
    }
}

fn copies(ctx: &Context, kind: Kind) -> Option<&Cache<seen::Child>> {
    match kind {
        Kind::Namespace => Some(&ctx.cluster.namespaces),
        _ => ctx.cluster.children.of(kind),
    }
}
