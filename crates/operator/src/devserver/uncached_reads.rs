//! Runs the queries of a plan: rare reads that the caches cannot answer.

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use odc_api::v1alpha1::DevServer;
use odc_core::cluster::server_uid;
use odc_core::devserver::build::{self, HOST_PUBLIC_KEY};
use odc_core::devserver::{Query, SecretState};
use odc_core::manifest::Kind;
use serde::Deserialize as _;
use serde_json::Value;

use crate::context::Context;
use crate::dynamic_api::with_timeout;
use crate::error::Error;
use crate::image_entrypoint;

/// Runs one query and records the result in the server's soft state.
pub async fn run(ctx: &Context, server: &DevServer, query: &Query) -> Result<(), Error> {
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    match query {
        Query::Secret => {
            let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
            let secret = read_secret(ctx, namespace, &build::secret_name(name, uid), uid).await?;
            let now = ctx.now();
            ctx.soft_states.update(uid, |entry| {
                entry.secret = secret;
                entry.secret_checked_at = Some(now);
            });
        }
        Query::Entrypoint { image, pull_secrets } => {
            let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
            let entrypoint = image_entrypoint::entrypoint(ctx, namespace, image, pull_secrets).await?;
            ctx.soft_states.update(uid, |entry| entry.entrypoint = Some(entrypoint));
        }
    }
    Ok(())
}

async fn read_secret(ctx: &Context, namespace: &str, name: &str, uid: &str) -> Result<SecretState, Error> {
    let secrets: Api<Secret> = Api::namespaced(ctx.client.clone(), namespace);
    let response = with_timeout(secrets.get_opt(name)).await;
    let failed = |source| Error::Read { kind: Kind::Secret.as_str(), name: name.to_owned(), source: Box::new(source) };
    let Some(secret) = response.map_err(failed)? else { return Ok(SecretState::Missing) };
    if server_uid(&secret.metadata) != Some(uid) {
        return Ok(SecretState::Foreign);
    }
    let key = secret.data.iter().flatten().find(|(name, _)| *name == HOST_PUBLIC_KEY);
    let key = key.and_then(|(_, value)| String::from_utf8(value.0.clone()).ok());
    Ok(key.map_or(SecretState::Foreign, SecretState::Present))
}

/// Records the host key of the stored Secret: the one just generated, or that of an earlier attempt whose response was
/// lost.
pub fn record_secret(ctx: &Context, uid: &str, stored: &Value) {
    let Ok(secret) = Secret::deserialize(stored) else { return };
    let key = secret.data.as_ref().and_then(|data| data.get(HOST_PUBLIC_KEY));
    if let Some(key) = key.and_then(|key| String::from_utf8(key.0.clone()).ok()) {
        ctx.soft_states.update(uid, |entry| entry.secret = SecretState::Present(key));
    }
}

/// Records that a Secret of another owner exists. It is read again in the next reconciliation.
pub fn record_error(ctx: &Context, uid: &str, error: &Error) {
    if matches!(error, Error::Foreign { kind: Kind::Secret, .. }) {
        ctx.soft_states.update(uid, |entry| {
            entry.secret = SecretState::Foreign;
            entry.secret_checked_at = None;
        });
    }
}
