//! `devctl admin team`.

mod what_if;

use clap::{Args, Subcommand};
use odc_api::name::{TeamName, UserName};
use serde_json::{Map, Value, json};

use super::{
    QuotaArgs, create_or_update, delete, format_flavor_quota, format_ready, join_strings, print, print_object, quota,
    text,
};
use crate::cli::shared::DryRunArgs;
use crate::cli::value::Limit;
use crate::client::{ObjectKind, retry_on_conflict};
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::output::{Column, Table};
use crate::request::args::PriorityArg;
use crate::request::priority;

#[derive(Subcommand, Debug)]
pub enum TeamCommand {
    /// Create a team, or change the given fields of an existing one
    #[command(visible_alias = "set")]
    Create(Box<TeamArgs>),
    /// List the teams
    #[command(visible_alias = "ls")]
    List,
    /// Show how another quota would change start times, without changing it
    WhatIf {
        /// Name of the team
        name: TeamName,
        #[command(flatten)]
        quota: QuotaArgs,
    },
    /// Add users to a team
    Add {
        /// Name of the team
        name: TeamName,
        /// Names of the users
        #[arg(required = true)]
        users: Vec<UserName>,
    },
    /// Remove users from a team
    Remove {
        /// Name of the team
        name: TeamName,
        /// Names of the users
        #[arg(required = true)]
        users: Vec<UserName>,
    },
    /// Delete a team
    #[command(visible_alias = "rm")]
    Delete {
        /// Name of the team
        name: TeamName,
        #[command(flatten)]
        dry_run: DryRunArgs,
    },
}

#[derive(Args, Debug)]
pub struct TeamArgs {
    /// Name of the team
    pub name: TeamName,
    /// Display name
    #[arg(long, value_name = "TEXT")]
    pub display: Option<String>,
    /// Fair-share weight relative to other teams
    #[arg(long, value_name = "N")]
    pub weight: Option<u32>,
    /// Default priority of servers
    #[arg(long, value_name = "PRIORITY")]
    pub priority: Option<PriorityArg>,
    /// Highest priority that members may request
    #[arg(long, value_name = "PRIORITY")]
    pub priority_ceiling: Option<PriorityArg>,
    /// Number of idle devices that preemptible servers may borrow above the quota; `none` for unlimited, 0 disables
    /// borrowing of CPU and memory as well
    #[arg(long, value_name = "N")]
    pub borrow: Option<Limit<u32>>,
    #[command(flatten)]
    pub quota: QuotaArgs,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
}

pub(super) async fn run(ctx: &ClusterContext, command: TeamCommand) -> Result<()> {
    match command {
        TeamCommand::Create(args) => {
            create_or_update(ctx, ObjectKind::Team, args.name.as_str(), spec(&args)?, args.dry_run.dry_run).await
        }
        TeamCommand::List => {
            let teams = ctx.client.objects(ObjectKind::Team).await?;
            let empty = "No teams found. Run `devctl admin team create NAME` to create one.";
            print(ctx, &teams, || table(&teams), empty)
        }
        TeamCommand::WhatIf { name, quota } => what_if::run(ctx, name, &quota).await,
        TeamCommand::Add { name, users } => {
            let add = |mut members: Vec<UserName>| {
                for user in &users {
                    if !members.contains(user) {
                        members.push(user.clone());
                    }
                }
                members
            };
            update_members(ctx, name.as_str(), add).await
        }
        TeamCommand::Remove { name, users } => {
            let remove = |mut members: Vec<UserName>| {
                members.retain(|member| !users.contains(member));
                members
            };
            update_members(ctx, name.as_str(), remove).await
        }
        TeamCommand::Delete { name, dry_run } => {
            let consequence = "Its servers keep running, but new servers cannot use it.";
            delete(ctx, ObjectKind::Team, name.as_str(), dry_run.dry_run, consequence).await
        }
    }
}

