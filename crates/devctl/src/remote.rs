//! Asking a server itself: a command run there over SSH, and what it printed.

use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::app::App;
use crate::failure::{Failure, Result};
use crate::glance::Glance;
use crate::ssh::arrive::Arrived;
use crate::ssh::client;
use crate::ssh::route::{Wishes, route};

/// A question is not worth more time than this.
const LIMIT: Duration = Duration::from_secs(15);

/// What `odc-status -o json` says in a running server; nothing of one that does not run.
pub async fn status(app: &App, server: &Glance) -> Result<Option<Value>> {
    if !server.ready() {
        return Ok(None);
    }
    let name = server.name();
    let there = Arrived::at(server.clone(), 0)?;
    let asked = tokio::time::timeout(LIMIT, say(app, &there, "odc-status -o json")).await;
    let text = asked.map_err(|_| {
        Failure::timeout(format!("{name} did not answer within {} s", LIMIT.as_secs()))
            .advise(format!("devctl debug {name} says more."))
    })??;
    let value = serde_json::from_str(&text)
        .map_err(|error| Failure::failed(format!("{name} answered something else than its status: {error}")))?;
    Ok(Some(value))
}

/// Runs a line of shell in a server; gives what it printed.
pub async fn say(app: &App, there: &Arrived, line: &str) -> Result<String> {
    let output = client::output(command(app, there, line)?).await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(explain(there, &errors));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// OpenSSH, asking nobody anything.
fn command(app: &App, there: &Arrived, line: &str) -> Result<Command> {
    let alias = there.host.alias();
    there.pin(&alias)?;
    let route = route(&app.global, &app.settings, app.place(), &Wishes { forward_agent: Some(false), identity: None })?;
    let mut command = Command::new("ssh");
    command.args(route.options(None)).args(["-oBatchMode=yes", "-oLogLevel=ERROR", "-T", "-l", app.login()]);
    command.args(["--", &alias, line]);
    Ok(command)
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

/// After OpenSSH ended with its own code for "no connection": whether it was the keys. Its words went to the person, so
/// it is asked once more.
pub async fn why_not(app: &App, there: &Arrived) -> Option<Failure> {
    let output = client::output(command(app, there, "exit 0").ok()?);
    let output = tokio::time::timeout(LIMIT, output).await.ok()?.ok()?;
    let failure = explain(there, &String::from_utf8_lossy(&output.stderr));
    (failure.kind == crate::failure::Kind::Denied).then_some(failure)
}
