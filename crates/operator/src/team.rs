//! The team loop: writes the status of all teams, at most once a second.

use std::collections::BTreeSet;
use std::sync::Arc;

use odc_api::name::UserName;
use odc_api::v1alpha1::TeamStatus;
use odc_core::team;

use crate::context::Context;
use crate::error::Error;
use crate::error_policy::run_rate_limited;
use crate::status_writer::{FieldManager, write_status};

const NAME: &str = "team";

pub async fn run(ctx: Arc<Context>) {
    run_rate_limited(&ctx, NAME, &ctx.work_queues.teams, reconcile_all).await;
}

async fn reconcile_all(ctx: &Arc<Context>) -> Result<(), Error> {
    let users = ctx.cluster.users.state();
    let users: BTreeSet<UserName> = users.iter().filter_map(|user| user.metadata.name.as_ref()?.parse().ok()).collect();
    let mut result = Ok(());
    for team in ctx.cluster.teams.all() {
        let status = team::status(&team, &users, ctx.now());
        if team.status.as_ref() == Some(&status) {
            continue;
        }
        let status = serde_json::to_value(TeamStatus { usage: None, ..status }).unwrap_or_default();
        if let Err(error) = write_status(ctx, &*team, status, FieldManager::Operator).await {
            result = Err(error);
        }
    }
    result
}
