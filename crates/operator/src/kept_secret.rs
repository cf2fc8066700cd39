//! A Secret of our own namespace that the first leader makes and everybody follows.

use std::sync::Arc;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};

use crate::context::Context;
use crate::error::code;
use crate::request::in_time;
use crate::requeue::back_off;

/// Makes the Secret if there is none, and takes over every change of it, for ever.
pub async fn follow(
    ctx: Arc<Context>,
    name: &'static str,
    make: impl Fn(&Context) -> anyhow::Result<Secret>,
    learn: impl Fn(&Context, &Secret),
) {
    let api: Api<Secret> = Api::namespaced(ctx.client.clone(), &ctx.config.namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watcher::watcher(api.clone(), only).default_backoff());
    let mut there = false;
    // How often we tried to make it.
    let mut tries: u32 = 0;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            // Until its own event tells that it is there.
            () = tokio::time::sleep(back_off(tries)), if tries > 0 => {
                create(&ctx, &api, name, &make).await;
                tries = tries.saturating_add(1);
                continue;
            }
        };
        match event {
            None => return,
            Some(Ok(Event::Init)) => there = false,
            Some(Ok(Event::InitApply(secret) | Event::Apply(secret))) => {
                (there, tries) = (true, 0);
                learn(&ctx, &secret);
            }
            Some(Ok(Event::InitDone)) if there => {}
            Some(Ok(Event::InitDone | Event::Delete(_))) => {
                create(&ctx, &api, name, &make).await;
                tries = 1;
            }
            Some(Err(error)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "a watch broke and is made anew");
            }
        }
    }
}

/// Its event tells us the outcome, whoever made it.
async fn create(ctx: &Context, api: &Api<Secret>, name: &str, make: impl Fn(&Context) -> anyhow::Result<Secret>) {
    let secret = match make(ctx) {
        Ok(secret) if ctx.may_write().is_ok() => secret,
        Ok(_) => return,
        Err(error) => return tracing::error!(error = format!("{error:#}"), name, "a Secret cannot be made"),
    };
    match in_time(api.create(&PostParams::default(), &secret)).await {
        Ok(_) => ctx.metrics.wrote("create", "Secret"),
        Err(error) if code(&error) == Some(409) => {}
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, name, "a Secret was not stored");
        }
    }
}
