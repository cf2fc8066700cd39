//! Asking for a server: from flags and defaults to a `DevServer`, and to the cluster.

mod name;
mod plan;

use std::time::Duration;

use odc_api::ssh_key::PublicKey;
use odc_api::v1alpha1::DevServer;

pub use name::{generated, sanitised};
pub use plan::{Plan, flavor_named, idle_action, plan, port, priority};

use crate::app::App;
use crate::args::Request;
use crate::failure::{Failure, Kind, Result};
use crate::glance::Glance;
use crate::ssh;
use crate::wait;

/// How long an ended namesake may take to go.
const REPLACE_LIMIT: Duration = Duration::from_secs(60);

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
    let Plan { spec, remarks } = plan(request, &app.settings.create(), &flavors, keys, command)?;
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

/// Creates it. An ended namesake is replaced; one that has not ended is in the way.
pub async fn create(app: &App, server: &DevServer, dry_run: bool) -> Result<Glance> {
    match app.backend.create(server, dry_run).await {
        Err(failure) if failure.kind == Kind::Conflict => {}
        outcome => {
            app.talk.step("asking for the server");
            return outcome;
        }
    }
    let name = server.metadata.name.as_deref().unwrap_or_default();
    // Gone by now: then the name is free.
    if let Some(old) = app.backend.glance(name).await? {
        if !old.ended() && !old.deleting() {
            return Err(in_the_way(&old));
        }
        if dry_run {
            app.talk.say(format!("{name} has ended and would be replaced."));
            return Ok(old);
        }
        app.talk.verbose(|| format!("{name} has ended and is replaced."));
        app.backend.delete(name, old.metadata.uid.as_deref().unwrap_or_default(), false).await?;
        wait::until_gone(app, &old, REPLACE_LIMIT).await?;
    }
    let made = app.backend.create(server, dry_run).await;
    app.talk.step("replacing the ended server");
    made
}

fn in_the_way(old: &Glance) -> Failure {
    let name = old.name();
    Failure::conflict(format!("there is already a server {name} ({})", old.phase_word()))
        .advise(format!("devctl ssh {name} goes into it; choose another name, or devctl delete {name} first."))
}
