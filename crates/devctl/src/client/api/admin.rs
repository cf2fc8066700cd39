//! Users, teams and flavors.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::ApiClient;
use super::change::Executed;
use super::http::{Request, encode};
use super::problem::field_conflict;
use super::resource::{Resource, to_manifest};
use crate::client::status::with_object;
use crate::client::{Admin, ObjectKind, UserKubeconfig};
use crate::error::{Error, Kind, Result};

/// A resource of any of these kinds.
type Object = Resource<Value, Value>;

const fn collection(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::User => "/users",
        ObjectKind::Team => "/teams",
        ObjectKind::Flavor => "/flavors",
    }
}

fn path(kind: ObjectKind, name: &str) -> String {
    format!("{}/{}", collection(kind), encode(name))
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

#[async_trait]
impl Admin for ApiClient {
    async fn objects(&self, kind: ObjectKind) -> Result<Vec<Value>> {
        let (mut pages, mut objects) = (self.pages::<Object>(Request::get(collection(kind))), vec![]);
        while let Some(page) = pages.next().await {
            for object in page? {
                objects.push(to_manifest(kind, object)?);
            }
        }
        Ok(objects)
    }

    async fn object(&self, kind: ObjectKind, name: &str) -> Result<Option<Value>> {
        let object = self.http.get_opt::<Object>(&Request::get(path(kind, name))).await?;
        object.map(|object| to_manifest(kind, object)).transpose()
    }

    async fn apply(&self, kind: ObjectKind, object: Value, dry_run: bool) -> Result<Value> {
        let request = Request::patch(path(kind, name_of(&object))).body(json!({"spec": object["spec"]}));
        let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let request = version.into_iter().fold(request, Request::if_match);
        self.write(kind, request, dry_run).await
    }

    async fn apply_manifest(&self, kind: ObjectKind, manifest: Value, force: bool, dry_run: bool) -> Result<Value> {
        let name = name_of(&manifest).to_owned();
        let mut body = json!({"spec": manifest["spec"]});
        for field in ["labels", "annotations"] {
            if let Some(value) = manifest["metadata"].get(field).filter(|value| !value.is_null()) {
                body[field] = value.clone();
            }
        }
        let request = Request::put(path(kind, &name)).flag("force", force).body(body);
        self.write(kind, request, dry_run).await.map_err(|error| match error.kind {
            Kind::Conflict => field_conflict(kind, &name, error),
            _ => error,
        })
    }

    async fn delete_object(&self, kind: ObjectKind, name: &str, dry_run: bool) -> Result<()> {
        let request = Request::delete(path(kind, name));
        let deleted = if dry_run {
            self.http.send(&request.flag("dryRun", true)).await.map(drop)
        } else {
            // The worker does not report a missing object, because it may have deleted it itself.
            match self.object(kind, name).await? {
                Some(_) => self.change(request).await.map(drop),
                None => Err(Error::not_found("").with_hint("run `devctl list` to see your servers")),
            }
        };
        deleted.map_err(|error| with_object(error, &format!("{} {name}", kind.noun())))
    }

    /// Needs the Kubernetes API, which issues the token.
    async fn user_kubeconfig(&self, user: &str, valid_for: Duration) -> Result<UserKubeconfig> {
        self.kubernetes("a kubeconfig for another user").await?.user_kubeconfig(user, valid_for).await
    }
}

impl ApiClient {
    async fn write(&self, kind: ObjectKind, request: Request, dry_run: bool) -> Result<Value> {
        if dry_run {
            return to_manifest(kind, self.http.get(&request.flag("dryRun", true)).await?);
        }
        let Executed { name, object } = self.change(request).await?;
        let deleted = || Error::not_found(format!("{} {name} was deleted", kind.noun()));
        let Some(object) = object else { return self.object(kind, &name).await?.ok_or_else(deleted) };
        let parsed = serde_json::from_value(object);
        to_manifest(kind, parsed.map_err(|error| Error::failed(format!("unexpected object from the API: {error}")))?)
    }
}
