//! `devctl delete`: ends servers in order; they stay readable for a day, or are forgotten at once with `--purge`.

use serde_json::json;

use crate::app::App;
use crate::args::{Delete, Format};
use crate::failure::{Failure, Result, chain};
use crate::find;
use crate::glance::Glance;
use crate::ssh;
use crate::view::Server;
use crate::wait;

pub async fn run(app: &App, args: Delete) -> Result<()> {
    let servers = chosen(app, &args).await?;
    if servers.is_empty() {
        app.talk.say("There is nothing to end.");
        return print(app, &[]);
    }
    if !unasked(app, &args) && !confirmed(app, &servers, &args)? {
        return Err(Failure::interrupted("nothing was ended"));
    }
    let (mut ended, mut failed) = (Vec::new(), None);
    for server in &servers {
        // One that cannot be ended does not keep the others.
        match end(app, server, &args).await {
            Ok((after, word)) => {
                app.talk.say(word);
                ended.push(after);
            }
            Err(failure) if servers.len() == 1 => return Err(failure),
            Err(failure) => {
                app.talk.say(format!("{}: {}", server.name(), failure.message));
                failed = Some(failure);
            }
        }
    }
    print(app, &ended)?;
    failed.map_or(Ok(()), |last| {
        Err(Failure::new(last.kind, "not all could be ended").advise("devctl list --all shows how they are."))
    })
}

/// All of them as one value, since there may be several.
fn print(app: &App, ended: &[Glance]) -> Result<()> {
    let views = || ended.iter().map(Server::from).collect::<Vec<_>>();
    match app.out.format {
        Format::Json => app.out.json(&views()),
        Format::Yaml => app.out.yaml(&views()),
        Format::Name => app.out.lines(ended.iter().map(|server| server.name().to_owned()).collect()),
        Format::Table | Format::Wide => Ok(()),
    }
}

/// Whether it is meant without a question.
fn unasked(app: &App, args: &Delete) -> bool {
    args.force || args.trial.dry_run || app.talk.yes()
}

async fn chosen(app: &App, args: &Delete) -> Result<Vec<Glance>> {
    let alive = |server: &Glance| !server.ended() && !server.deleting();
    if args.all {
        return Ok(find::all(app).await?.into_iter().filter(alive).collect());
    }
    if args.names.is_empty() {
        return find::one_or_all(app, alive, "have not ended").await;
    }
    let mut servers: Vec<Glance> = Vec::new();
    for name in &args.names {
        // Nobody would see which one a beginning was taken for.
        let unseen = unasked(app, args) || !app.talk.can_ask();
        let server = if unseen { find::spelled_out(app, name).await? } else { find::named(app, name).await? };
        if servers.iter().all(|known| known.name() != server.name()) {
            servers.push(server);
        }
    }
    Ok(servers)
}

/// One that was named by its whole name is asked about only on a terminal; several always are.
fn confirmed(app: &App, servers: &[Glance], args: &Delete) -> Result<bool> {
    let exact = servers.iter().all(|server| args.names.iter().any(|name| name == server.name()));
    let one = servers.len() == 1 && exact;
    if one && !app.talk.can_ask() {
        return Ok(true);
    }
    let names: Vec<&str> = servers.iter().map(Glance::name).collect();
    let lost: Vec<&str> = servers.iter().filter(|server| loses(server)).map(Glance::name).collect();
    let homes = match lost.len() {
        0 => String::new(),
        _ if servers.len() == 1 => " Its home is gone with it.".to_owned(),
        count => format!(" The homes of {count} of them are gone with them: {}.", find::listed(&lost)),
    };
    app.talk.confirm(&format!("End {}?{homes}", find::listed(&names)), "--yes")
}

fn loses(server: &Glance) -> bool {
    server.ephemeral() && !server.ended()
}

/// How it is then, and what to say about it.
async fn end(app: &App, server: &Glance, args: &Delete) -> Result<(Glance, String)> {
    let name = server.name();
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    if server.ended() || args.purge {
        app.backend.delete(name, uid, args.trial.dry_run).await?;
        app.talk.step("deleting the server");
        if args.trial.dry_run {
            return Ok((server.clone(), format!("{name} would be deleted.")));
        }
        forget(app, server);
        if args.wait {
            wait::until_gone(app, server, args.timeout.into()).await?;
        }
        let mut gone = server.clone();
        gone.status.phase = Some("Deleted".to_owned());
        return Ok((gone, format!("{name} is deleted.")));
    }
    let after = app.backend.change(name, json!({"spec": {"desired": "Ended"}}), None, args.trial.dry_run).await?;
    app.talk.step("asking to end");
    if args.trial.dry_run {
        return Ok((after, format!("{name} would be ended.")));
    }
    forget(app, server);
    if args.wait {
        let ended = wait::until_ended(app, name, args.timeout.into()).await?;
        return Ok((ended, format!("{name} has ended.")));
    }
    Ok((after, format!("{name} ends: what it runs is stopped in order.")))
}

/// Its host key is nobody's any more.
fn forget(app: &App, server: &Glance) {
    if let Err(error) = ssh::forget(server) {
        app.talk.say(format!("warning: {}", chain(&error)));
    }
}
