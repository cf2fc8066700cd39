//! The user controller: maintains a user's namespace and the objects in it. The plan comes from `odc_core::user`.

pub mod cleanup;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use odc_api::namespace;
use odc_api::v1alpha1::{DevServerUser, DevServerUserStatus, Team};
use odc_core::plan::Requeue;
use odc_core::user;

use crate::apply::apply;
use crate::context::Context;
use crate::error::Error;
use crate::error_policy;
use crate::status_writer::{FieldManager, write_status};

const NAME: &str = "user";

pub async fn reconcile(user: Arc<DevServerUser>, ctx: Arc<Context>) -> Result<Action, Error> {
    let started = Instant::now();
    let result = reconcile_once(&user, &ctx).await;
    ctx.metrics.record_reconcile(NAME, started.elapsed());
    if result.is_ok() {
        ctx.soft_states.record_object_success(user.metadata.uid.as_deref().unwrap_or_default());
    }
    result
}

async fn reconcile_once(object: &DevServerUser, ctx: &Context) -> Result<Action, Error> {
    let namespace_name = namespace::for_user(&object.name_any());
    let namespace = ctx.cluster.namespaces.get("", &namespace_name);
    let objects = ctx.cluster.managed_objects.in_namespace(&namespace_name);
    let teams = ctx.cluster.teams.all();
    let flavors = ctx.cluster.flavors.by_name();
    let devices = flavors.values().filter_map(|flavor| Some(flavor.spec.device.as_ref()?.resource.clone()));
    let observed = user::Observed {
        namespace: namespace.as_deref(),
        objects: objects.iter().map(|object| &**object).collect(),
        teams: teams.iter().map(|team| &**team).collect::<Vec<&Team>>(),
        devices: devices.collect::<BTreeSet<String>>(),
        has_snapshots: ctx.cluster.has_snapshots(),
    };
    let plan = user::reconcile(object, &observed, &ctx.user_settings, ctx.now());
    for write in &plan.writes {
        apply(ctx, write).await?;
    }
    if object.status.as_ref() != Some(&plan.status) {
        let status = serde_json::to_value(DevServerUserStatus { usage: None, ..plan.status }).unwrap_or_default();
        write_status(ctx, object, status, FieldManager::Operator).await?;
    }
    ctx.events.publish(&object.object_ref(&()), &plan.events);
    Ok(match plan.requeue {
        Requeue::AwaitChange => Action::await_change(),
        Requeue::After(time) => Action::requeue(time),
    })
}

#[expect(clippy::needless_pass_by_value, reason = "signature required by the applier")]
pub fn on_error(user: Arc<DevServerUser>, error: &Error, ctx: Arc<Context>) -> Action {
    let failures = ctx.soft_states.record_object_failure(user.metadata.uid.as_deref().unwrap_or_default());
    error_policy::handle_error(&ctx, NAME, &user.name_any(), error, failures)
}
