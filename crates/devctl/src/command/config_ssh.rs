//! `devctl config-ssh`: lets ssh, scp, rsync, git and editors reach servers as NAME.odc.

use std::path::Path;

use crate::app::{App, Desk};
use crate::args::ConfigSsh;
use crate::failure::{Failure, Result, chain};
use crate::find;
use crate::output::style::{GREEN, RED, painted};
use crate::ssh::client::Route;
use crate::ssh::config_file::{self, Change, diff};
use crate::ssh::host::Host;
use crate::ssh::route::{Wishes, route};
use crate::ssh::{known_hosts, places};

pub async fn run(desk: Desk, args: ConfigSsh) -> Result<()> {
    let places =
        args.ssh_config.as_deref().map_or_else(places, |config| places().map(|places| places.with_config(config)))?;
    if args.remove {
        let changes = config_file::remove(&places).map_err(|error| failed(&error))?;
        let done = "ssh knows no servers any more.";
        return carry_out(&desk, &changes, args.dry_run, done, "Nothing of devctl's is in ssh's configuration.");
    }
    let app = desk.connect().await?;
    let route = Route { places: places.clone(), ..route(&app.global, &app.settings, app.place(), &Wishes::default())? };
    if let Some(name) = &args.print {
        return print(&app, &route, name).await;
    }
    let changes = config_file::install(&places, &route).map_err(|error| failed(&error))?;
    let App { global, settings, out, talk, .. } = app;
    let desk = Desk { global, settings, out, talk };
    let done = "ssh NAME.odc, scp, rsync, git and editors reach your servers now; new ones too.";
    carry_out(&desk, &changes, args.dry_run, done, "ssh's configuration is already as it should be.")
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

/// All there is to know about one server, for a machine or a program that cannot include our file.
async fn print(app: &App, route: &Route, name: &str) -> Result<()> {
    let server = find::server(app, Some(name)).await?;
    let alias = Host::new(server.name(), 0).alias();
    let mut text = String::new();
    if let Some(key) = server.status.access.as_ref().and_then(|access| access.host_key.as_deref()) {
        known_hosts::pin(&route.places.known_hosts(), &alias, key).map_err(|error| Failure::failed(chain(&error)))?;
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
