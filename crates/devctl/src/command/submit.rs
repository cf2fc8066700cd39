//! `devctl submit`: creates a server, copies a directory there, runs a command, copies the results back and deletes the
//! server. Exits with the status of the command.

mod sync;

use std::path::{Path, PathBuf};

use clap::Args;
use odc_api::duration::Duration;
use serde_json::json;

use super::ssh::SshInvocation;
use crate::cli::shared::DryRunArgs;
use crate::context::ClusterContext;
use crate::error::{Error, Kind, Result};
use crate::model::server::ServerSummary;
use crate::request;
use crate::request::args::RequestArgs;
use crate::request::home::Purpose;
use crate::shell;
use crate::signals::{Signal, Signals};
use crate::ssh::connect::{WaitOptions, resolve_ready};
use crate::ssh::options::SshOverrides;
use crate::wait::{self, OnInterrupt};
use sync::Sync;

const DEFAULT_LIFETIME: Duration = Duration::hours(1);

#[derive(Args, Debug)]
pub struct SubmitArgs {
    #[command(flatten)]
    pub request: RequestArgs,
    /// Server name [default: two generated words]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Directory to copy to the server, run the command in and copy back
    #[arg(long, alias = "runtime", value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Do not copy the directory to the server
    #[arg(long)]
    pub no_push: bool,
    /// Do not copy the results back
    #[arg(long)]
    pub no_pull: bool,
    /// Files to exclude in both directions, as an rsync pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Keep the server after the command has finished
    #[arg(long, alias = "keep-alive")]
    pub keep: bool,
    /// Time to wait for the server
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
    /// Command, run by a login shell on the first node
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub command: Vec<String>,
}

pub async fn run(ctx: &ClusterContext, mut args: SubmitArgs) -> Result<()> {
    let directory = directory(&args)?;
    if args.request.requested_lifetime().is_none() && ctx.settings.create()?.lifetime.is_none() {
        args.request.lifetime = Some(DEFAULT_LIFETIME);
    }
    let keys = request::public_keys(ctx, &args.request).await?;
    let planned = request::build(ctx, args.name.as_deref(), &args.request, Purpose::Job, keys, &[]).await?;
    if args.dry_run.dry_run {
        return request::dry_run(ctx, &planned).await;
    }
    let server = request::create(ctx, &planned).await?;
    let outcome = unless_interrupted(job(ctx, &args, &directory, server.name())).await?;
    // Ctrl-\ while waiting keeps the server, as with `create`.
    let detached = matches!(&outcome, Outcome::Finished(Err(error)) if error.kind == Kind::Interrupted);
    let incomplete = matches!(&outcome, Outcome::Finished(Ok(job)) if job.is_incomplete());
    let deleted = if detached || incomplete { Ok(()) } else { delete_server(ctx, &args, &server).await };
    match outcome {
        Outcome::Finished(Ok(job)) => {
            if incomplete {
                let (name, remote_dir) = (server.name(), &job.remote_dir);
                ctx.ui.warn(format!(
                    "keeping server {name}: its results may not have been copied. Fetch them with \
                     `devctl cp {name}:{remote_dir} .`, then run `devctl delete {name}`."
                ));
            }
            // The status of the command takes precedence over errors of copying.
            match (job.exit_code, job.pulled) {
                (0, pulled) => pulled.and(deleted),
                (code, pulled) => {
                    if let Err(error) = pulled {
                        ctx.ui.warn(error.to_string());
                    }
                    Err(Error::remote(code))
                }
            }
        }
        Outcome::Finished(Err(error)) | Outcome::Interrupted(error) => Err(error),
    }
}

/// A job whose command ran.
struct FinishedJob {
    exit_code: u8,
    /// The result of copying back.
    pulled: Result<()>,
    remote_dir: String,
}

impl FinishedJob {
    /// Reports whether results may exist only in the server. OpenSSH exits with 255 after a lost connection.
    fn is_incomplete(&self) -> bool {
        self.exit_code == 255 || self.pulled.is_err()
    }
}

enum Outcome {
    Finished(Result<FinishedJob>),
    Interrupted(Error),
}

