//! `devctl admin`: manages users, teams and flavors with the rights of the administrator.

mod flavor;
mod team;
mod user;

use clap::{Args, Subcommand};
use odc_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::cli::Format;
use crate::cli::value::{FlavorLimit, Limit};
use crate::client::ObjectKind;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::output::Table;
use crate::ui::{Confirm, PASS_YES};

#[derive(Args, Debug)]
pub struct AdminArgs {
    #[command(subcommand)]
    pub command: AdminCommand,
}

#[derive(Subcommand, Debug)]
pub enum AdminCommand {
    /// Manage users
    #[command(subcommand)]
    User(user::UserCommand),
    /// Manage teams, whose members share a quota
    #[command(subcommand)]
    Team(team::TeamCommand),
    /// Manage flavors (machine types)
    #[command(subcommand)]
    Flavor(flavor::FlavorCommand),
}

#[derive(Args, Debug, Default)]
pub struct QuotaArgs {
    /// Number of servers; `none` for unlimited, here and below
    #[arg(long, value_name = "N", help_heading = "Quota")]
    pub servers: Option<Limit<u32>>,
    /// Number of devices of running servers
    #[arg(long, value_name = "N", help_heading = "Quota")]
    pub devices: Option<Limit<u32>>,
    /// Number of devices of one flavor; may be repeated
    #[arg(long, value_name = "FLAVOR=N", help_heading = "Quota")]
    pub devices_of: Vec<FlavorLimit>,
    /// CPU requests
    #[arg(long, value_name = "AMOUNT", help_heading = "Quota")]
    pub cpu: Option<Limit<Quantity>>,
    /// Memory requests
    #[arg(long, value_name = "AMOUNT", help_heading = "Quota")]
    pub memory: Option<Limit<Quantity>>,
    /// Storage requests of PVCs
    #[arg(long, value_name = "AMOUNT", help_heading = "Quota")]
    pub storage: Option<Limit<Quantity>>,
}

pub async fn run(ctx: &ClusterContext, args: AdminArgs) -> Result<()> {
    match args.command {
        AdminCommand::User(command) => user::run(ctx, command).await,
        AdminCommand::Team(command) => team::run(ctx, command).await,
        AdminCommand::Flavor(command) => flavor::run(ctx, command).await,
    }
}

/// Prints objects as a table, or unchanged in a structured format.
fn print(ctx: &ClusterContext, objects: &[Value], table: impl FnOnce() -> Table, empty: &str) -> Result<()> {
    if objects.is_empty() && !ctx.out.structured() {
        ctx.ui.info(empty);
        return Ok(());
    }
    ctx.out.show(&objects, || objects.iter().map(|object| text(object, "/metadata/name")).collect(), table)
}

/// Creates or changes an object.
async fn create_or_update(
    ctx: &ClusterContext,
    kind: ObjectKind,
    name: &str,
    spec: Map<String, Value>,
    dry_run: bool,
) -> Result<()> {
    let existed = ctx.client.object(kind, name).await?.is_some();
    let object = json!({
        "apiVersion": format!("{}/v1alpha1", odc_api::GROUP),
        "kind": kind.kind(),
        "metadata": {"name": name},
        "spec": spec,
    });
    let written = ctx.client.apply(kind, object, dry_run).await?;
    ctx.ui.trace_step("writing");
    report(ctx, kind, &written, existed, dry_run)
}

/// A change of an object.
#[derive(Clone, Copy)]
enum Change {
    Created,
    Updated,
    Deleted,
}

impl Change {
    /// `Created user ada`, or `User ada would be created (dry run)`.
    fn message(self, kind: ObjectKind, name: &str, dry_run: bool) -> String {
        let (capitalized, participle) = match self {
            Self::Created => ("Created", "created"),
            Self::Updated => ("Updated", "updated"),
            Self::Deleted => ("Deleted", "deleted"),
        };
        if dry_run {
            format!("{} {name} would be {participle} (dry run)", kind.title())
        } else {
            format!("{capitalized} {} {name}", kind.noun())
        }
    }
}

/// Prints what was done to an object, and the object in a structured format.
fn report(ctx: &ClusterContext, kind: ObjectKind, written: &Value, existed: bool, dry_run: bool) -> Result<()> {
    let change = if existed { Change::Updated } else { Change::Created };
    ctx.ui.info(change.message(kind, &text(written, "/metadata/name"), dry_run));
    print_object(ctx, written)
}

/// Prints an object in a structured format.
fn print_object(ctx: &ClusterContext, object: &Value) -> Result<()> {
    match ctx.out.format {
        Format::Json => ctx.out.json(object),
        Format::Yaml => ctx.out.yaml(object),
        Format::Name => ctx.out.lines(vec![text(object, "/metadata/name")]),
        Format::Table | Format::Wide => Ok(()),
    }
}

async fn delete(ctx: &ClusterContext, kind: ObjectKind, name: &str, dry_run: bool, consequence: &str) -> Result<()> {
    let object = format!("{} {name}", kind.noun());
    let confirm = Confirm {
        question: &format!("Delete {object}? {consequence}"),
        action: &format!("delete {object}"),
        hint: PASS_YES,
        default: false,
    };
    if !dry_run && !ctx.ui.confirm(&confirm)? {
        return Err(Error::interrupted("aborted"));
    }
    let deleted = ctx.client.object(kind, name).await?;
    ctx.client.delete_object(kind, name, dry_run).await?;
    ctx.ui.info(Change::Deleted.message(kind, name, dry_run));
    deleted.map_or(Ok(()), |deleted| print_object(ctx, &deleted))
}

/// Returns the given limits; null removes a limit.
fn quota(args: &QuotaArgs) -> Result<Map<String, Value>> {
    let QuotaArgs { servers, devices, devices_of, cpu, memory, storage } = args;
    let mut by_flavor = Map::new();
    for FlavorLimit { flavor, devices } in devices_of {
        if by_flavor.insert(flavor.to_string(), json!(devices.0)).is_some() {
            return Err(Error::usage(format!("duplicate --devices-of {flavor}")).with_hint("give it once"));
        }
    }
    let fields = [
        ("servers", servers.map(|Limit(amount)| json!(amount))),
        ("devices", devices.map(|Limit(amount)| json!(amount))),
        ("flavors", (!by_flavor.is_empty()).then_some(Value::Object(by_flavor))),
        ("cpu", cpu.map(|Limit(amount)| json!(amount))),
        ("memory", memory.map(|Limit(amount)| json!(amount))),
        ("storage", storage.map(|Limit(amount)| json!(amount))),
    ];
    Ok(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

/// `h100=8,a100=4`.
fn format_flavor_quota(object: &Value) -> String {
    let limits = object.pointer("/spec/quota/flavors").and_then(Value::as_object).into_iter().flatten();
    limits.map(|(flavor, devices)| format!("{flavor}={devices}")).collect::<Vec<_>>().join(",")
}

/// Returns the field at a JSON pointer as text.
fn text(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Joins the strings at a JSON pointer.
fn join_strings(object: &Value, pointer: &str) -> String {
    let strings = object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    strings.filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

/// Formats the Ready condition: `yes`, or what is missing.
fn format_ready(object: &Value) -> String {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    match ready {
        None => "pending".to_owned(),
        Some(ready) if ready["status"] == "True" => "yes".to_owned(),
        Some(ready) => text(ready, "/message"),
    }
}
