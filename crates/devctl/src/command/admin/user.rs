//! `devctl admin user`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use odc_api::duration::Duration;
use odc_api::name::{FlavorName, UserName};
use serde_json::{Map, Value, json};

use super::{QuotaArgs, create_or_update, delete, format_flavor_quota, format_ready, join_strings, print, quota, text};
use crate::cli::shared::DryRunArgs;
use crate::cli::value::PriorityCeilingArg;
use crate::client::{ObjectKind, UserKubeconfig};
use crate::clock;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::fs;
use crate::output::duration::{format_clock, format_until_expiry};
use crate::output::{Column, Table};
use crate::request::{priority, read_public_key};

#[derive(Subcommand, Debug)]
pub enum UserCommand {
    /// Create a user, or change the given fields of an existing one
    #[command(visible_alias = "set")]
    Create(Box<UserArgs>),
    /// List the users
    #[command(visible_alias = "ls")]
    List,
    /// Delete a user and their servers; PVCs and disks are kept
    #[command(visible_alias = "rm")]
    Delete {
        /// Name of the user
        name: UserName,
        #[command(flatten)]
        dry_run: DryRunArgs,
    },
    /// Create a kubeconfig for a user
    Kubeconfig {
        /// Name of the user
        name: UserName,
        /// Validity of the token
        #[arg(long, value_name = "DURATION", default_value = "24h")]
        duration: Duration,
        /// Write to this file with mode 0600 instead of standard output
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub struct UserArgs {
    /// Name of the user
    pub name: UserName,
    /// Display name
    #[arg(long, value_name = "TEXT")]
    pub display: Option<String>,
    /// Public key for all servers of the user, replacing the existing keys; may be repeated
    #[arg(long = "ssh-public-key-file", alias = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    /// GitHub login (reserved; has no effect yet)
    #[arg(long, value_name = "NAME")]
    pub github: Option<String>,
    /// Role (reserved; has no effect yet)
    #[arg(long)]
    pub role: Option<RoleArg>,
    /// Default flavor
    #[arg(long, value_name = "NAME")]
    pub default_flavor: Option<FlavorName>,
    /// Default image
    #[arg(long, value_name = "REF")]
    pub default_image: Option<String>,
    /// Fair-share weight relative to other members of the team
    #[arg(long, value_name = "N")]
    pub weight: Option<u32>,
    /// Highest priority the user may request; `none` for the ceiling of the team
    #[arg(long, value_name = "PRIORITY")]
    pub priority_ceiling: Option<PriorityCeilingArg>,
    #[command(flatten)]
    pub quota: QuotaArgs,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleArg {
    User,
    Admin,
    Auditor,
}

impl RoleArg {
    /// Returns the value in the API.
    const fn as_str(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Admin => "Admin",
            Self::Auditor => "Auditor",
        }
    }
}

pub(super) async fn run(ctx: &ClusterContext, command: UserCommand) -> Result<()> {
    match command {
        UserCommand::Create(args) => {
            create_or_update(ctx, ObjectKind::User, args.name.as_str(), spec(&args)?, args.dry_run.dry_run).await
        }
        UserCommand::List => {
            let users = ctx.client.objects(ObjectKind::User).await?;
            let empty = "No users found. Run `devctl admin user create NAME` to create one.";
            print(ctx, &users, || table(&users), empty)
        }
        UserCommand::Delete { name, dry_run } => {
            let consequence = "Their servers will be deleted; PVCs and disks are kept.";
            delete(ctx, ObjectKind::User, name.as_str(), dry_run.dry_run, consequence).await
        }
        UserCommand::Kubeconfig { name, duration, file } => {
            let UserKubeconfig { kubeconfig, expires_at } =
                ctx.client.user_kubeconfig(name.as_str(), duration.into()).await?;
            match &file {
                None => ctx.out.print(&kubeconfig)?,
                Some(path) => fs::write_private(path, kubeconfig.as_bytes()).map_err(|error| {
                    Error::failed(format!("could not write {}: {error}", path.display()))
                        .with_hint("choose another file with `--file`")
                })?,
            }
            let now = clock::now();
            ctx.ui.info(format!(
                "Created a kubeconfig for user {name}, valid until {} ({}). It contains a secret token.",
                format_clock(expires_at, now),
                format_until_expiry(expires_at, now)
            ));
            Ok(())
        }
    }
}

fn spec(args: &UserArgs) -> Result<Map<String, Value>> {
    let keys = args.keys.iter().map(|path| read_public_key(path)).collect::<Result<Vec<_>>>()?;
    let mut defaults = Map::new();
    defaults.extend(args.default_flavor.as_ref().map(|flavor| ("flavor".to_owned(), json!(flavor))));
    defaults.extend(args.default_image.as_ref().map(|image| ("image".to_owned(), json!(image))));
    let ceiling = args.priority_ceiling.map(|PriorityCeilingArg(ceiling)| json!(ceiling.map(priority)));
    let quota = quota(&args.quota)?;
    let fields = [
        ("displayName", args.display.as_ref().map(|text| json!(text))),
        ("github", args.github.as_ref().map(|name| json!(name))),
        ("role", args.role.map(|role| json!(role.as_str()))),
        ("keys", (!keys.is_empty()).then(|| json!(keys))),
        ("defaults", (!defaults.is_empty()).then_some(Value::Object(defaults))),
        ("weight", args.weight.map(|weight| json!(weight))),
        ("priorityCeiling", ceiling),
        ("quota", (!quota.is_empty()).then_some(Value::Object(quota))),
    ];
    Ok(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

fn table(users: &[Value]) -> Table {
    let mut table = Table::new([
        Column::new("NAME"),
        Column::new("ROLE"),
        Column::new("NAMESPACE").drop_priority(3),
        Column::new("TEAMS").drop_priority(4),
        Column::new("DEVICES").drop_priority(5),
        Column::new("READY").drop_priority(1).truncate(),
        Column::new("FLAVOR QUOTA").wide(),
        Column::new("WEIGHT").wide(),
        Column::new("MAX PRIORITY").wide(),
        Column::new("DISPLAY NAME").wide(),
        Column::new("GITHUB").wide(),
    ]);
    for user in users {
        table.row([
            text(user, "/metadata/name").into(),
            text(user, "/spec/role").into(),
            text(user, "/status/namespace").into(),
            join_strings(user, "/status/teams").into(),
            text(user, "/spec/quota/devices").into(),
            format_ready(user).into(),
            format_flavor_quota(user).into(),
            text(user, "/spec/weight").into(),
            text(user, "/spec/priorityCeiling").into(),
            text(user, "/spec/displayName").into(),
            text(user, "/spec/github").into(),
        ]);
    }
    table
}