/// Runs the job on a server that was created.
async fn job(ctx: &ClusterContext, args: &SubmitArgs, directory: &Path, name: &str) -> Result<FinishedJob> {
    let ready = wait::until_ready(ctx, name, OnInterrupt::Detach, Some(args.timeout.into())).await;
    ready.map_err(|error| if args.keep { error } else { job_error(error, name) })?;
    let ready = resolve_ready(ctx, Some(name), 0, WaitOptions { no_wake: true, timeout: None }).await?;
    let sync = Sync::new(ctx, &ready, directory, &args.exclude).await?;
    if !args.no_push {
        ctx.ui.info(format!("Copying {} to {name}", directory.display()));
        sync.push().await?;
    }
    ctx.ui.trace_step("copying to the server");
    ctx.ui.info(format!("Running on {name}: {}", shell::command_line(&args.command)));
    let exit_code = ssh_invocation(&sync, args).exit_code(ctx, &ready).await?;
    ctx.ui.trace_step("running the command");
    let mut pulled = Ok(());
    if !args.no_pull {
        ctx.ui.info(format!("Copying results to {}", directory.display()));
        pulled = sync.pull().await;
        ctx.ui.trace_step("copying from the server");
    }
    Ok(FinishedJob { exit_code, pulled, remote_dir: sync.remote().to_owned() })
}

/// Adapts the hint: the server of a failed job is deleted.
fn job_error(error: Error, name: &str) -> Error {
    match error.kind {
        Kind::Timeout => error.with_hint(
            "the server is being deleted; wait longer with `--timeout`, or run `devctl avail` to see what is free",
        ),
        Kind::Failed | Kind::Conflict => {
            error.with_hint(format!("run `devctl debug {name}` for details, or `devctl submit` to try again"))
        }
        _ => error,
    }
}

/// Runs the command in a login shell, so that it has the same environment as in a session.
fn ssh_invocation(sync: &Sync, args: &SubmitArgs) -> SshInvocation {
    let script = shell::command_line(&args.command);
    let line =
        format!("cd {} && exec \"${{SHELL:-/bin/sh}}\" -lc {}", shell::quote(sync.remote()), shell::quote(&script));
    SshInvocation { options: vec!["-T".to_owned()], overrides: SshOverrides::default(), command_line: Some(line) }
}

/// Deletes the server unless `--keep` is given.
async fn delete_server(ctx: &ClusterContext, args: &SubmitArgs, server: &ServerSummary) -> Result<()> {
    let name = server.name();
    if args.keep {
        ctx.ui.info(format!(
            "Kept server {name}. Connect with `devctl ssh {name}`, delete it with `devctl delete {name}`."
        ));
        return Ok(());
    }
    let stopped = ctx.client.patch(name, json!({"spec": {"desired": "Ended"}}), None, false).await;
    stopped.map_err(|error| {
        let error = error.context(format!("could not delete server {name}"));
        error.with_hint(format!("run `devctl delete {name}`"))
    })?;
    ctx.ui.info(format!("Stopping server {name}"));
    Ok(())
}

/// Stops the job at a signal, so that the server can be deleted.
async fn unless_interrupted(job: impl Future<Output = Result<FinishedJob>>) -> Result<Outcome> {
    let mut signals = Signals::new()?;
    let interrupted = async {
        loop {
            match signals.recv().await {
                Signal::Interrupt => return Error::interrupted("interrupted"),
                signal @ (Signal::Terminate | Signal::Hangup) => return Error::remote(128 + signal.number()),
                // Handled while waiting for the server.
                Signal::Quit => {}
            }
        }
    };
    Ok(tokio::select! {
        // The terminal interrupts a child process at the same time, which ends the job as well.
        biased;
        error = interrupted => Outcome::Interrupted(error),
        result = job => Outcome::Finished(result),
    })
}

fn directory(args: &SubmitArgs) -> Result<PathBuf> {
    let invalid = |error: &dyn std::fmt::Display| {
        Error::usage(format!("cannot copy {}: {error}", args.dir.display()))
            .with_hint("choose a directory with `--dir`, or copy nothing with `--no-push --no-pull`")
    };
    let directory = args.dir.canonicalize().map_err(|error| invalid(&error))?;
    if directory.is_dir() { Ok(directory) } else { Err(invalid(&"not a directory")) }
}
