//! Asking a server itself: a command run there over SSH, and what it printed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::app::App;
use crate::failure::{Failure, Kind, Result};
use crate::glance::Glance;
use crate::ssh::arrive::Arrived;
use crate::ssh::client::{self, Route};
use crate::ssh::route::{Wishes, route};
use crate::ssh::{identity, openssh};

/// A question is not worth more time than this.
const LIMIT: Duration = Duration::from_secs(15);

/// What `odc-status -o json` says in a running server; nothing of one that does not run.
pub async fn status(app: &App, server: &Glance) -> Result<Option<Value>> {
    if !server.ready() {
        return Ok(None);
    }
    let name = server.name();
    let there = Arrived::at(server.clone(), 0)?;
    let text = ask(app, &there, "odc-status -o json", Some(LIMIT)).await?;
    let value = serde_json::from_str(&text)
        .map_err(|error| Failure::failed(format!("{name} answered something else than its status: {error}")))?;
    Ok(Some(value))
}

/// Runs a line of shell in a server; gives what it printed.
pub async fn say(app: &App, there: &Arrived, line: &str) -> Result<String> {
    ask(app, there, line, None).await
}

/// First without disturbing anybody: with the keys that are open, those of a key agent among them. If only a passphrase
/// is missing, OpenSSH asks for it on the terminal, where there is one.
async fn ask(app: &App, there: &Arrived, line: &str, limit: Option<Duration>) -> Result<String> {
    let quiet = heard(there, command(app, there, line, Questions::None)?);
    let answer = match limit {
        None => quiet.await,
        Some(limit) => tokio::time::timeout(limit, quiet).await.unwrap_or_else(|_| Err(silent(there, limit))),
    };
    let failure = match answer {
        Err(failure) if failure.kind == Kind::Denied => failure,
        other => return other,
    };
    match identity::locked(&offered(app)?).await {
        None => Err(failure),
        Some(_) if app.talk.can_ask() => heard(there, command(app, there, line, Questions::Passphrase)?).await,
        Some(key) => Err(is_locked(&key)),
    }
}

async fn heard(there: &Arrived, command: Command) -> Result<String> {
    let output = client::output(command).await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(explain(there, &errors));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What OpenSSH may ask a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Questions {
    None,
    Passphrase,
}

fn command(app: &App, there: &Arrived, line: &str, questions: Questions) -> Result<Command> {
    let alias = there.host.alias();
    there.pin(&alias)?;
    let mut command = Command::new("ssh");
    command.args(way(app)?.options(None)).args((questions == Questions::None).then_some("-oBatchMode=yes"));
    command.args(["-oLogLevel=ERROR", "-T", "-l", app.login(), "--", &alias, line]);
    Ok(command)
}

fn way(app: &App) -> Result<Route> {
    route(&app.global, &app.settings, app.place(), &Wishes { forward_agent: Some(false), identity: None })
}

/// The keys in files that OpenSSH offers.
fn offered(app: &App) -> Result<Vec<PathBuf>> {
    Ok(way(app)?.identities)
}

fn silent(there: &Arrived, limit: Duration) -> Failure {
    let name = there.server.name();
    Failure::timeout(format!("{name} did not answer within {} s", limit.as_secs()))
        .advise(format!("devctl debug {name} says more."))
}

/// A key that would perhaps be let in, but nobody can use it here.
fn is_locked(key: &Path) -> Failure {
    let key = key.display();
    Failure::denied(format!("your SSH key {key} has a passphrase, and no key agent holds it"))
        .advise(format!("Unlock it: ssh-add {key}, after eval \"$(ssh-agent)\" if no agent runs."))
}

/// What OpenSSH's words mean for somebody who does not speak its language.
pub fn explain(there: &Arrived, errors: &str) -> Failure {
    let name = there.server.name();
    if errors.contains("Permission denied") {
        return Failure::denied(format!("{name} knows none of your SSH keys")).advise(format!(
            "Let one in: devctl edit {name} --add-key ~/.ssh/id_ed25519.pub. It must be of the kind ed25519, and its \
             private part here or in your key agent."
        ));
    }
    let last = errors.trim().lines().last().unwrap_or("it ended without a word");
    Failure::failed(format!("the command in {name} failed: {last}")).advise(format!("devctl debug {name} says more."))
}

/// After OpenSSH ended with its own code for "no connection": whether it was the keys, or OpenSSH itself. Its words went
/// to the person, so it is asked once more.
pub async fn why_not(app: &App, there: &Arrived) -> Option<Failure> {
    if let Ok(Some(failure)) = openssh::too_old().await {
        return Some(failure);
    }
    let output = client::output(command(app, there, "exit 0", Questions::None).ok()?);
    let output = tokio::time::timeout(LIMIT, output).await.ok()?.ok()?;
    let failure = explain(there, &String::from_utf8_lossy(&output.stderr));
    if failure.kind != Kind::Denied {
        return None;
    }
    let locked = identity::locked(&offered(app).ok()?).await;
    Some(locked.map_or(failure, |key| is_locked(&key)))
}
