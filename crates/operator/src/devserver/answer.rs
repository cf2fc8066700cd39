//! Answers what a decision asks of the world: rare questions, off the usual path.

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use odc_api::v1alpha1::DevServer;
use odc_core::devserver::build::{self, Keys};
use odc_core::devserver::{Question, SecretSeen};
use odc_core::object::Kind;
use serde::Deserialize as _;
use serde_json::Value;

use crate::context::Context;
use crate::error::Error;
use crate::keys;
use crate::registry;
use crate::request::in_time;

pub async fn answer(
    ctx: &Context,
    server: &DevServer,
    question: &Question,
    fresh: &mut Option<Keys>,
) -> Result<(), Error> {
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    match question {
        Question::Keys => {
            let made = keys::fresh(name);
            *fresh =
                Some(made.map_err(|error| Error::Malformed { what: "a key".into(), reason: format!("{error:#}") })?);
        }
        Question::Secret => {
            let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
            let there = look_for_secret(ctx, namespace, &build::secret_name(name), uid).await?;
            let now = ctx.now();
            ctx.hints.change(uid, |hint| {
                hint.secret = there;
                hint.secret_checked = Some(now);
            });
        }
        Question::Entrypoint { image, pull_secrets } => {
            let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
            let found = registry::entrypoint(ctx, namespace, image, pull_secrets).await?;
            ctx.hints.change(uid, |hint| hint.entrypoint = Some(found));
        }
    }
    Ok(())
}

async fn look_for_secret(ctx: &Context, namespace: &str, name: &str, uid: &str) -> Result<SecretSeen, Error> {
    let secrets: Api<Secret> = Api::namespaced(ctx.client.clone(), namespace);
    let answer = in_time(secrets.get_opt(name)).await;
    let read = |source| Error::Read { kind: Kind::Secret, name: name.to_owned(), source: Box::new(source) };
    let Some(secret) = answer.map_err(read)? else { return Ok(SecretSeen::Missing) };
    let mut owners = secret.metadata.owner_references.iter().flatten();
    if !owners.any(|owner| owner.uid == uid) {
        return Ok(SecretSeen::Foreign);
    }
    let key = secret.data.iter().flatten().find(|(name, _)| *name == HOST_KEY);
    let key = key.and_then(|(_, value)| String::from_utf8(value.0.clone()).ok());
    Ok(key.map_or(SecretSeen::Foreign, SecretSeen::There))
}

const HOST_KEY: &str = "host_key.pub";

/// The Secret as it is stored tells which host key counts: ours, or that of an earlier attempt whose answer was lost.
pub fn learn_secret(ctx: &Context, uid: &str, stored: &Value) {
    let Ok(secret) = Secret::deserialize(stored) else { return };
    let key = secret.data.as_ref().and_then(|data| data.get(HOST_KEY));
    if let Some(key) = key.and_then(|key| String::from_utf8(key.0.clone()).ok()) {
        ctx.hints.change(uid, |hint| hint.secret = SecretSeen::There(key));
    }
}

/// A Secret of somebody else is in the way; it is looked for again when the server is looked at again.
pub fn learn_from(ctx: &Context, uid: &str, error: &Error) {
    if matches!(error, Error::Foreign { kind: Kind::Secret, .. }) {
        ctx.hints.change(uid, |hint| {
            hint.secret = SecretSeen::Foreign;
            hint.secret_checked = None;
        });
    }
}
