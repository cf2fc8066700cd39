//! Asking for a server: from flags and defaults to a `DevServer`, and to the cluster.

mod name;
mod plan;

use std::time::Duration;

use kube::ResourceExt as _;
use odc_api::ssh_key::PublicKey;
use odc_api::v1alpha1::DevServer;

pub use name::{generated, sanitised};
pub use plan::{ABOUT_GUESTS, Plan, flavor_named, idle_action, plan, port, priority};

use crate::app::App;
use crate::args::{Format, Request};
use crate::failure::{Failure, Kind, Result, chain};
use crate::glance::Glance;
use crate::ssh;
use crate::wait;

/// How long a namesake may take to end in order, and then to go: a script before its stop may take minutes.
const END_LIMIT: Duration = Duration::from_secs(600);

/// A server like this, with the person's keys, told what they should know about it.
pub async fn prepare(app: &App, name: Option<&str>, request: &Request, command: &[String]) -> Result<DevServer> {
    let flavors = app.backend.flavors().await?;
    app.talk.step("reading flavors");
    let name = match name {
        None => generated(),
        Some(typed) => {
            let name = sanitised(typed)?;
            if name.as_str() != typed {
                app.talk.say(format!("It will be called {name}: names have small letters, digits and '-'."));
            }
            name
        }
    };
    let keys = keys(app, request).await?;
    let Plan { spec, remarks } = plan(request, &app.settings.create()?, &flavors, keys, command)?;
    if request.image.is_none()
        && let Some((image, path)) = app.settings.image_of_project()
    {
        app.talk.say(format!("The image {image} comes from {}.", path.display()));
    }
    for remark in &remarks {
        app.talk.say(remark);
    }
    let mut server = DevServer::new(name.as_str(), spec);
    server.metadata.namespace = Some(app.place().namespace.clone());
    Ok(server)
}

async fn keys(app: &App, request: &Request) -> Result<Vec<PublicKey>> {
    if request.keys.is_empty() {
        return ssh::keys_of_person(app).await;
    }
    request.keys.iter().map(|path| key_file(path)).collect()
}

/// The key in a `.pub` file.
pub fn key_file(path: &std::path::Path) -> Result<PublicKey> {
    let path = crate::config::expanded(path);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Failure::usage(format!("{} cannot be read: {error}", path.display()))
            .advise("Name the .pub file of a key of yours.")
    })?;
    text.trim().parse().map_err(|error| {
        Failure::usage(format!("{}: {error}", path.display())).advise("Name the .pub file of an ed25519 key.")
    })
}

/// Creates it. A namesake that has ended is replaced, one that is about to end is waited for, any other is in the way.
pub async fn create(app: &App, server: &DevServer) -> Result<Glance> {
    match ask(app, server).await {
        Err(failure) if failure.kind == Kind::Conflict => {}
        outcome => {
            app.talk.step("asking for the server");
            return outcome;
        }
    }
    // Gone by now: then the name is free.
    if let Some(old) = app.backend.glance(&server.name_any()).await? {
        make_room(app, old).await?;
    }
    let made = ask(app, server).await;
    app.talk.step("replacing the ended server");
    made
}

/// Asks for it. Whoever interrupts that is told that there may be one now.
async fn ask(app: &App, server: &DevServer) -> Result<Glance> {
    let name = server.name_any();
    let mut signals = wait::Signals::new()?;
    tokio::select! {
        made = app.backend.create(server, false) => made,
        _ = signals.next() => Err(Failure::interrupted(format!("{name} was being asked for and may be there"))
            .advise(format!("devctl show {name} says whether it is, devctl delete {name} ends it."))),
    }
}

/// The name is free when this returns.
async fn make_room(app: &App, mut old: Glance) -> Result<()> {
    let name = old.name().to_owned();
    if !old.ended() {
        if !old.ending() && !old.deleting() {
            return Err(in_the_way(&old));
        }
        app.talk.say(format!("{name} is there still and ends; a new one follows."));
    }
    if !old.ended() && !old.deleting() {
        old = wait::until_ended(app, &name, END_LIMIT).await?;
    }
    app.talk.verbose(|| format!("{name} has ended and is replaced."));
    if let Err(error) = ssh::forget(&old) {
        app.talk.say(format!("warning: {}", chain(&error)));
    }
    app.backend.delete(&name, old.metadata.uid.as_deref().unwrap_or_default(), false).await?;
    wait::until_gone(app, &old, END_LIMIT).await
}

/// What would be sent, after the cluster has looked at it.
pub async fn dry_run(app: &App, server: &DevServer) -> Result<()> {
    would_be_taken(app, server).await?;
    print(app, server)
}

/// Has the cluster look at it, and says that it would take it.
pub async fn would_be_taken(app: &App, server: &DevServer) -> Result<()> {
    match app.backend.create(server, true).await {
        Err(failure) if failure.kind == Kind::Conflict => match app.backend.glance(&server.name_any()).await? {
            Some(old) if !old.ended() && !old.deleting() && !old.ending() => return Err(in_the_way(&old)),
            _ => app.talk.say(format!("The {} that has ended would be replaced.", server.name_any())),
        },
        outcome => outcome.map(drop)?,
    }
    app.talk.say("Nothing was asked for: this is what would be, and the cluster would take it.");
    Ok(())
}

/// As Kubernetes takes it.
pub fn print(app: &App, server: &DevServer) -> Result<()> {
    match app.out.format {
        Format::Json => app.out.json(server),
        Format::Name => app.out.lines(vec![server.name_any()]),
        Format::Yaml | Format::Table | Format::Wide => app.out.yaml(server),
    }
}

fn in_the_way(old: &Glance) -> Failure {
    let name = old.name();
    Failure::conflict(format!("there is already a server {name} ({})", old.phase_word()))
        .advise(format!("devctl ssh {name} goes into it; choose another name, or devctl delete {name} first."))
}
