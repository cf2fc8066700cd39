//! Users, teams and flavors.

use std::time::Duration;

use ::kube::ResourceExt as _;
use ::kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use odc_api::v1alpha1::{DevServerFlavor, DevServerUser, Team};
use serde_json::{Value, json};

use super::{APPLY_FIELD_MANAGER, FIELD_MANAGER, KubeClient};
use crate::client::status::{field_conflict, with_object};
use crate::client::{Admin, ObjectKind, UserKubeconfig};
use crate::error::{Error, Kind, Result};

/// The service account that the operator creates in each user namespace.
const SERVICE_ACCOUNT: &str = "odc-user";

impl ObjectKind {
    fn resource(self) -> ApiResource {
        match self {
            Self::User => ApiResource::erase::<DevServerUser>(&()),
            Self::Team => ApiResource::erase::<Team>(&()),
            Self::Flavor => ApiResource::erase::<DevServerFlavor>(&()),
        }
    }
}

#[async_trait]
impl Admin for KubeClient {
    async fn objects(&self, kind: ObjectKind) -> Result<Vec<Value>> {
        let list = self.all(kind).list(&ListParams::default()).await.map_err(|error| self.error(error))?;
        list.items.iter().map(|object| self.to_value(object)).collect()
    }

    async fn object(&self, kind: ObjectKind, name: &str) -> Result<Option<Value>> {
        let object = self.all(kind).get_opt(name).await.map_err(|error| self.error(error))?;
        object.as_ref().map(|object| self.to_value(object)).transpose()
    }

    /// Sends a merge patch, then a create if there is no such object, so that other fields keep their values.
    async fn apply(&self, kind: ObjectKind, object: Value, dry_run: bool) -> Result<Value> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let api = self.all(kind);
        let params = PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch(&name, &params, &Patch::Merge(&object)).await {
            Ok(patched) => return self.to_value(&patched),
            Err(::kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(self.error(error)),
        }
        let new: DynamicObject =
            serde_json::from_value(object).map_err(|error| Error::usage(format!("invalid object: {error}")))?;
        let params = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
        let created = api.create(&params, &new).await.map_err(|error| self.error(error))?;
        self.to_value(&created)
    }

    async fn apply_manifest(&self, kind: ObjectKind, manifest: Value, force: bool, dry_run: bool) -> Result<Value> {
        let name = manifest.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let params = PatchParams { dry_run, force, ..PatchParams::apply(APPLY_FIELD_MANAGER) };
        match self.all(kind).patch(&name, &params, &Patch::Apply(&manifest)).await {
            Ok(applied) => self.to_value(&applied),
            Err(::kube::Error::Api(status)) if status.code == 409 => Err(field_conflict(kind, &name, &status)),
            Err(error) => Err(self.error(error)),
        }
    }

    async fn delete_object(&self, kind: ObjectKind, name: &str, dry_run: bool) -> Result<()> {
        let params = DeleteParams { dry_run, ..DeleteParams::default() };
        let deleted = self.all(kind).delete(name, &params).await;
        let object = format!("{} {name}", kind.noun());
        deleted.map(drop).map_err(|error| with_object(self.error(error), &object))
    }

    async fn user_kubeconfig(&self, user: &str, valid_for: Duration) -> Result<UserKubeconfig> {
        let namespace = format!("dev-{user}");
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &namespace);
        let seconds = i64::try_from(valid_for.as_secs()).unwrap_or(i64::MAX);
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(seconds), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let response = accounts.create_token_request(SERVICE_ACCOUNT, &PostParams::default(), &request).await;
        let response = response.map_err(|error| match self.error(error) {
            error if error.kind == Kind::NotFound => {
                Error::not_found(format!("user {user} not found, or its namespace is not ready"))
                    .with_hint("run `devctl admin user list` to see which users are ready")
            }
            error => error,
        })?;
        let status = response.status.ok_or_else(|| {
            Error::failed(format!("the API server returned no token for {user}")).with_hint("try again")
        })?;
        let kubeconfig = self.build_kubeconfig(user, &namespace, &status.token)?;
        Ok(UserKubeconfig { kubeconfig, expires_at: status.expiration_timestamp.0 })
    }
}

impl KubeClient {
    fn all(&self, kind: ObjectKind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &kind.resource())
    }

    /// Builds a kubeconfig with the current cluster and the token of another user.
    fn build_kubeconfig(&self, user: &str, namespace: &str, token: &str) -> Result<String> {
        let mut kubeconfig = self.kubeconfig.clone();
        let context = self.kubeconfig.contexts.iter().find(|context| Some(&context.name) == self.context.as_ref());
        let cluster = context.and_then(|context| context.context.as_ref()).map(|context| context.cluster.clone());
        let cluster = cluster.ok_or_else(|| {
            Error::failed("the kubeconfig has no cluster").with_hint("choose a context with `--context`")
        })?;
        kubeconfig.clusters.retain(|known| known.name == cluster);
        inline_certificate_authority(&mut kubeconfig)?;
        let value = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": kubeconfig.clusters,
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": user, "context": {"cluster": cluster, "user": user, "namespace": namespace}}],
            "current-context": user,
        });
        serde_saphyr::to_string(&value).map_err(|error| Error::failed(error.to_string()))
    }

    fn to_value(&self, object: &DynamicObject) -> Result<Value> {
        let mut object = object.clone();
        object.managed_fields_mut().clear();
        serde_json::to_value(object).map_err(|error| self.error(::kube::Error::SerdeError(error)))
    }
}

/// Replaces paths of CA files, which do not exist on the machine of the user, by their content.
fn inline_certificate_authority(kubeconfig: &mut ::kube::config::Kubeconfig) -> Result<()> {
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        let Some(path) = cluster.certificate_authority.take() else { continue };
        let bytes = std::fs::read(&path).map_err(|error| Error::failed(format!("could not read {path}: {error}")))?;
        // `ByteString` serializes as base64.
        let encoded = serde_json::to_value(k8s_openapi::ByteString(bytes));
        let encoded = encoded.map_err(|error| Error::failed(error.to_string()))?;
        cluster.certificate_authority_data = encoded.as_str().map(str::to_owned);
    }
    Ok(())
}
