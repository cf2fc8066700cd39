//! Objects that were stored under other rules and cannot be read. They are told so, and nothing else happens to them.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use odc_api::time::stored;
use odc_api::v1alpha1::DevServer;
use odc_api::v1alpha1::condition::{self, Reason, Status, Type};
use odc_core::object::Kind;
use serde_json::json;

use crate::context::Context;
use crate::follow::Guarded;
use crate::metrics::Controller;
use crate::request::{api, in_time};

pub fn object<K>(ctx: &Context, kind: &'static str, bad: &Guarded<K>)
where
    K: kube::Resource,
{
    let Err(error) = &bad.0 else { return };
    ctx.metrics.unreadable.get_or_create(&Controller { controller: kind }).inc();
    let name = error.metadata.name.as_deref().unwrap_or_default();
    tracing::warn!(kind, name, error = error.error.as_str(), "an object cannot be read");
}

/// A server's owner is told by its condition.
pub fn server(ctx: &Arc<Context>, bad: &Guarded<DevServer>) {
    object(ctx, "DevServer", bad);
    let Err(error) = &bad.0 else { return };
    let (namespace, name) = (error.metadata.namespace.clone(), error.metadata.name.clone());
    let (Some(namespace), Some(name)) = (namespace, name) else { return };
    let message = format!("It cannot be read: {}. Correct it, or delete it and create it anew.", error.error);
    let refused = condition::new(
        Type::Accepted,
        Status::False,
        Reason::Invalid,
        &message,
        error.metadata.generation,
        stored(ctx.now()),
    );
    let body = json!({
        "apiVersion": Kind::DevServer.api_version(),
        "kind": Kind::DevServer.as_str(),
        "metadata": {"name": name},
        "status": {"conditions": [refused]},
    });
    let api = api(&ctx.client, Kind::DevServer, Some(&namespace));
    let ctx = ctx.clone();
    tokio::spawn(async move {
        let there = in_time(api.get_opt(&name)).await.ok().flatten();
        let told = there.as_ref().is_some_and(|there| {
            let conditions = there.data["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|condition| condition["message"] == refused.message))
        });
        if there.is_none() || told || ctx.may_write().is_err() {
            return;
        }
        let how = PatchParams::apply("odc-operator-unreadable").force();
        if let Err(error) = in_time(api.patch_status(&name, &how, &Patch::Apply(&body))).await {
            tracing::debug!(name, error = &error as &dyn std::error::Error, "telling that an object cannot be read");
        }
    });
}
