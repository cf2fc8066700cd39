//! Tells whether a team's members exist.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use odc_api::name::UserName;
use odc_api::v1alpha1::TeamStatus;
use odc_core::team;

use crate::context::Context;
use crate::error::Error;
use crate::report::{self, Manager};

const NAME: &str = "team";
const PACE: Duration = Duration::from_secs(1);

pub async fn run(ctx: Arc<Context>) {
    let mut failures = 0;
    loop {
        match pass(&ctx).await {
            Ok(()) => failures = 0,
            Err(error) => {
                failures += 1;
                crate::devserver::failed(&ctx, NAME, "all", &error, failures);
                ctx.triggers.teams.notify_one();
            }
        }
        tokio::time::sleep(PACE).await;
        ctx.triggers.teams.notified().await;
    }
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
        match report::status(ctx, &*team, own, Manager::Driver).await {
            Ok(written) => {
                let (key, version) = (crate::follow::key(&written), crate::follow::version(&written));
                ctx.cluster.teams.insert_own(key, written, version);
            }
            Err(error) => result = Err(error),
        }
    }
    result
}
