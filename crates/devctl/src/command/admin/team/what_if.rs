//! `devctl admin team what-if`: simulates another quota on the current queue.

use jiff::Timestamp;
use odc_api::name::TeamName;
use odc_api::queue::{PlannedStart, StartChange, WhatIfSpec};
use odc_api::v1alpha1::Quota;
use serde::Serialize;
use serde_json::{Map, Value};

use super::super::{QuotaArgs, quota};
use super::team_not_found;
use crate::client::ObjectKind;
use crate::clock;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::output::duration::format_bound;
use crate::output::{Column, Table};

/// A server whose start would change. Unknown times are null.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StartChangeJson {
    name: String,
    owner: String,
    before: Option<Timestamp>,
    after: Option<Timestamp>,
}

pub(super) async fn run(ctx: &ClusterContext, name: TeamName, changed: &QuotaArgs) -> Result<()> {
    let changed = quota(changed)?;
    if changed.is_empty() {
        return Err(Error::usage("no quota given").with_hint("pass the new quota, such as `--devices 12`"));
    }
    let team = ctx.client.object(ObjectKind::Team, name.as_str()).await?;
    let team = team.ok_or_else(|| team_not_found(name.as_str()))?;
    let spec = WhatIfSpec { teams: [(name, merged(&team, changed)?)].into(), ..WhatIfSpec::default() };
    let status = ctx.client.what_if(spec).await?.map_err(|reason| {
        Error::failed(format!("queue API unavailable: {}", reason.0))
            .with_hint("try again, or simulate a recorded trace with `odc sim --with`")
    })?;
    ctx.ui.trace_step("querying the queue");
    let now = clock::now();
    let rows: Vec<StartChangeJson> = status.changes.iter().map(|change| to_json(change, now)).collect();
    if !rows.is_empty() || ctx.out.structured() {
        ctx.out.show(&rows, || rows.iter().map(|row| row.name.clone()).collect(), || table(&status.changes, now))?;
    }
    let (count, pending) = (status.changes.len(), status.pending);
    if !ctx.out.structured() {
        ctx.ui.info(format!("{count} of {pending} pending servers would start at another time. Nothing was changed."));
    }
    Ok(())
}

/// Merges the given limits into the quota of a team.
fn merged(team: &Value, changed: Map<String, Value>) -> Result<Quota> {
    let mut quota = team.pointer("/spec/quota").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    json_patch::merge(&mut quota, &Value::Object(changed));
    serde_json::from_value(quota).map_err(|error| Error::failed(format!("invalid quota of the team: {error}")))
}

fn to_json(change: &StartChange, now: Timestamp) -> StartChangeJson {
    let at = |start: &PlannedStart| if start.now { Some(now) } else { start.at.as_ref().map(|at| at.0) };
    StartChangeJson {
        name: change.name.clone(),
        owner: owner(change),
        before: at(&change.before),
        after: at(&change.after),
    }
}

fn owner(change: &StartChange) -> String {
    odc_api::namespace::owner(&change.namespace).map_or_else(|| change.namespace.clone(), String::from)
}

fn table(changes: &[StartChange], now: Timestamp) -> Table {
    let mut table =
        Table::new([Column::new("OWNER"), Column::new("NAME"), Column::new("CURRENT START"), Column::new("NEW START")]);
    let format_start = |start: &PlannedStart| match (&start.at, start.now) {
        (_, true) => "now".to_owned(),
        (Some(at), false) => format!("within {}", format_bound(at.0, now)),
        (None, false) => "unknown".to_owned(),
    };
    for change in changes {
        let (before, after) = (format_start(&change.before), format_start(&change.after));
        table.row([owner(change).into(), change.name.clone().into(), before.into(), after.into()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn omitted_limits_are_kept() {
        let team =
            json!({"spec": {"quota": {"devices": 16, "servers": 40, "cpu": "64", "flavors": {"a100": 4, "h100": 8}}}});
        let changed = json!({"devices": 12, "cpu": null, "flavors": {"h100": 6}});
        let quota = merged(&team, changed.as_object().cloned().unwrap()).unwrap();
        assert_eq!((quota.devices, quota.servers, quota.cpu), (Some(12), Some(40), None));
        assert_eq!(quota.flavors, [("a100".to_owned(), 4), ("h100".to_owned(), 6)].into());
        assert_eq!(merged(&json!({}), Map::new()).unwrap(), Quota::default());
    }
}
