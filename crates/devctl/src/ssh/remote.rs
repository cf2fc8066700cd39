//! Runs commands in a server over SSH and captures their output.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::context::ClusterContext;
use crate::error::{Error, Kind, Result};
use crate::model::server::ServerSummary;
use crate::ssh::connect::ReadyServer;
use crate::ssh::options::{SshOptions, SshOverrides};
use crate::ssh::{identity, openssh, process};

/// The timeout of short commands.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(15);

/// Returns the output of `odc-status -o json`; `None` if the server is not ready.
pub async fn agent_status(ctx: &ClusterContext, server: &ServerSummary) -> Result<Option<Value>> {
    if !server.is_ready() {
        return Ok(None);
    }
    let ready = ReadyServer::new(server.clone(), 0)?;
    let text = run_with_timeout(ctx, &ready, "odc-status -o json", Some(COMMAND_TIMEOUT)).await?;
    let value = serde_json::from_str(&text)
        .map_err(|error| Error::failed(format!("invalid status of server {}: {error}", server.name())))?;
    Ok(Some(value))
}

/// Runs a shell command line in a server. Returns its standard output.
pub async fn run(ctx: &ClusterContext, ready: &ReadyServer, line: &str) -> Result<String> {
    run_with_timeout(ctx, ready, line, None).await
}

/// Tries without prompts first, with unlocked keys and those of the agent. If only a passphrase is missing and there is a
/// terminal, OpenSSH prompts for it in a second attempt.
async fn run_with_timeout(
    ctx: &ClusterContext,
    ready: &ReadyServer,
    line: &str,
    timeout: Option<Duration>,
) -> Result<String> {
    let batch = output(ready, command(ctx, ready, line, AuthPrompts::Disabled)?);
    let result = match timeout {
        None => batch.await,
        Some(timeout) => {
            tokio::time::timeout(timeout, batch).await.unwrap_or_else(|_| Err(timeout_error(ready, timeout)))
        }
    };
    let error = match result {
        Err(error) if error.kind == Kind::Denied => error,
        other => return other,
    };
    match identity::find_locked(&offered_identities(ctx)?).await {
        None => Err(error),
        Some(_) if ctx.ui.is_interactive() => output(ready, command(ctx, ready, line, AuthPrompts::Passphrase)?).await,
        Some(key) => Err(locked_key_error(&key)),
    }
}

async fn output(ready: &ReadyServer, command: Command) -> Result<String> {
    let output = process::output(command).await?;
    if !output.status.success() {
        return Err(explain_stderr(ready, &String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The prompts that OpenSSH may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AuthPrompts {
    Disabled,
    Passphrase,
}

fn command(ctx: &ClusterContext, ready: &ReadyServer, line: &str, prompts: AuthPrompts) -> Result<Command> {
    let alias = ready.host.alias();
    ready.pin_host_key(&alias)?;
    let mut command = Command::new("ssh");
    command.args(ssh_options(ctx)?.flags(None)).args((prompts == AuthPrompts::Disabled).then_some("-oBatchMode=yes"));
    command.args(["-oLogLevel=ERROR", "-T", "-l", ctx.login_name(), "--", &alias, line]);
    Ok(command)
}

fn ssh_options(ctx: &ClusterContext) -> Result<SshOptions> {
    SshOptions::new(&ctx.global, &ctx.settings, ctx.target(), &SshOverrides::NO_AGENT)
}

/// Returns the private key files that OpenSSH offers.
fn offered_identities(ctx: &ClusterContext) -> Result<Vec<PathBuf>> {
    Ok(ssh_options(ctx)?.identities)
}

fn timeout_error(ready: &ReadyServer, timeout: Duration) -> Error {
    let name = ready.server.name();
    Error::timeout(format!("server {name} did not respond within {}s", timeout.as_secs()))
        .with_hint(format!("run `devctl debug {name}` for details"))
}

fn locked_key_error(key: &Path) -> Error {
    let key = key.display();
    Error::denied(format!("SSH key {key} has a passphrase and is not in an SSH agent"))
        .with_hint(format!("run `ssh-add {key}`; if no agent is running, start one with `eval \"$(ssh-agent)\"`"))
}

/// Converts the error output of OpenSSH.
pub fn explain_stderr(ready: &ReadyServer, stderr: &str) -> Error {
    let name = ready.server.name();
    if stderr.contains("Permission denied") {
        return Error::denied(format!("permission denied: server {name} accepts none of your SSH keys"))
            .with_hint(format!("add one with `devctl edit {name} --add-key ~/.ssh/id_ed25519.pub` (ed25519 only)"));
    }
    let last_line = stderr.trim().lines().last().unwrap_or("no error output");
    Error::failed(format!("command in server {name} failed: {last_line}"))
        .with_hint(format!("run `devctl debug {name}` for details"))
}

/// Diagnoses exit code 255 of OpenSSH, which means that there was no connection: an outdated OpenSSH or rejected keys. Its
/// error output went to the terminal, so this connects once more.
pub async fn diagnose(ctx: &ClusterContext, ready: &ReadyServer) -> Option<Error> {
    if let Ok(Some(error)) = openssh::version_error().await {
        return Some(error);
    }
    let output = process::output(command(ctx, ready, "exit 0", AuthPrompts::Disabled).ok()?);
    let output = tokio::time::timeout(COMMAND_TIMEOUT, output).await.ok()?.ok()?;
    let error = explain_stderr(ready, &String::from_utf8_lossy(&output.stderr));
    if error.kind != Kind::Denied {
        return None;
    }
    let locked = identity::find_locked(&offered_identities(ctx).ok()?).await;
    Some(locked.map_or(error, |key| locked_key_error(&key)))
}
