//! `devctl admin flavor`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use kube::ResourceExt as _;
use odc_api::name::{FlavorName, UserName};
use serde_json::{Map, Value, json};

use super::{create_or_update, delete, report, text};
use crate::cli::shared::DryRunArgs;
use crate::client::ObjectKind;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::request::find_flavor;

#[derive(Subcommand, Debug)]
pub enum FlavorCommand {
    /// Apply a manifest of flavors, keeping fields owned by other field managers
    Apply {
        /// Manifest; - for standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// Take ownership of fields of other field managers
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        dry_run: DryRunArgs,
    },
    /// List the flavors
    #[command(visible_alias = "ls")]
    List,
    /// Start or end maintenance of a flavor, during which no new server starts on it
    Maintenance {
        /// Name of the flavor
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::completion::flavor))]
        name: FlavorName,
        /// Message for users
        #[arg(long, value_name = "TEXT", required_unless_present = "end")]
        message: Option<String>,
        /// User who may start servers during maintenance; may be repeated
        #[arg(long = "allow", value_name = "USER")]
        allow: Vec<UserName>,
        /// End the maintenance
        #[arg(long, conflicts_with_all = ["message", "allow"])]
        end: bool,
    },
    /// Make a flavor the default
    Default {
        /// Name of the flavor
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::completion::flavor))]
        name: FlavorName,
    },
    /// Delete a flavor; servers of this flavor keep running
    #[command(visible_alias = "rm")]
    Delete {
        /// Name of the flavor
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::completion::flavor))]
        name: FlavorName,
        #[command(flatten)]
        dry_run: DryRunArgs,
    },
}

pub(super) async fn run(ctx: &ClusterContext, command: FlavorCommand) -> Result<()> {
    match command {
        FlavorCommand::Apply { file, force, dry_run } => apply(ctx, &file, force, dry_run.dry_run).await,
        FlavorCommand::List => {
            let flavors = ctx.client.flavors().await?;
            crate::command::flavors::print(ctx, &flavors.iter().collect::<Vec<_>>())
        }
        FlavorCommand::Maintenance { name, message, allow, end } => {
            let flavors = ctx.client.flavors().await?;
            let name = find_flavor(name.as_str(), &flavors)?.name_any();
            // null removes the field.
            let maintenance = if end { Value::Null } else { json!({"message": message, "allow": allow}) };
            let spec = Map::from_iter([("maintenance".to_owned(), maintenance)]);
            create_or_update(ctx, ObjectKind::Flavor, &name, spec, false).await
        }
        FlavorCommand::Default { name } => set_default(ctx, name.as_str()).await,
        FlavorCommand::Delete { name, dry_run } => {
            let consequence = "Servers of this flavor keep running.";
            delete(ctx, ObjectKind::Flavor, name.as_str(), dry_run.dry_run, consequence).await
        }
    }
}

/// Clears the other defaults first, so that there are never two.
async fn set_default(ctx: &ClusterContext, name: &str) -> Result<()> {
    let flavors = ctx.client.flavors().await?;
    let name = find_flavor(name, &flavors)?.name_any();
    let spec = |default: bool| Map::from_iter([("default".to_owned(), json!(default))]);
    for other in flavors.iter().filter(|flavor| flavor.spec.default && flavor.name_any() != name) {
        create_or_update(ctx, ObjectKind::Flavor, &other.name_any(), spec(false), false).await?;
    }
    create_or_update(ctx, ObjectKind::Flavor, &name, spec(true), false).await
}

async fn apply(ctx: &ClusterContext, file: &Path, force: bool, dry_run: bool) -> Result<()> {
    let objects = read_manifest(file)?;
    for object in objects {
        let name = text(&object, "/metadata/name");
        let existed = ctx.client.object(ObjectKind::Flavor, &name).await?.is_some();
        let applied = ctx.client.apply_manifest(ObjectKind::Flavor, object, force, dry_run).await?;
        report(ctx, ObjectKind::Flavor, &applied, existed, dry_run)?;
    }
    Ok(())
}

/// Reads and validates all flavors of a manifest before the first is written.
fn read_manifest(file: &Path) -> Result<Vec<Value>> {
    let read = || -> std::io::Result<String> {
        if file == Path::new("-") {
            let mut text = String::new();
            return std::io::stdin().read_to_string(&mut text).map(|_| text);
        }
        std::fs::read_to_string(file)
    };
    let invalid = |cause: String| {
        Error::usage(format!("could not read {}: {cause}", file.display()))
            .with_hint("give a manifest of DevServerFlavors")
    };
    let manifest = read().map_err(|error| invalid(error.to_string()))?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest).map_err(|error| invalid(error.to_string()))?;
    let objects: Vec<Value> = objects.into_iter().filter(|object| !object.is_null()).collect();
    for object in &objects {
        if text(object, "/kind") != ObjectKind::Flavor.kind() {
            return Err(invalid(format!("unexpected kind {:?}", text(object, "/kind"))));
        }
        if let Err(violations) = odc_api::check::check_object(object, None) {
            let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
            let name = text(object, "/metadata/name");
            return Err(Error::usage(format!("invalid flavor {name}: {}", violations.join("; ")))
                .with_hint("fix the manifest; nothing was written"));
        }
    }
    Ok(objects)
}
