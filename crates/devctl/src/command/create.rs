//! `devctl create`.

use jiff::Timestamp;

use super::show::activity;
use crate::app::App;
use crate::args::{Create, Server, Ssh};
use crate::failure::{Failure, Result};
use crate::glance::Glance;
use crate::panel;
use crate::pick;
use crate::reserve;
use crate::view;
use crate::wait::{self, Interrupt};

pub async fn run(app: &App, mut args: Create) -> Result<()> {
    let mut name = args.positional_name.clone().or_else(|| args.name.clone());
    if asks(app, &args)? {
        let chosen = pick::create(app, &args.request, name.as_deref(), args.interactive).await?;
        args.request = chosen.request;
        name = name.or(chosen.name);
    }
    let server = reserve::prepare(app, name.as_deref(), &args.request, &args.command).await?;
    if args.dry_run {
        return reserve::dry_run(app, &server).await;
    }
    let made = reserve::create(app, &server).await?;
    app.talk.verbose(|| format!("{} was asked for.", made.name()));
    let terminal = app.talk.can_draw() && app.out.is_terminal() && !app.out.structured();
    if !args.wait && (args.no_wait || !terminal) {
        app.talk.say(format!("{} is asked for. devctl ssh {0} waits for it and goes in.", made.name()));
        return asked_for(app, &made);
    }
    let limit = args.timeout.map(Into::into);
    let ready = wait::until_ready(app, made.name(), Interrupt::Cancels, limit).await?;
    app.talk.step("waiting for the server");
    if app.out.structured() {
        return asked_for(app, &ready);
    }
    let activity = if ready.spec.access.jupyter { activity(app, &ready).await } else { None };
    app.out.print(&panel::ready(app, &ready, activity.as_ref(), Timestamp::now()))?;
    if args.no_connect || !app.talk.can_ask() || !terminal {
        return Ok(());
    }
    // It is no reason to stay outside.
    if let Err(failure) = super::config_ssh::offer(app).await {
        app.talk.say(format!("warning: {}", failure.message));
    }
    let into = Ssh { server: Server { name: Some(ready.name().to_owned()) }, ..Ssh::default() };
    super::ssh::run(app, into).await
}

/// Whether something is missing that a person should choose.
fn asks(app: &App, args: &Create) -> Result<bool> {
    if args.interactive && !app.talk.can_ask() {
        return Err(Failure::usage("nobody is there to be asked: this is no terminal")
            .advise("Leave --interactive out and say --flavor and what else you want."));
    }
    let flavor = args.request.flavor.is_some() || app.settings.create()?.flavor.is_some();
    Ok(args.interactive || (!flavor && app.talk.can_ask() && !app.talk.yes()))
}

/// Its name, or all about it, for whoever reads standard output.
fn asked_for(app: &App, server: &Glance) -> Result<()> {
    if app.out.structured() {
        return view::changed(&app.out, server);
    }
    app.out.print(&format!("{}\n", server.name()))
}
