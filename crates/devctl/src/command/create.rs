//! `devctl create`.

use jiff::Timestamp;
use odc_api::queue::DryRunStatus;
use odc_api::v1alpha1::{Admission, DevServer, DevServerStatus, Eta, Phase};
use odc_api::word::Word;

use super::show::activity;
use crate::app::App;
use crate::args::{Create, Server, Ssh};
use crate::failure::{Failure, Result};
use crate::glance::Glance;
use crate::output::time::clock;
use crate::panel;
use crate::pick;
use crate::prospect::{answer, question, told};
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
        return dry_run(app, server).await;
    }
    let made = reserve::create(app, &server).await?;
    app.talk.verbose(|| format!("{} was asked for.", made.name()));
    let terminal = app.talk.can_draw() && app.out.is_terminal() && !app.out.structured();
    // Nobody looks at a terminal until tomorrow at nine, unless they say so.
    if let Some(at) = made.booked(Timestamp::now()).filter(|_| !args.wait) {
        let (name, at) = (made.name(), clock(at, Timestamp::now()));
        app.talk.say(format!("{name} is asked for, to start {at}. devctl queue says whether that is promised."));
        return asked_for(app, &made);
    }
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

/// What would be sent, after the cluster has looked at it, and when the queue would let it start.
async fn dry_run(app: &App, mut server: DevServer) -> Result<()> {
    reserve::would_be_taken(app, &server).await?;
    if let Some(status) = told(app, app.backend.dry_run(question(&server.spec))).await? {
        app.talk.say(answer(&status, Timestamp::now()));
        server.status = Some(expected(status));
    }
    reserve::print(app, &server)
}

/// The status it would have after the queue's first look.
fn expected(answer: DryRunStatus) -> DevServerStatus {
    let DryRunStatus { start, position, reason, message } = answer;
    let eta = start.p50.zip(start.p90).map(|(p50, p90)| Eta { p50, p90 });
    DevServerStatus {
        phase: Some(if start.now { Phase::Starting } else { Phase::Queued }),
        admission: (!start.now).then(|| Admission {
            position,
            eta,
            reason: reason.as_deref().map(Word::read),
            message: message.map(Into::into),
            ..Admission::default()
        }),
        ..DevServerStatus::default()
    }
}

/// Its name, or all about it, for whoever reads standard output.
fn asked_for(app: &App, server: &Glance) -> Result<()> {
    if app.out.structured() {
        return view::changed(&app.out, server);
    }
    app.out.print(&format!("{}\n", server.name()))
}
