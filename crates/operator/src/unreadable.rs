//! Objects that were stored under other rules and cannot be read. They are told so, and nothing else happens to them.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use odc_api::time::stored;
use odc_api::v1alpha1::DevServer;
use odc_api::v1alpha1::condition::{self, Reason, Status, Type};
use odc_core::object::Kind;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Error;
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
    let refusal = Refusal {
        api: api(&ctx.client, Kind::DevServer, Some(&namespace)),
        name,
        generation: error.metadata.generation,
        message,
        body,
    };
    let ctx = ctx.clone();
    tokio::spawn(async move {
        let mut pause = SOON;
        while let Err(error) = refusal.tell(&ctx).await {
            tracing::debug!(name = refusal.name, %error, "telling that an object cannot be read");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LATEST);
        }
    });
}

/// How soon it is tried again to tell, at first and at the latest.
const SOON: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(60);

struct Refusal {
    api: Api<DynamicObject>,
    name: String,
    /// What cannot be read. A later one is told by its own event.
    generation: Option<i64>,
    message: String,
    body: Value,
}

impl Refusal {
    async fn tell(&self, ctx: &Context) -> Result<(), Error> {
        let name = &self.name;
        let failed =
            |source| Error::Status { kind: Kind::DevServer.as_str(), name: name.clone(), source: Box::new(source) };
        let Some(there) = in_time(self.api.get_opt(name)).await.map_err(failed)? else { return Ok(()) };
        let conditions = there.data["status"]["conditions"].as_array();
        let told = conditions.is_some_and(|all| all.iter().any(|condition| condition["message"] == self.message));
        if told || there.metadata.generation != self.generation {
            return Ok(());
        }
        ctx.may_write()?;
        let how = PatchParams::apply("odc-operator-unreadable").force();
        in_time(self.api.patch_status(name, &how, &Patch::Apply(&self.body))).await.map_err(failed)?;
        Ok(())
    }
}
