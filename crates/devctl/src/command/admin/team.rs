//! `devctl admin team`.

mod what_if;

use odc_api::name::UserName;
use serde_json::{Map, Value, json};

use super::{of_flavors, print, print_one, put, quota, ready, remove, text};
use crate::app::App;
use crate::args::value::Limit;
use crate::args::{AdminTeam, NewTeam};
use crate::backend::Kind;
use crate::failure::{self, Failure, Result};
use crate::output::{Column, Table};
use crate::reserve::priority;

pub(super) async fn run(app: &App, verb: AdminTeam) -> Result<()> {
    match verb {
        AdminTeam::Create(args) => put(app, Kind::Team, args.name.as_str(), spec(&args)?, args.trial.dry_run).await,
        AdminTeam::List => {
            let teams = app.backend.objects(Kind::Team).await?;
            print(app, &teams, || table(&teams), "There are no teams. devctl admin team create NAME makes one.")
        }
        AdminTeam::WhatIf { name, quota } => what_if::run(app, name, &quota).await,
        AdminTeam::Add { name, users } => {
            members(app, name.as_str(), |mut members| {
                for user in &users {
                    if !members.contains(user) {
                        members.push(user.clone());
                    }
                }
                members
            })
            .await
        }
        AdminTeam::Remove { name, users } => {
            members(app, name.as_str(), |mut members| {
                members.retain(|member| !users.contains(member));
                members
            })
            .await
        }
        AdminTeam::Delete { name, trial } => {
            remove(app, Kind::Team, name.as_str(), trial.dry_run, "Its servers go on; no new one can use it.").await
        }
    }
}

fn spec(args: &NewTeam) -> Result<Map<String, Value>> {
    let mut urgency = Map::new();
    urgency.extend(args.priority.map(|default| ("default".to_owned(), json!(priority(default)))));
    urgency.extend(args.priority_ceiling.map(|ceiling| ("ceiling".to_owned(), json!(priority(ceiling)))));
    let quota = quota(&args.quota)?;
    let fields = [
        ("displayName", args.display.as_ref().map(|text| json!(text))),
        ("weight", args.weight.map(|weight| json!(weight))),
        ("priority", (!urgency.is_empty()).then_some(Value::Object(urgency))),
        ("borrowLimit", args.borrow.map(|Limit(devices)| json!(devices))),
        ("quota", (!quota.is_empty()).then_some(Value::Object(quota))),
    ];
    Ok(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

/// How often somebody else may come first.
const ATTEMPTS: usize = 5;

/// Changes who is in a team, as it is now. Its status changes by itself, so that it was changed meanwhile is no news.
async fn members(app: &App, name: &str, change: impl Fn(Vec<UserName>) -> Vec<UserName>) -> Result<()> {
    for _ in 1..ATTEMPTS {
        match try_members(app, name, &change).await {
            Err(failure) if failure.kind == failure::Kind::Conflict => {}
            outcome => return outcome,
        }
    }
    try_members(app, name, &change).await
}

async fn try_members(app: &App, name: &str, change: impl Fn(Vec<UserName>) -> Vec<UserName>) -> Result<()> {
    let team = app.backend.object(Kind::Team, name).await?.ok_or_else(|| {
        Failure::not_found(format!("there is no team {name}")).advise("devctl admin team list shows them.")
    })?;
    let members = team.pointer("/spec/members").cloned().unwrap_or_else(|| json!([]));
    let members: Vec<UserName> = serde_json::from_value(members)
        .map_err(|error| Failure::failed(format!("the team {name} cannot be read: {error}")))?;
    let members = change(members);
    let count = members.len();
    let object = json!({
        "apiVersion": team["apiVersion"],
        "kind": team["kind"],
        // Only if nobody else changed the list since it was read.
        "metadata": {"name": name, "resourceVersion": team.pointer("/metadata/resourceVersion")},
        "spec": {"members": members},
    });
    let written = app.backend.apply(Kind::Team, object, false).await?;
    app.talk.say(format!("team {name} has {count} members."));
    print_one(app, &written)
}

fn table(teams: &[Value]) -> Table {
    let mut table = Table::new([
        Column::new("NAME"),
        Column::new("WEIGHT"),
        Column::new("DEVICES").spare(4),
        Column::new("MEMBERS").spare(2).elastic(),
        Column::new("READY").spare(1).elastic(),
        Column::new("OF FLAVORS").wide(),
        Column::new("BORROWS").wide(),
        Column::new("PRIORITY").wide(),
        Column::new("DISPLAY").wide(),
    ]);
    for team in teams {
        let members = team.pointer("/spec/members").and_then(Value::as_array).into_iter().flatten();
        let members: Vec<&str> = members.filter_map(Value::as_str).collect();
        table.row([
            text(team, "/metadata/name").into(),
            text(team, "/spec/weight").into(),
            text(team, "/spec/quota/devices").into(),
            members.join(",").into(),
            ready(team).into(),
            of_flavors(team).into(),
            borrows(team).into(),
            urgency(team).into(),
            text(team, "/spec/displayName").into(),
        ]);
    }
    table
}

fn borrows(team: &Value) -> String {
    match team.pointer("/spec/borrowLimit").and_then(Value::as_u64) {
        None => "what is idle".to_owned(),
        Some(0) => "never".to_owned(),
        Some(devices) => format!("up to {devices}"),
    }
}

fn urgency(team: &Value) -> String {
    let [default, ceiling] = ["default", "ceiling"].map(|field| text(team, &format!("/spec/priority/{field}")));
    if default == ceiling { default } else { format!("{default}, up to {ceiling}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_team_may_do_is_said_in_words() {
        let plain = json!({"spec": {"priority": {"default": "Normal", "ceiling": "Normal"}}});
        assert_eq!([of_flavors(&plain), borrows(&plain), urgency(&plain)], ["", "what is idle", "Normal"]);
        let team = json!({"spec": {"borrowLimit": 4, "quota": {"flavors": {"a100": 2, "h100": 8}},
            "priority": {"default": "Low", "ceiling": "High"}}});
        assert_eq!(
            [of_flavors(&team), borrows(&team), urgency(&team)],
            ["a100=2,h100=8", "up to 4", "Low, up to High"]
        );
        assert_eq!(borrows(&json!({"spec": {"borrowLimit": 0}})), "never");
    }
}
