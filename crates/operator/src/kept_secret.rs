//! A Secret of our own namespace that the first leader makes and everybody follows.

use std::sync::Arc;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};

use crate::context::Context;
use crate::error::code;
use crate::request::in_time;
use crate::requeue::back_off;

/// What a Secret is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// It is used, or left for somebody to correct.
    Kept,
    /// Nobody can use it, and another is as good: it is made anew in its place.
    Replaced,
}

/// Makes the Secret if there is none, and takes over every change of it, for ever.
pub async fn follow(
    ctx: Arc<Context>,
    name: &'static str,
    make: impl Fn(&Context) -> anyhow::Result<Secret>,
    learn: impl Fn(&Context, &Secret) -> Worth,
) {
    let api: Api<Secret> = Api::namespaced(ctx.client.clone(), &ctx.config.namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watcher::watcher(api.clone(), only).default_backoff());
    let mut there = false;
    // The one in whose place a new one is wanted.
    let mut broken: Option<Secret> = None;
    // How often we tried to make it.
    let mut tries: u32 = 0;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            // Until its own event tells that it is there.
            () = tokio::time::sleep(back_off(tries)), if tries > 0 => {
                store(&ctx, &api, name, &make, broken.as_ref()).await;
                tries = tries.saturating_add(1);
                continue;
            }
        };
        match event {
            None => return,
            Some(Ok(Event::Init)) => there = false,
            Some(Ok(Event::InitApply(secret) | Event::Apply(secret))) => {
                there = true;
                (broken, tries) = match learn(&ctx, &secret) {
                    Worth::Kept => (None, 0),
                    Worth::Replaced => {
                        store(&ctx, &api, name, &make, Some(&secret)).await;
                        (Some(secret), 1)
                    }
                };
            }
            Some(Ok(Event::InitDone)) if there => {}
            Some(Ok(Event::InitDone | Event::Delete(_))) => {
                store(&ctx, &api, name, &make, None).await;
                (broken, tries) = (None, 1);
            }
            Some(Err(error)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "a watch broke and is made anew");
            }
        }
    }
}

/// Creates it, or puts it in the place of this very one. Its event tells us the outcome, whoever made it.
async fn store(
    ctx: &Context,
    api: &Api<Secret>,
    name: &str,
    make: impl Fn(&Context) -> anyhow::Result<Secret>,
    broken: Option<&Secret>,
) {
    let secret = match make(ctx) {
        Ok(secret) if ctx.may_write().is_ok() => secret,
        Ok(_) => return,
        Err(error) => return tracing::error!(error = format!("{error:#}"), name, "a Secret cannot be made"),
    };
    let (verb, stored) = match broken {
        None => ("create", in_time(api.create(&PostParams::default(), &secret)).await),
        Some(broken) => {
            let secret = in_place_of(broken, secret);
            ("update", in_time(api.replace(name, &PostParams::default(), &secret)).await)
        }
    };
    match stored {
        Ok(_) => ctx.metrics.wrote(verb, "Secret"),
        Err(error) if code(&error) == Some(409) => {}
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, name, "a Secret was not stored");
        }
    }
}

/// Only if nobody else has changed it since, and of its type, which cannot be changed.
fn in_place_of(broken: &Secret, secret: Secret) -> Secret {
    let metadata = ObjectMeta { resource_version: broken.metadata.resource_version.clone(), ..secret.metadata };
    Secret { metadata, type_: broken.type_.clone(), ..secret }
}