fn spec(args: &TeamArgs) -> Result<Map<String, Value>> {
    let mut priorities = Map::new();
    priorities.extend(args.priority.map(|default| ("default".to_owned(), json!(priority(default)))));
    priorities.extend(args.priority_ceiling.map(|ceiling| ("ceiling".to_owned(), json!(priority(ceiling)))));
    let quota = quota(&args.quota)?;
    let fields = [
        ("displayName", args.display.as_ref().map(|text| json!(text))),
        ("weight", args.weight.map(|weight| json!(weight))),
        ("priority", (!priorities.is_empty()).then_some(Value::Object(priorities))),
        ("borrowingLimit", args.borrow.map(|Limit(devices)| json!(devices))),
        ("quota", (!quota.is_empty()).then_some(Value::Object(quota))),
    ];
    Ok(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

fn team_not_found(name: &str) -> Error {
    Error::not_found(format!("team {name} not found")).with_hint("run `devctl admin team list` to see the teams")
}

/// Changes the members of a team.
async fn update_members(
    ctx: &ClusterContext,
    name: &str,
    update: impl Fn(Vec<UserName>) -> Vec<UserName>,
) -> Result<()> {
    let read = async || -> Result<Value> {
        let team = ctx.client.object(ObjectKind::Team, name).await?.ok_or_else(|| team_not_found(name))?;
        let members = team.pointer("/spec/members").cloned().unwrap_or_else(|| json!([]));
        let members: Vec<UserName> = serde_json::from_value(members)
            .map_err(|error| Error::failed(format!("invalid members of team {name}: {error}")))?;
        Ok(json!({
            "apiVersion": team["apiVersion"],
            "kind": team["kind"],
            // Fail if the list was changed since it was read.
            "metadata": {"name": name, "resourceVersion": team.pointer("/metadata/resourceVersion")},
            "spec": {"members": update(members)},
        }))
    };
    let write = async |team: &Value| ctx.client.apply(ObjectKind::Team, team.clone(), false).await;
    let (_, written) = retry_on_conflict(read, write).await?;
    let count = written.pointer("/spec/members").and_then(Value::as_array).map_or(0, Vec::len);
    ctx.ui.info(format!("Updated team {name} ({count} members)"));
    print_object(ctx, &written)
}

fn table(teams: &[Value]) -> Table {
    let mut table = Table::new([
        Column::new("NAME"),
        Column::new("WEIGHT"),
        Column::new("DEVICES").drop_priority(4),
        Column::new("MEMBERS").drop_priority(2).truncate(),
        Column::new("READY").drop_priority(1).truncate(),
        Column::new("FLAVOR QUOTA").wide(),
        Column::new("BORROW LIMIT").wide(),
        Column::new("PRIORITY").wide(),
        Column::new("DISPLAY NAME").wide(),
    ]);
    for team in teams {
        table.row([
            text(team, "/metadata/name").into(),
            text(team, "/spec/weight").into(),
            text(team, "/spec/quota/devices").into(),
            join_strings(team, "/spec/members").into(),
            format_ready(team).into(),
            format_flavor_quota(team).into(),
            format_borrow_limit(team).into(),
            format_priority(team).into(),
            text(team, "/spec/displayName").into(),
        ]);
    }
    table
}

fn format_borrow_limit(team: &Value) -> String {
    let limit = team.pointer("/spec/borrowingLimit").and_then(Value::as_u64);
    limit.map_or_else(|| "unlimited".to_owned(), |devices| devices.to_string())
}

fn format_priority(team: &Value) -> String {
    let [default, ceiling] = ["default", "ceiling"].map(|field| text(team, &format!("/spec/priority/{field}")));
    if default == ceiling { default } else { format!("{default} (max {ceiling})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_quota_borrow_limit_and_priority() {
        let plain = json!({"spec": {"priority": {"default": "Normal", "ceiling": "Normal"}}});
        assert_eq!(
            [format_flavor_quota(&plain), format_borrow_limit(&plain), format_priority(&plain)],
            ["", "unlimited", "Normal"]
        );
        let team = json!({"spec": {"borrowingLimit": 4, "quota": {"flavors": {"a100": 2, "h100": 8}},
            "priority": {"default": "Low", "ceiling": "High"}}});
        assert_eq!(
            [format_flavor_quota(&team), format_borrow_limit(&team), format_priority(&team)],
            ["a100=2,h100=8", "4", "Low (max High)"]
        );
        assert_eq!(format_borrow_limit(&json!({"spec": {"borrowingLimit": 0}})), "0");
    }
}
