//! `devctl create`.

use clap::Args;
use odc_api::open_enum::OpenEnum;
use odc_api::queue::DryRunStatus;
use odc_api::v1alpha1::{Admission, DevServerStatus, Eta, Phase};

use super::show::print_ready;
use super::ssh::SshArgs;
use crate::cli::shared::{DryRunArgs, ServerArg, TimeoutArgs};
use crate::clock;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::queue::{dry_run_spec, fetch_or_warn, format_dry_run};
use crate::model::server::ServerSummary;
use crate::output::duration::format_clock;
use crate::output::json;
use crate::prompt;
use crate::request::args::RequestArgs;
use crate::request::home::Purpose;
use crate::request::{self, PlannedServer};
use crate::wait::{self, OnInterrupt};

#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Server name [default: two generated words]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Server name
    #[arg(long = "name", value_name = "NAME", conflicts_with = "name", hide = true)]
    pub name_flag: Option<String>,
    #[command(flatten)]
    pub request: RequestArgs,
    /// Prompt for everything that flags do not set
    #[arg(short, long, conflicts_with = "no_input")]
    pub interactive: bool,
    /// Do not open a shell when the server is ready
    #[arg(long)]
    pub no_connect: bool,
    /// Wait until the server is ready; the default on a terminal
    #[arg(long, overrides_with = "no_wait")]
    pub wait: bool,
    /// Return immediately after creating the server
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub timeout: TimeoutArgs,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
    /// Command to run when the server starts
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

pub async fn run(ctx: &ClusterContext, mut args: CreateArgs) -> Result<()> {
    let mut name = args.name.clone().or_else(|| args.name_flag.clone());
    let prompts = needs_prompts(ctx, &args)?;
    // Without a key the other answers would be useless, so this question comes first.
    let keys = request::public_keys(ctx, &args.request).await?;
    if prompts {
        let answers = prompt::create(ctx, &args.request, name.as_deref(), args.interactive).await?;
        args.request = answers.request;
        name = name.or(answers.name);
    }
    let planned =
        request::build(ctx, name.as_deref(), &args.request, Purpose::Development, keys, &args.command).await?;
    if args.dry_run.dry_run {
        return dry_run(ctx, planned).await;
    }
    let created = request::create(ctx, &planned).await?;
    let (name, now) = (created.name(), clock::now());
    ctx.ui.verbose(|| format!("created server {name}"));
    let terminal = ctx.ui.can_redraw() && ctx.out.is_terminal() && !ctx.out.structured();
    // Do not wait for a booking unless asked to.
    if let Some(start) = created.booked_start(now).filter(|_| !args.wait) {
        ctx.ui.info(format!(
            "Created server {name}, booked for {}. Run `devctl queue` to see whether the start time is confirmed.",
            format_clock(start, now)
        ));
        return print_created(ctx, &created);
    }
    if !args.wait && (args.no_wait || !terminal) {
        ctx.ui.info(format!("Created server {name} (pending). Run `devctl ssh {name}` to wait for it and connect."));
        return print_created(ctx, &created);
    }
    let timeout = args.timeout.timeout.map(Into::into);
    let ready = wait::until_ready(ctx, name, OnInterrupt::Delete, timeout).await?;
    ctx.ui.trace_step("waiting for the server");
    if ctx.out.structured() {
        return print_created(ctx, &ready);
    }
    print_ready(ctx, &ready).await?;
    if args.no_connect || !ctx.ui.is_interactive() || !terminal {
        return Ok(());
    }
    // Connect even if this fails.
    if let Err(error) = super::config_ssh::offer(ctx).await {
        ctx.ui.warn(&error.message);
    }
    let ssh = SshArgs { server: ServerArg { name: Some(ready.name().to_owned()) }, ..SshArgs::default() };
    super::ssh::run(ctx, ssh).await
}

/// Reports whether to prompt: with `--interactive`, or on a terminal if no flavor is set.
fn needs_prompts(ctx: &ClusterContext, args: &CreateArgs) -> Result<bool> {
    if args.interactive && !ctx.ui.is_interactive() {
        return Err(Error::usage("--interactive requires a terminal")
            .with_hint("omit `--interactive` and pass `--flavor` and other flags"));
    }
    let has_flavor = args.request.flavor.is_some() || ctx.settings.create()?.flavor.is_some();
    Ok(args.interactive || (!has_flavor && ctx.ui.is_interactive() && !ctx.ui.yes()))
}

/// Prints the object that would be created, with the status that the queue expects.
async fn dry_run(ctx: &ClusterContext, planned: PlannedServer) -> Result<()> {
    request::validate(ctx, &planned).await?;
    let PlannedServer { mut server, home_claim, .. } = planned;
    let mut spec = dry_run_spec(&server.spec);
    spec.home_claim = spec.home_claim.or(home_claim);
    if let Some(status) = fetch_or_warn(ctx, ctx.client.dry_run(spec)).await? {
        ctx.ui.info(format_dry_run(&status, clock::now()));
        server.status = Some(expected_status(status));
    }
    request::print(ctx, &server)
}

/// Returns the status after the first scheduling cycle.
fn expected_status(status: DryRunStatus) -> DevServerStatus {
    let DryRunStatus { start, position, reason, message } = status;
    let eta = start.p50.zip(start.p90).map(|(p50, p90)| Eta { p50, p90 });
    DevServerStatus {
        phase: Some(if start.now { Phase::Starting } else { Phase::Queued }),
        admission: (!start.now).then(|| Admission {
            position,
            eta,
            reason: reason.as_deref().map(OpenEnum::parse),
            message: message.map(Into::into),
            ..Admission::default()
        }),
        ..DevServerStatus::default()
    }
}

/// Prints the server, or only its name without a structured format.
fn print_created(ctx: &ClusterContext, server: &ServerSummary) -> Result<()> {
    if ctx.out.structured() {
        return json::print_server(&ctx.out, server);
    }
    ctx.out.print(&format!("{}\n", server.name()))
}
