//! `devctl admin flavor`.

use std::io::Read as _;
use std::path::Path;

use kube::ResourceExt as _;
use odc_api::v1alpha1::DevServerFlavor;
use serde_json::{Map, Value, json};

use super::{put, remove, text, told};
use crate::app::App;
use crate::args::AdminFlavor;
use crate::backend::Kind;
use crate::failure::{Failure, Result};

pub(super) async fn run(app: &App, verb: AdminFlavor) -> Result<()> {
    match verb {
        AdminFlavor::Apply { file, force, trial } => apply(app, &file, force, trial.dry_run).await,
        AdminFlavor::List => {
            let flavors = app.backend.flavors().await?;
            crate::command::flavors::print(app, &flavors.iter().collect::<Vec<_>>())
        }
        AdminFlavor::Maintenance { name, message, allow, end } => {
            let name = known(app, name.as_str()).await?.name_any();
            // A null takes the field away.
            let pause = if end { Value::Null } else { json!({"message": message, "allow": allow}) };
            let spec = Map::from_iter([("maintenance".to_owned(), pause)]);
            put(app, Kind::Flavor, &name, spec, false).await
        }
        AdminFlavor::Default { name } => default(app, name.as_str()).await,
        AdminFlavor::Delete { name, trial } => {
            remove(app, Kind::Flavor, name.as_str(), trial.dry_run, "Its servers keep what they have.").await
        }
    }
}

async fn known(app: &App, name: &str) -> Result<DevServerFlavor> {
    let flavors = app.backend.flavors().await?;
    crate::reserve::flavor_named(name, &flavors).cloned()
}

/// Takes the mark from the others first: for a moment there may be no default, but never two.
async fn default(app: &App, name: &str) -> Result<()> {
    let flavors = app.backend.flavors().await?;
    let chosen = crate::reserve::flavor_named(name, &flavors)?.name_any();
    let mark = |on: bool| Map::from_iter([("default".to_owned(), json!(on))]);
    for other in flavors.iter().filter(|flavor| flavor.spec.default && flavor.name_any() != chosen) {
        put(app, Kind::Flavor, &other.name_any(), mark(false), false).await?;
    }
    put(app, Kind::Flavor, &chosen, mark(true), false).await
}

async fn apply(app: &App, file: &Path, force: bool, dry_run: bool) -> Result<()> {
    let read = || -> std::io::Result<String> {
        if file == Path::new("-") {
            let mut text = String::new();
            return std::io::stdin().read_to_string(&mut text).map(|_| text);
        }
        std::fs::read_to_string(file)
    };
    let unreadable = |why: String| {
        Failure::usage(format!("{} cannot be read: {why}", file.display()))
            .advise("Name a manifest of DevServerFlavors.")
    };
    let text_of_file = read().map_err(|error| unreadable(error.to_string()))?;
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&text_of_file).map_err(|error| unreadable(error.to_string()))?;
    let objects: Vec<Value> = objects.into_iter().filter(|object| !object.is_null()).collect();
    // All are looked at before the first is written.
    for object in &objects {
        if text(object, "/kind") != Kind::Flavor.name() {
            return Err(unreadable(format!("it holds a {:?}", text(object, "/kind"))));
        }
        if let Err(violations) = odc_api::check::check_object(object, None) {
            let all: Vec<String> = violations.iter().map(ToString::to_string).collect();
            let name = text(object, "/metadata/name");
            return Err(Failure::usage(format!("flavor {name}: {}", all.join("; ")))
                .advise("Correct the manifest; nothing was written."));
        }
    }
    for object in objects {
        let name = text(&object, "/metadata/name");
        let existed = app.backend.object(Kind::Flavor, &name).await?.is_some();
        let written = app.backend.declare(Kind::Flavor, object, force, dry_run).await?;
        told(app, Kind::Flavor, &written, existed, dry_run)?;
    }
    Ok(())
}
