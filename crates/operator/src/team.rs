//! Tells whether a team's members exist.

use std::collections::BTreeSet;
use std::sync::Arc;

use odc_api::name::UserName;
use odc_api::v1alpha1::TeamStatus;
use odc_core::team;

use crate::context::Context;
use crate::error::Error;
use crate::report::{self, Manager};
use crate::requeue::at_most_once_a_second;

const NAME: &str = "team";

pub async fn run(ctx: Arc<Context>) {
    at_most_once_a_second(&ctx, NAME, &ctx.triggers.teams, pass).await;
}

async fn pass(ctx: &Context) -> Result<(), Error> {
    let users = ctx.cluster.users.state();
    let users: BTreeSet<UserName> = users.iter().filter_map(|user| user.metadata.name.as_ref()?.parse().ok()).collect();
    let mut result = Ok(());
    for team in ctx.cluster.teams.all() {
        let status = team::status(&team, &users, ctx.now());
        if team.status.as_ref() == Some(&status) {
            continue;
        }
        let own = serde_json::to_value(TeamStatus { usage: None, ..status }).unwrap_or_default();
        if let Err(error) = report::status(ctx, &*team, own, Manager::Driver).await {
            result = Err(error);
        }
    }
    result
}
