//! Tells how much of each flavor there is, at most once a second.

use std::sync::Arc;

use odc_api::v1alpha1::{DevServerFlavor, DevServerFlavorStatus};
use odc_core::flavor;
use serde_json::Value;

use crate::context::Context;
use crate::error::Error;
use crate::report::{self, Manager};
use crate::requeue::at_most_once_a_second;
use crate::snapshot::{Decided, Snapshot};

const NAME: &str = "flavor";

pub async fn run(ctx: Arc<Context>) {
    at_most_once_a_second(&ctx, NAME, &ctx.triggers.flavors, pass).await;
}

async fn pass(ctx: &Context) -> Result<(), Error> {
    let snapshot = Snapshot::take(ctx, &Decided::new(), |server, now| {
        server.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0)
    });
    let world = snapshot.world();
    let flavors = ctx.cluster.flavors.kept.all();
    let defaults = flavors.iter().filter(|flavor| flavor.spec.default).count();
    let mut result = Ok(());
    for flavor in flavors {
        let Some(name) = flavor.metadata.name.as_ref().and_then(|name| name.parse().ok()) else { continue };
        let capacity = flavor::capacity(&flavor, &world);
        let status = flavor::status(&flavor, &capacity, world.queue_length(&name), defaults, ctx.now());
        if flavor.status.as_ref() == Some(&status) {
            continue;
        }
        if ctx.cluster.flavors.turns.take(name.as_str(), Manager::Driver).is_ok() {
            // One that cannot be written keeps nobody else from being told.
            result = result.and(write(ctx, &flavor, status).await);
        } else {
            // The queue has just written its part; the next pass is a second away.
            ctx.triggers.flavors.notify_one();
        }
    }
    result
}

async fn write(ctx: &Context, flavor: &DevServerFlavor, status: DevServerFlavorStatus) -> Result<(), Error> {
    let own = DevServerFlavorStatus { record: None, ..status };
    let status: Value = serde_json::to_value(own).unwrap_or_default();
    report::status(ctx, flavor, status, Manager::Driver).await.map(drop)
}
