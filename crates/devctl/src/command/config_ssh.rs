//! `devctl config-ssh`: configures OpenSSH to reach servers as NAME.odc.

use std::path::PathBuf;

use clap::Args;

use crate::config::Settings;
use crate::context::{ClusterContext, LocalContext};
use crate::error::{Error, Kind, Result, format_chain};
use crate::output::Output;
use crate::output::style::{GREEN, RED, paint};
use crate::resolve;
use crate::ssh::config_file::{self, Change};
use crate::ssh::host::Host;
use crate::ssh::options::{SshOptions, SshOverrides};
use crate::ssh::{openssh, ssh_paths};
use crate::ui::{Confirm, PASS_YES, Ui};

#[derive(Args, Debug, Default)]
pub struct ConfigSshArgs {
    /// Show the changes without making them
    #[arg(long)]
    pub dry_run: bool,
    /// Remove the configuration
    #[arg(long, conflicts_with = "print")]
    pub remove: bool,
    /// Print the ssh_config of one server, for use on another machine
    #[arg(long, alias = "get", value_name = "NAME", conflicts_with = "dry_run",
        add = clap_complete::ArgValueCompleter::new(crate::completion::server))]
    pub print: Option<String>,
    /// ssh_config to change [default: ~/.ssh/config]
    #[arg(long, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
}

pub async fn run(ctx: LocalContext, args: ConfigSshArgs) -> Result<()> {
    let paths = ssh_paths()?;
    let paths = match &args.ssh_config {
        Some(config) => paths.with_user_config(config),
        None => paths,
    };
    let file = paths.user_config().display().to_string();
    if args.remove {
        let changes = config_file::remove(&paths).map_err(|error| file_error(&error))?;
        let (done, unchanged) =
            (format!("Removed the devctl section from {file}"), format!("{file} has no devctl section"));
        apply_changes(&ctx.out, &ctx.ui, &changes, args.dry_run, &done, &unchanged)?;
        return if args.dry_run { Ok(()) } else { save_answer(&ctx.settings, false) };
    }
    openssh::check().await?;
    let ctx = ctx.connect().await?;
    check_context(&ctx)?;
    let options = SshOptions { paths: paths.clone(), ..default_options(&ctx)? };
    if let Some(name) = &args.print {
        return print(&ctx, &options, name).await;
    }
    let changes = config_file::install(&paths, &options).map_err(|error| file_error(&error))?;
    apply_changes(&ctx.out, &ctx.ui, &changes, args.dry_run, &installed(&file), &format!("{file} is up to date"))?;
    // Override an earlier "no".
    if ctx.settings.file.ssh.include == Some(false) && !args.dry_run {
        save_answer(&ctx.settings, true)?;
    }
    Ok(())
}

/// Fails if variables select the HTTP API: programs that run ssh later do not have them.
fn check_context(ctx: &ClusterContext) -> Result<()> {
    if ctx.settings.select_context(&ctx.global).api.is_none() || ctx.target().is_named {
        return Ok(());
    }
    Err(Error::usage("DEVCTL_API_URL is not part of a context, which ssh needs").with_hint(
        "create a context with `devctl config set-context NAME --api-url URL --api-key-file FILE`, then select it with \
         `--context NAME`",
    ))
}

fn installed(file: &str) -> String {
    format!("Updated {file}. Connect with `ssh NAME.odc`; new servers need no further setup.")
}

fn default_options(ctx: &ClusterContext) -> Result<SshOptions> {
    SshOptions::new(&ctx.global, &ctx.settings, ctx.target(), &SshOverrides::default())
}

/// Offers to configure OpenSSH after the first `create`. Asks once and stores the answer.
pub async fn offer(ctx: &ClusterContext) -> Result<()> {
    let paths = ssh_paths()?;
    let answered = ctx.settings.file.ssh.include.is_some() || paths.config().exists();
    if answered
        || check_context(ctx).is_err()
        || ctx.ui.yes()
        || !ctx.ui.is_interactive()
        || openssh::check().await.is_err()
    {
        return Ok(());
    }
    let confirm = Confirm {
        question: "Configure ssh, scp, rsync, git and editors to reach your servers as NAME.odc? \
                   This adds one line to ~/.ssh/config.",
        action: "change ~/.ssh/config",
        hint: PASS_YES,
        default: true,
    };
    let accepted = match ctx.ui.confirm(&confirm) {
        // Ask again next time.
        Err(error) if error.kind == Kind::Interrupted => return Ok(()),
        answer => answer?,
    };
    if accepted {
        for change in config_file::install(&paths, &default_options(ctx)?).map_err(|error| file_error(&error))? {
            if change.is_needed() {
                config_file::apply(&change).map_err(|error| file_error(&error))?;
            }
        }
        ctx.ui.info(installed(&paths.user_config().display().to_string()));
    }
    save_answer(&ctx.settings, accepted)
}

fn save_answer(settings: &Settings, include: bool) -> Result<()> {
    if settings.file.ssh.include == Some(include) {
        return Ok(());
    }
    let mut file = settings.file.clone();
    file.ssh.include = Some(include);
    file.write(&settings.path)
}

/// Prints the changes as a diff, asks for confirmation on a terminal, and writes them.
fn apply_changes(out: &Output, ui: &Ui, changes: &[Change], dry_run: bool, done: &str, unchanged: &str) -> Result<()> {
    let needed: Vec<&Change> = changes.iter().filter(|change| change.is_needed()).collect();
    if needed.is_empty() {
        ui.info(unchanged);
        return Ok(());
    }
    for change in &needed {
        out.print(&color_diff(&change.diff()))?;
    }
    if dry_run {
        return Ok(());
    }
    let confirm = Confirm { question: "Apply these changes?", action: "change files", hint: PASS_YES, default: true };
    if ui.is_interactive() && !ui.yes() && !ui.confirm(&confirm)? {
        return Err(Error::interrupted("aborted"));
    }
    for change in needed {
        config_file::apply(change).map_err(|error| file_error(&error))?;
    }
    ui.info(done);
    Ok(())
}

/// Prints a self-contained Host block. The proxy supplies the host key.
async fn print(ctx: &ClusterContext, options: &SshOptions, name: &str) -> Result<()> {
    let server = resolve::resolve(ctx, Some(name)).await?;
    let alias = Host::new(server.name(), 0).alias();
    let mut text = String::new();
    if let Some(key) = server.status.access.as_ref().and_then(|access| access.host_key.as_deref()) {
        text += &format!("# host key: {key}\n");
    }
    text += &format!("Host {alias}\n  User {}\n", ctx.login_name());
    for (keyword, value) in options.config() {
        text += &format!("  {keyword} {value}\n");
    }
    ctx.out.print(&text)
}

fn color_diff(diff: &str) -> String {
    let color = |line: &str| match line.as_bytes().first() {
        Some(b'+') => paint(GREEN, line),
        Some(b'-') => paint(RED, line),
        _ => line.to_owned(),
    };
    diff.lines().map(|line| color(line) + "\n").collect()
}

fn file_error(error: &config_file::Error) -> Error {
    Error::failed(format_chain(error))
}
