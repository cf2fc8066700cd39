//! A Secret in the operator's namespace that the first leader generates and all leaders share.

use std::sync::Arc;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};

use crate::context::Context;
use crate::dynamic_api::with_timeout;
use crate::error::code;
use crate::error_policy::backoff;

/// The result of checking a stored Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretCheck {
    /// The Secret is used, or left for an administrator to correct.
    Valid,
    /// The Secret is invalid and can be replaced by a generated one.
    Regenerate,
}

/// Generates the Secret if it does not exist, and calls `update` for every stored version. Never returns.
pub async fn watch(
    ctx: Arc<Context>,
    name: &'static str,
    generate: impl Fn(&Context) -> anyhow::Result<Secret>,
    update: impl Fn(&Context, &Secret) -> SecretCheck,
) {
    let api: Api<Secret> = Api::namespaced(ctx.client.clone(), &ctx.config.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watcher::watcher(api.clone(), config).default_backoff());
    let mut exists = false;
    // The stored Secret to replace.
    let mut invalid: Option<Secret> = None;
    let mut attempts: u32 = 0;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            // Retried until the watch delivers the Secret.
            () = tokio::time::sleep(backoff(attempts)), if attempts > 0 => {
                store(&ctx, &api, name, &generate, invalid.as_ref()).await;
                attempts = attempts.saturating_add(1);
                continue;
            }
        };
        match event {
            None => return,
            Some(Ok(Event::Init)) => exists = false,
            Some(Ok(Event::InitApply(secret) | Event::Apply(secret))) => {
                exists = true;
                (invalid, attempts) = match update(&ctx, &secret) {
                    SecretCheck::Valid => (None, 0),
                    SecretCheck::Regenerate => {
                        store(&ctx, &api, name, &generate, Some(&secret)).await;
                        (Some(secret), 1)
                    }
                };
            }
            Some(Ok(Event::InitDone)) if exists => {}
            Some(Ok(Event::InitDone | Event::Delete(_))) => {
                store(&ctx, &api, name, &generate, None).await;
                (invalid, attempts) = (None, 1);
            }
            Some(Err(error)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "watch failed, restarting");
            }
        }
    }
}

/// Creates the Secret, or replaces the invalid one. The watch delivers the result.
async fn store(
    ctx: &Context,
    api: &Api<Secret>,
    name: &str,
    generate: impl Fn(&Context) -> anyhow::Result<Secret>,
    invalid: Option<&Secret>,
) {
    let secret = match generate(ctx) {
        Ok(secret) if ctx.ensure_leader().is_ok() => secret,
        Ok(_) => return,
        Err(error) => return tracing::error!(error = format!("{error:#}"), name, "failed to generate a Secret"),
    };
    let (verb, result) = match invalid {
        None => ("create", with_timeout(api.create(&PostParams::default(), &secret)).await),
        Some(invalid) => {
            let secret = replacement(invalid, secret);
            ("update", with_timeout(api.replace(name, &PostParams::default(), &secret)).await)
        }
    };
    match result {
        Ok(_) => ctx.metrics.record_write(verb, "Secret"),
        Err(error) if code(&error) == Some(409) => {}
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, name, "failed to store a Secret");
        }
    }
}

/// Keeps the version, so that a concurrent change causes a conflict, and the type, which is immutable.
fn replacement(invalid: &Secret, secret: Secret) -> Secret {
    let metadata = ObjectMeta { resource_version: invalid.metadata.resource_version.clone(), ..secret.metadata };
    Secret { metadata, type_: invalid.type_.clone(), ..secret }
}
