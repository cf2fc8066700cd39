//! `devctl admin team what-if`: another quota, tried on the queue as it is now.

use jiff::Timestamp;
use odc_api::name::TeamName;
use odc_api::queue::{Difference, Planned, WhatIfSpec};
use odc_api::v1alpha1::Quota;
use serde::Serialize;
use serde_json::{Map, Value};

use super::super::quota;
use crate::app::App;
use crate::args::QuotaArgs;
use crate::backend::Kind;
use crate::failure::{Failure, Result};
use crate::output::time::within;
use crate::output::{Column, Table};

/// A server that would start at another time; `before` and `after` are null where nobody can say.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    owner: String,
    before: Option<Timestamp>,
    after: Option<Timestamp>,
}

pub(super) async fn run(app: &App, name: TeamName, changed: &QuotaArgs) -> Result<()> {
    let changed = quota(changed)?;
    if changed.is_empty() {
        return Err(Failure::usage("nothing would be otherwise").advise("Say what the quota should be: --devices 12."));
    }
    let team = app.backend.object(Kind::Team, name.as_str()).await?.ok_or_else(|| {
        Failure::not_found(format!("there is no team {name}")).advise("devctl admin team list shows them.")
    })?;
    let asked = WhatIfSpec { teams: [(name, merged(&team, changed)?)].into(), ..WhatIfSpec::default() };
    let answer = app.backend.what_if(asked).await?.map_err(|silence| {
        Failure::failed(format!("the queue cannot be asked: {}", silence.0))
            .advise("Try again; over a recorded trace odc sim --with answers the same.")
    })?;
    app.talk.step("asking the queue");
    let now = Timestamp::now();
    let rows: Vec<Row> = answer.changes.iter().map(|change| row(change, now)).collect();
    if !rows.is_empty() || app.out.structured() {
        app.out.show(&rows, || rows.iter().map(|row| row.name.clone()).collect(), || table(&answer.changes, now))?;
    }
    let (count, waiting) = (answer.changes.len(), answer.waiting);
    if !app.out.structured() {
        app.talk.say(format!("Of {waiting} that wait, {count} would start at another time. Nothing was changed."));
    }
    Ok(())
}

/// The quota as it is, with what was said in place of what it says.
fn merged(team: &Value, changed: Map<String, Value>) -> Result<Quota> {
    let mut quota = team.pointer("/spec/quota").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    json_patch::merge(&mut quota, &Value::Object(changed));
    serde_json::from_value(quota).map_err(|error| Failure::failed(format!("the team's quota cannot be read: {error}")))
}

fn row(change: &Difference, now: Timestamp) -> Row {
    let at = |start: &Planned| if start.now { Some(now) } else { start.at.as_ref().map(|at| at.0) };
    Row { name: change.name.clone(), owner: owner(change), before: at(&change.before), after: at(&change.after) }
}

fn owner(change: &Difference) -> String {
    odc_api::namespace::owner(&change.namespace).map_or_else(|| change.namespace.clone(), String::from)
}

fn table(changes: &[Difference], now: Timestamp) -> Table {
    let mut table =
        Table::new([Column::new("OWNER"), Column::new("NAME"), Column::new("STARTS"), Column::new("WOULD START")]);
    let words = |start: &Planned| match (&start.at, start.now) {
        (_, true) => "at once".to_owned(),
        (Some(at), false) => format!("within {}", within(at.0.as_second() - now.as_second())),
        (None, false) => "nobody can say".to_owned(),
    };
    for change in changes {
        let (before, after) = (words(&change.before), words(&change.after));
        table.row([owner(change).into(), change.name.clone().into(), before.into(), after.into()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_said_stays_as_it_is() {
        let team =
            json!({"spec": {"quota": {"devices": 16, "servers": 40, "cpu": "64", "flavors": {"a100": 4, "h100": 8}}}});
        let changed = json!({"devices": 12, "cpu": null, "flavors": {"h100": 6}});
        let quota = merged(&team, changed.as_object().cloned().unwrap()).unwrap();
        assert_eq!((quota.devices, quota.servers, quota.cpu), (Some(12), Some(40), None));
        assert_eq!(quota.flavors, [("a100".to_owned(), 4), ("h100".to_owned(), 6)].into());
        assert_eq!(merged(&json!({}), Map::new()).unwrap(), Quota::default());
    }
}
