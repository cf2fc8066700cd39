//! `devctl submit`: a command on a server of its own. Reserve, copy there, run, copy back, give back; ends with what the
//! command ended with.

mod sync;

use std::path::{Path, PathBuf};

use odc_api::duration::Duration;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::ssh::Visit;
use crate::app::App;
use crate::args::Submit;
use crate::failure::{Failure, Kind, Result};
use crate::glance::Glance;
use crate::reserve;
use crate::ssh::arrive::{Patience, arrive};
use crate::ssh::quote;
use crate::ssh::route::Wishes;
use crate::wait::{self, Interrupt};
use sync::Sync;

/// How long a job may run of which nobody said how long.
const USUAL: Duration = Duration::hours(1);

pub async fn run(app: &App, mut args: Submit) -> Result<()> {
    let directory = directory(&args)?;
    let said = args.request.time.is_some() || args.request.hours.is_some() || app.settings.create()?.lifetime.is_some();
    if !said {
        args.request.time = Some(USUAL);
    }
    let wanted = reserve::prepare(app, args.name.as_deref(), &args.request, &[]).await?;
    if args.dry_run {
        return reserve::dry_run(app, &wanted).await;
    }
    let server = reserve::create(app, &wanted).await?;
    let ended = unless_interrupted(job(app, &args, &directory, server.name())).await?;
    // Ctrl-\ while waiting means that it should go on, as with create.
    let left = matches!(&ended, Ended::ByItself(Err(failure)) if failure.kind == Kind::Interrupted);
    let kept = matches!(&ended, Ended::ByItself(Ok(done)) if done.is_missing());
    let given_back = if left || kept { Ok(()) } else { give_back(app, &args, &server).await };
    match ended {
        Ended::ByItself(Ok(done)) => {
            if kept {
                let (name, there) = (server.name(), &done.there);
                app.talk.say(format!(
                    "{name} is kept, since what the command made may be only there: devctl cp {name}:{there} . \
                     fetches it, devctl delete {name} gives the server back."
                ));
            }
            // The command's own end matters more than what became of its files.
            match (done.code, done.pulled) {
                (0, pulled) => pulled.and(given_back),
                (code, pulled) => {
                    if let Err(failure) = pulled {
                        app.talk.say(format!("warning: {failure}"));
                    }
                    Err(Failure::remote(code))
                }
            }
        }
        Ended::ByItself(Err(failure)) | Ended::Interrupted(failure) => Err(failure),
    }
}

/// A command that ran.
struct Done {
    code: u8,
    /// What became of its files.
    pulled: Result<()>,
    /// Where they are there.
    there: String,
}

impl Done {
    /// Whether what it made may be only in the server: OpenSSH ends with 255 when a connection breaks.
    fn is_missing(&self) -> bool {
        self.code == 255 || self.pulled.is_err()
    }
}

/// What became of the job.
enum Ended {
    ByItself(Result<Done>),
    Interrupted(Failure),
}

/// Everything between having a name and giving it back.
async fn job(app: &App, args: &Submit, directory: &Path, name: &str) -> Result<Done> {
    let ready = wait::until_ready(app, name, Interrupt::Leaves, Some(args.timeout.into())).await;
    ready.map_err(|failure| if args.keep { failure } else { of_a_job(failure, name) })?;
    let there = arrive(app, Some(name), 0, Patience { no_wake: true, limit: None }).await?;
    let sync = Sync::new(app, &there, directory, &args.exclude).await?;
    if !args.no_push {
        app.talk.say(format!("Copying {} to {name}", directory.display()));
        sync.push().await?;
    }
    app.talk.step("copying there");
    app.talk.say(format!("Running on {name}: {}", quote::line(&args.command)));
    let code = visit(&sync, args).code(app, &there).await?;
    app.talk.step("running");
    let mut pulled = Ok(());
    if !args.no_pull {
        app.talk.say(format!("Copying back to {}", directory.display()));
        pulled = sync.pull().await;
        app.talk.step("copying back");
    }
    Ok(Done { code, pulled, there: sync.there().to_owned() })
}

/// A server that did not come is given back, so what is said to whoever waits for one of their own is not true here.
fn of_a_job(failure: Failure, name: &str) -> Failure {
    match failure.kind {
        Kind::Timeout => failure.advise("It is given back. --timeout waits longer, devctl avail shows what is free."),
        Kind::Failed | Kind::Conflict => {
            failure.advise(format!("devctl debug {name} says more; devctl submit tries again."))
        }
        _ => failure,
    }
}

/// In a login shell, as people have it when they come in by hand.
fn visit(sync: &Sync, args: &Submit) -> Visit {
    let script = quote::line(&args.command);
    let line = format!("cd {} && exec \"${{SHELL:-/bin/sh}}\" -lc {}", quote::word(sync.there()), quote::word(&script));
    Visit { options: vec!["-T".to_owned()], wishes: Wishes::default(), line: Some(line) }
}

/// The server goes, unless it is to be kept.
async fn give_back(app: &App, args: &Submit, server: &Glance) -> Result<()> {
    let name = server.name();
    if args.keep {
        app.talk.say(format!("{name} goes on. devctl ssh {name} gets you in, devctl delete {name} ends it."));
        return Ok(());
    }
    let ended = app.backend.change(name, json!({"spec": {"desired": "Ended"}}), None, false).await;
    ended.map_err(|failure| {
        let failure = failure.while_doing(format!("{name} could not be given back"));
        failure.advise(format!("End it by hand: devctl delete {name}"))
    })?;
    app.talk.say(format!("{name} was given back"));
    Ok(())
}

/// Whoever is interrupted still gives back what they took.
async fn unless_interrupted(job: impl Future<Output = Result<Done>>) -> Result<Ended> {
    let listen = |kind| signal(kind).map_err(|error| Failure::failed(format!("signals cannot be watched: {error}")));
    let (mut interrupt, mut terminate, mut hang_up) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    Ok(tokio::select! {
        // A child that the terminal interrupted with us ends in this very moment too.
        biased;
        _ = interrupt.recv() => Ended::Interrupted(Failure::interrupted("interrupted")),
        _ = terminate.recv() => Ended::Interrupted(Failure::remote(128 + 15)),
        _ = hang_up.recv() => Ended::Interrupted(Failure::remote(128 + 1)),
        outcome = job => Ended::ByItself(outcome),
    })
}

fn directory(args: &Submit) -> Result<PathBuf> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("{} cannot be copied: {error}", args.dir.display()))
            .advise("Name a directory with --dir, or copy nothing: --no-push --no-pull.")
    };
    let directory = args.dir.canonicalize().map_err(|error| wrong(&error))?;
    if directory.is_dir() { Ok(directory) } else { Err(wrong(&"it is no directory")) }
}
