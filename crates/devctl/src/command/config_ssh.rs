//! `devctl config-ssh`: lets ssh, scp, rsync, git and editors reach servers as NAME.odc.

use std::path::Path;

use crate::app::{App, Desk};
use crate::args::ConfigSsh;
use crate::config::Settings;
use crate::failure::{Failure, Kind, Result, chain};
use crate::find;
use crate::output::style::{GREEN, RED, painted};
use crate::ssh::client::Route;
use crate::ssh::config_file::{self, Change, diff};
use crate::ssh::host::Host;
use crate::ssh::route::{Wishes, route};
use crate::ssh::{openssh, places};

pub async fn run(desk: Desk, args: ConfigSsh) -> Result<()> {
    let places =
        args.ssh_config.as_deref().map_or_else(places, |config| places().map(|places| places.with_config(config)))?;
    if args.remove {
        let changes = config_file::remove(&places).map_err(|error| failed(&error))?;
        let done = "ssh knows no servers any more.";
        carry_out(&desk, &changes, args.dry_run, done, "Nothing of devctl's is in ssh's configuration.")?;
        return if args.dry_run { Ok(()) } else { remember(&desk.settings, false) };
    }
    openssh::check().await?;
    let app = desk.connect().await?;
    let route = Route { places: places.clone(), ..route(&app.global, &app.settings, app.place(), &Wishes::default())? };
    if let Some(name) = &args.print {
        return print(&app, &route, name).await;
    }
    let changes = config_file::install(&places, &route).map_err(|error| failed(&error))?;
    let App { global, settings, out, talk, .. } = app;
    let desk = Desk { global, settings, out, talk };
    carry_out(&desk, &changes, args.dry_run, DONE, "ssh's configuration is already as it should be.")?;
    // What was once refused is wanted now.
    if desk.settings.file.ssh.include == Some(false) && !args.dry_run {
        remember(&desk.settings, true)?;
    }
    Ok(())
}

const DONE: &str = "ssh NAME.odc, scp, rsync, git and editors reach your servers now; new ones too.";

/// Asks a person who has a server and whose ssh does not know it. Once: the answer is kept.
pub async fn offer(app: &App) -> Result<()> {
    let places = places()?;
    let answered = app.settings.file.ssh.include.is_some() || places.our_config().exists();
    if answered || app.talk.yes() || !app.talk.can_ask() || openssh::check().await.is_err() {
        return Ok(());
    }
    let question =
        "Let ssh, scp, rsync, git and editors reach your servers as NAME.odc? It takes a line in ~/.ssh/config.";
    let wanted = match app.talk.confirm(question, "--yes") {
        // No answer is none to keep.
        Err(failure) if failure.kind == Kind::Interrupted => return Ok(()),
        answer => answer?,
    };
    if wanted {
        let route = route(&app.global, &app.settings, app.place(), &Wishes::default())?;
        for change in config_file::install(&places, &route).map_err(|error| failed(&error))? {
            if change.is_needed() {
                config_file::apply(&change).map_err(|error| failed(&error))?;
            }
        }
        app.talk.say(DONE);
    }
    remember(&app.settings, wanted)
}

fn remember(settings: &Settings, wanted: bool) -> Result<()> {
    if settings.file.ssh.include == Some(wanted) {
        return Ok(());
    }
    let mut file = settings.file.clone();
    file.ssh.include = Some(wanted);
    file.write(&settings.path)
}

/// What changes is data, so that it can be looked at before and kept; what was done is talk.
fn carry_out(desk: &Desk, changes: &[Change], dry_run: bool, done: &str, nothing: &str) -> Result<()> {
    let needed: Vec<&Change> = changes.iter().filter(|change| change.is_needed()).collect();
    if needed.is_empty() {
        desk.talk.say(nothing);
        return Ok(());
    }
    for change in &needed {
        desk.out.print(&coloured(&diff(&shown(&change.path), &change.before, change.after.as_deref())))?;
    }
    if dry_run {
        return Ok(());
    }
    if desk.talk.can_ask() && !desk.talk.yes() && !desk.talk.confirm("Change these files?", "--yes")? {
        return Err(Failure::interrupted("nothing was changed"));
    }
    for change in needed {
        config_file::apply(change).map_err(|error| failed(&error))?;
    }
    desk.talk.say(done);
    Ok(())
}

/// All there is to know about one server, for a machine or a program that cannot include our file. Nothing is written:
/// the connection itself brings the host key along.
async fn print(app: &App, route: &Route, name: &str) -> Result<()> {
    let server = find::server(app, Some(name)).await?;
    let alias = Host::new(server.name(), 0).alias();
    let mut text = String::new();
    if let Some(key) = server.status.access.as_ref().and_then(|access| access.host_key.as_deref()) {
        text += &format!("# host key: {key}\n");
    }
    text += &format!("Host {alias}\n  User {}\n", app.login());
    for (name, value) in route.settings() {
        text += &format!("  {name} {value}\n");
    }
    app.out.print(&text)
}

fn coloured(diff: &str) -> String {
    let paint = |line: &str| match line.as_bytes().first() {
        Some(b'+') => painted(GREEN, line),
        Some(b'-') => painted(RED, line),
        _ => line.to_owned(),
    };
    diff.lines().map(|line| paint(line) + "\n").collect()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn failed(error: &config_file::Error) -> Failure {
    Failure::failed(chain(error))
}
