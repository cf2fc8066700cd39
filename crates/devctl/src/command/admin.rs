//! `devctl admin`: users, teams and flavors, with the administrator's own rights.

mod flavor;
mod team;
mod user;

use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::value::{FlavorLimit, Limit};
use crate::args::{Admin, AdminNoun, Format, QuotaArgs};
use crate::backend::Kind;
use crate::failure::{Failure, Result};
use crate::output::Table;

pub async fn run(app: &App, args: Admin) -> Result<()> {
    match args.noun {
        AdminNoun::User(verb) => user::run(app, verb).await,
        AdminNoun::Team(verb) => team::run(app, verb).await,
        AdminNoun::Flavor(verb) => flavor::run(app, verb).await,
    }
}

/// Objects as a table, or as Kubernetes knows them.
fn print(app: &App, objects: &[Value], table: impl FnOnce() -> Table, none: &str) -> Result<()> {
    if objects.is_empty() && !app.out.structured() {
        app.talk.say(none);
        return Ok(());
    }
    app.out.show(&objects, || objects.iter().map(|object| text(object, "/metadata/name")).collect(), table)
}

/// Creates or changes it, and says which.
async fn put(app: &App, kind: Kind, name: &str, spec: Map<String, Value>, dry_run: bool) -> Result<()> {
    let existed = app.backend.object(kind, name).await?.is_some();
    let object = json!({
        "apiVersion": format!("{}/v1alpha1", odc_api::GROUP),
        "kind": kind.name(),
        "metadata": {"name": name},
        "spec": spec,
    });
    let written = app.backend.apply(kind, object, dry_run).await?;
    app.talk.step("writing");
    told(app, kind, &written, existed, dry_run)
}

/// Says what was done to it, and prints it for programs.
fn told(app: &App, kind: Kind, written: &Value, existed: bool, dry_run: bool) -> Result<()> {
    let done = match (existed, dry_run) {
        (true, false) => "is changed",
        (false, false) => "is created",
        (true, true) => "would be changed",
        (false, true) => "would be created",
    };
    app.talk.say(format!("{} {} {done}.", kind.word(), text(written, "/metadata/name")));
    print_one(app, written)
}

/// An object as Kubernetes knows it, for programs; people were told in words.
fn print_one(app: &App, object: &Value) -> Result<()> {
    match app.out.format {
        Format::Json => app.out.json(object),
        Format::Yaml => app.out.yaml(object),
        Format::Name => app.out.lines(vec![text(object, "/metadata/name")]),
        Format::Table | Format::Wide => Ok(()),
    }
}

async fn remove(app: &App, kind: Kind, name: &str, dry_run: bool, consequence: &str) -> Result<()> {
    if !dry_run && !app.talk.confirm(&format!("Delete the {} {name}? {consequence}", kind.word()), "--yes")? {
        return Err(Failure::interrupted("nothing was deleted"));
    }
    let object = app.backend.object(kind, name).await?;
    app.backend.remove(kind, name, dry_run).await?;
    let done = if dry_run { "would be deleted" } else { "is deleted" };
    app.talk.say(format!("{} {name} {done}.", kind.word()));
    object.map_or(Ok(()), |object| print_one(app, &object))
}

/// Only what was said; null takes a limit away.
fn quota(args: &QuotaArgs) -> Result<Map<String, Value>> {
    let QuotaArgs { servers, devices, devices_of, cpu, memory, storage } = args;
    let mut by_flavor = Map::new();
    for FlavorLimit { flavor, devices } in devices_of {
        if by_flavor.insert(flavor.to_string(), json!(devices.0)).is_some() {
            return Err(Failure::usage(format!("--devices-of {flavor} is there twice")).advise("Say it once."));
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
fn of_flavors(object: &Value) -> String {
    let limits = object.pointer("/spec/quota/flavors").and_then(Value::as_object).into_iter().flatten();
    limits.map(|(flavor, devices)| format!("{flavor}={devices}")).collect::<Vec<_>>().join(",")
}

fn text(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Whether the operator has made everything, or what is missing.
fn ready(object: &Value) -> String {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    match ready {
        None => "not yet".to_owned(),
        Some(ready) if ready["status"] == "True" => "yes".to_owned(),
        Some(ready) => text(ready, "/message"),
    }
}
