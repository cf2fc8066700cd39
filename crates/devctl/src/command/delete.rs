//! `devctl delete`: ends servers in order; they stay readable for a day, or are forgotten at once with `--purge`.

use serde_json::json;

use crate::app::App;
use crate::args::Delete;
use crate::failure::{Failure, Result};
use crate::find;
use crate::glance::Glance;
use crate::wait;

pub async fn run(app: &App, args: Delete) -> Result<()> {
    let servers = chosen(app, &args).await?;
    if servers.is_empty() {
        app.talk.say("There is nothing to end.");
        return Ok(());
    }
    let force = args.force || args.dry_run;
    if !force && !confirmed(app, &servers, &args)? {
        return Err(Failure::interrupted("nothing was ended"));
    }
    let mut failed = None;
    for server in &servers {
        // One that cannot be ended does not keep the others.
        match end(app, server, &args).await {
            Ok(word) => {
                if app.out.structured() {
                    app.out.print(&format!("{}\n", server.name()))?;
                }
                app.talk.say(word);
            }
            Err(failure) if servers.len() == 1 => return Err(failure),
            Err(failure) => {
                app.talk.say(format!("{}: {}", server.name(), failure.message));
                failed = Some(failure);
            }
        }
    }
    failed.map_or(Ok(()), |last| {
        Err(Failure::new(last.kind, "not all could be ended").advise("devctl list --all shows how they are."))
    })
}

async fn chosen(app: &App, args: &Delete) -> Result<Vec<Glance>> {
    if args.all {
        let all = find::all(app).await?;
        return Ok(all.into_iter().filter(|server| !server.ended() && !server.deleting()).collect());
    }
    if args.names.is_empty() {
        return Ok(vec![find::only(app, |server| !server.ended(), "have not ended").await?]);
    }
    let mut servers: Vec<Glance> = Vec::new();
    for name in &args.names {
        let server = find::named(app, name).await?;
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

async fn end(app: &App, server: &Glance, args: &Delete) -> Result<String> {
    let name = server.name();
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    if server.ended() || args.purge {
        app.backend.delete(name, uid, args.dry_run).await?;
        app.talk.step("deleting the server");
        if args.wait && !args.dry_run {
            wait::until_gone(app, server, args.timeout.into()).await?;
        }
        return Ok(if args.dry_run { format!("{name} would be deleted.") } else { format!("{name} is deleted.") });
    }
    app.backend.change(name, json!({"spec": {"desired": "Ended"}}), None, args.dry_run).await?;
    app.talk.step("asking to end");
    if args.dry_run {
        return Ok(format!("{name} would be ended."));
    }
    if args.wait {
        wait::until_ended(app, name, args.timeout.into()).await?;
        return Ok(format!("{name} has ended."));
    }
    Ok(format!("{name} ends: what it runs is stopped in order."))
}
