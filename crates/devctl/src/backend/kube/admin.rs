//! What administrators manage: users, teams and flavors.

use std::time::Duration;

use ::kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use ::kube::core::Status;
use ::kube::core::response::StatusCause;
use ::kube::{Resource as _, ResourceExt as _};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use odc_api::v1alpha1::{DevServerFlavor, DevServerUser, Team};
use serde_json::{Value, json};

use super::{DECLARER, Kube, MANAGER};
use crate::backend::{Kind, Login};
use crate::failure::{Failure, Kind as FailureKind, Result};

/// The account that the operator makes in each user's namespace.
const ACCOUNT: &str = "odc-user";

impl Kind {
    fn resource(self) -> ApiResource {
        match self {
            Self::User => ApiResource::erase::<DevServerUser>(&()),
            Self::Team => ApiResource::erase::<Team>(&()),
            Self::Flavor => ApiResource::erase::<DevServerFlavor>(&()),
        }
    }

    pub fn name(self) -> String {
        match self {
            Self::User => DevServerUser::kind(&()),
            Self::Team => Team::kind(&()),
            Self::Flavor => DevServerFlavor::kind(&()),
        }
        .into_owned()
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Team => "team",
            Self::Flavor => "flavor",
        }
    }
}

impl Kube {
    fn all(&self, kind: Kind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &kind.resource())
    }

    pub(super) async fn list_objects(&self, kind: Kind) -> Result<Vec<Value>> {
        let listed = self.all(kind).list(&ListParams::default()).await.map_err(|error| self.failure(error))?;
        listed.items.iter().map(|object| self.value(object)).collect()
    }

    pub(super) async fn get_object(&self, kind: Kind, name: &str) -> Result<Option<Value>> {
        let found = self.all(kind).get_opt(name).await.map_err(|error| self.failure(error))?;
        found.as_ref().map(|object| self.value(object)).transpose()
    }

    /// A merge patch on what is there, else a create: fields that are not said stay as anybody set them.
    pub(super) async fn apply_object(&self, kind: Kind, object: Value, dry_run: bool) -> Result<Value> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let api = self.all(kind);
        let how = PatchParams { dry_run, field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch(&name, &how, &Patch::Merge(&object)).await {
            Ok(changed) => return self.value(&changed),
            Err(::kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(self.failure(error)),
        }
        let new: DynamicObject =
            serde_json::from_value(object).map_err(|error| Failure::usage(format!("this is no object: {error}")))?;
        let how = PostParams { dry_run, field_manager: Some(MANAGER.to_owned()) };
        let made = api.create(&how, &new).await.map_err(|error| self.failure(error))?;
        self.value(&made)
    }

    /// Server-side apply.
    pub(super) async fn declare_object(
        &self,
        kind: Kind,
        manifest: Value,
        take_over: bool,
        dry_run: bool,
    ) -> Result<Value> {
        let name = manifest.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let how = PatchParams { dry_run, force: take_over, ..PatchParams::apply(DECLARER) };
        match self.all(kind).patch(&name, &how, &Patch::Apply(&manifest)).await {
            Ok(made) => self.value(&made),
            Err(::kube::Error::Api(status)) if status.code == 409 => Err(owned_by_others(kind, &name, &status)),
            Err(error) => Err(self.failure(error)),
        }
    }

    pub(super) async fn delete_object(&self, kind: Kind, name: &str, dry_run: bool) -> Result<()> {
        let how = DeleteParams { dry_run, ..DeleteParams::default() };
        let deleted = self.all(kind).delete(name, &how).await;
        let thing = format!("{} {name}", kind.word());
        deleted.map(drop).map_err(|error| super::said_about(self.failure(error), &thing))
    }

    pub(super) async fn kubeconfig_for(&self, user: &str, good_for: Duration) -> Result<Login> {
        let namespace = format!("dev-{user}");
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &namespace);
        let seconds = i64::try_from(good_for.as_secs()).unwrap_or(i64::MAX);
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(seconds), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
        let answer = answer.map_err(|error| match self.failure(error) {
            failure if failure.kind == FailureKind::NotFound => {
                Failure::not_found(format!("there is no user {user}, or nothing is made for them yet"))
                    .advise("devctl admin user list shows who is ready.")
            }
            failure => failure,
        })?;
        let status = answer
            .status
            .ok_or_else(|| Failure::failed(format!("the cluster gave no token for {user}")).advise("Try again."))?;
        let kubeconfig = self.for_user(user, &namespace, &status.token)?;
        Ok(Login { kubeconfig, until: status.expiration_timestamp.0 })
    }

    /// Our own cluster with another user, and nothing else of our kubeconfig.
    fn for_user(&self, user: &str, namespace: &str, token: &str) -> Result<String> {
        let mut kubeconfig = self.kubeconfig.clone();
        let context = self.kubeconfig.contexts.iter().find(|context| Some(&context.name) == self.context.as_ref());
        let cluster = context.and_then(|context| context.context.as_ref()).map(|context| context.cluster.clone());
        let cluster = cluster
            .ok_or_else(|| Failure::failed("the kubeconfig names no cluster").advise("Name one with --context."))?;
        kubeconfig.clusters.retain(|known| known.name == cluster);
        inline_authority(&mut kubeconfig)?;
        let value = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": kubeconfig.clusters,
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": user, "context": {"cluster": cluster, "user": user, "namespace": namespace}}],
            "current-context": user,
        });
        serde_saphyr::to_string(&value).map_err(|error| Failure::failed(error.to_string()))
    }

    fn value(&self, object: &DynamicObject) -> Result<Value> {
        let mut object = object.clone();
        object.managed_fields_mut().clear();
        serde_json::to_value(object).map_err(|error| self.failure(::kube::Error::SerdeError(error)))
    }
}

/// `conflict with "kubectl" using odc.dev/v1alpha1` at `.spec.limits.total`, for each field.
fn owned_by_others(kind: Kind, name: &str, status: &Status) -> Failure {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let field = |cause: &StatusCause| {
        let owner = cause.message.split('"').nth(1).unwrap_or("somebody else");
        format!("{} is set by {owner}", cause.field.trim_matches('.'))
    };
    let fields: Vec<String> = causes.iter().map(field).collect();
    let fields = if fields.is_empty() { status.message.clone() } else { fields.join(", ") };
    Failure::conflict(format!("{} {name} is also somebody else's: {fields}", kind.word()))
        .advise("Leave these fields out of the manifest, or take them over with --force.")
}

/// A file of ours is none of theirs: what it says goes along.
fn inline_authority(kubeconfig: &mut ::kube::config::Kubeconfig) -> Result<()> {
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        let Some(path) = cluster.certificate_authority.take() else { continue };
        let bytes = std::fs::read(&path).map_err(|error| Failure::failed(format!("{path} cannot be read: {error}")))?;
        // Kubernetes' own type for bytes writes them in base64.
        let encoded = serde_json::to_value(k8s_openapi::ByteString(bytes));
        let encoded = encoded.map_err(|error| Failure::failed(error.to_string()))?;
        cluster.certificate_authority_data = encoded.as_str().map(str::to_owned);
    }
    Ok(())
}
