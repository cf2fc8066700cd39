//! `devctl ssh`: a shell or command in a server, or the ProxyCommand of OpenSSH.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::process::Command;

use crate::cli::shared::{ServerArg, TimeoutArgs, WakeOption};
use crate::client::Connection;
use crate::context::ClusterContext;
use crate::error::{Error, Kind, Result, format_chain};
use crate::output::sanitize;
use crate::prompt;
use crate::resolve;
use crate::shell;
use crate::ssh::connect::{ReadyServer, WaitOptions, wait_ready};
use crate::ssh::host::{self, Host, SUFFIX};
use crate::ssh::options::{SshOptions, SshOverrides};
use crate::ssh::{process, proxy, remote};

/// How long to retry while the agent restarts.
const BANNER_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// A session that ends with 255 within this time failed to authenticate or connect.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Args, Clone, Debug, Default)]
pub struct SshArgs {
    #[command(flatten)]
    pub server: ServerArg,
    /// Act as an OpenSSH ProxyCommand: connect stdin and stdout to the server
    #[arg(long, requires = "name", conflicts_with_all = ["command", "dry_run"])]
    pub stdio: bool,
    /// Node of a multi-node server, starting at 0 [default: prompt, or 0]
    #[arg(long, value_name = "N")]
    pub node: Option<u32>,
    /// Private key [default: your own, or the one devctl created]
    #[arg(short, long, value_name = "FILE", env = "DEVCTL_IDENTITY", hide_env = true)]
    pub identity: Option<PathBuf>,
    /// Forward the SSH agent
    #[arg(short = 'A', long, overrides_with = "no_forward_agent")]
    pub forward_agent: bool,
    /// Do not forward the SSH agent (overrides the config file)
    #[arg(long)]
    pub no_forward_agent: bool,
    /// Option for ssh, such as Compression=no; may be repeated
    #[arg(long = "option", value_name = "KEY=VALUE")]
    pub options: Vec<String>,
    #[command(flatten)]
    pub wake: WakeOption,
    #[command(flatten)]
    pub timeout: TimeoutArgs,
    /// Print the ssh command without running it
    #[arg(long)]
    pub dry_run: bool,
    /// Command to run instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

pub async fn run(ctx: &ClusterContext, args: SshArgs) -> Result<()> {
    let options = WaitOptions { no_wake: args.wake.no_wake, timeout: args.timeout.timeout.map(Into::into) };
    if args.stdio {
        return run_proxy(ctx, &args, options).await;
    }
    let server = resolve::resolve(ctx, args.server.name.as_deref()).await?;
    // Check before prompting for a node.
    if let Some(error) = resolve::not_connectable(&server) {
        return Err(error);
    }
    let node = match args.node {
        Some(node) => node,
        // Prompt for shells only; commands run on the first node.
        None if server.nodes() > 1 && args.command.is_empty() && ctx.ui.is_interactive() && !ctx.ui.yes() => {
            prompt::node(&server)?
        }
        None => 0,
    };
    let ready = wait_ready(ctx, server, node, options).await?;
    let options = args.options.iter().map(|option| format!("-o{option}"));
    let options = options.chain(terminal_option(&args.command)).collect();
    let overrides = SshOverrides {
        identity: args.identity.clone(),
        forward_agent: if args.forward_agent { Some(true) } else { args.no_forward_agent.then_some(false) },
    };
    let command_line = (!args.command.is_empty()).then(|| args.command.join(" "));
    let invocation = SshInvocation { options, overrides, command_line };
    if args.dry_run {
        let command = invocation.command(ctx, &ready)?;
        let words: Vec<String> = std::iter::once(command.as_std().get_program())
            .chain(command.as_std().get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        return ctx.out.print(&format!("{}\n", shell::join(words.iter().map(String::as_str))));
    }
    invocation.run(ctx, &ready).await
}

/// Allocates a terminal for commands as well, so that editors and debuggers work.
pub fn terminal_option(command: &[String]) -> Option<String> {
    let tty = !command.is_empty() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    tty.then(|| "-t".to_owned())
}

/// One run of ssh with the standard streams of devctl.
#[derive(Debug, Default)]
pub struct SshInvocation {
    pub options: Vec<String>,
    pub overrides: SshOverrides,
    /// The command line for the remote shell; a login shell if there is none.
    pub command_line: Option<String>,
}

impl SshInvocation {
    /// Runs ssh and passes on the exit status of the remote command.
    pub async fn run(&self, ctx: &ClusterContext, ready: &ReadyServer) -> Result<()> {
        let code = self.exit_code(ctx, ready).await?;
        if code == 0 { Ok(()) } else { Err(Error::remote(code)) }
    }

    /// Returns the exit status of the remote command. Fails if there was no connection.
    pub async fn exit_code(&self, ctx: &ClusterContext, ready: &ReadyServer) -> Result<u8> {
        let started = Instant::now();
        let code = process::exit_code(process::run(self.command(ctx, ready)?).await?);
        // 255 may also be the status of the remote command or of a lost connection.
        if code == 255
            && started.elapsed() < LOGIN_TIMEOUT
            && let Some(error) = remote::diagnose(ctx, ready).await
        {
            return Err(error);
        }
        Ok(code)
    }

    fn command(&self, ctx: &ClusterContext, ready: &ReadyServer) -> Result<Command> {
        let alias = ready.host.alias();
        ready.pin_host_key(&alias)?;
        let control_name = ready.server.metadata.uid.as_ref().map(|uid| format!("{uid}.{}", ready.host.node));
        self.command_for(ctx, &alias, control_name.as_deref())
    }

    /// Returns the ssh command for a host whose key is pinned.
    pub fn command_for(&self, ctx: &ClusterContext, alias: &str, control_name: Option<&str>) -> Result<Command> {
        let options = SshOptions::new(&ctx.global, &ctx.settings, ctx.target(), &self.overrides)?;
        let mut command = Command::new("ssh");
        // The user's options precede the others: OpenSSH uses the first value of each option.
        command.args(&self.options).args(options.flags(control_name)).args(["-l", ctx.login_name()]);
        command.arg("--").arg(alias).args(&self.command_line);
        Ok(command)
    }
}

/// Runs the ProxyCommand. Errors must reach the user through OpenSSH.
async fn run_proxy(ctx: &ClusterContext, args: &SshArgs, options: WaitOptions) -> Result<()> {
    let typed = args.server.name.as_deref().unwrap_or_default();
    let result = proxy(ctx, typed, args.node.unwrap_or(0), options).await;
    if let Err(error) = &result
        && error.kind != Kind::ClosedPipe
    {
        // `main` prints the error on standard error in any case.
        let _ = proxy::send_disconnect(&sanitize(&error.to_string())).await;
    }
    result
}

async fn proxy(ctx: &ClusterContext, typed: &str, node: u32, options: WaitOptions) -> Result<()> {
    if let Some(pod) = host::browse_pod(typed) {
        // `devctl disk browse` has pinned the key.
        let hint = "run `devctl disk browse` again: a restore point is closed after 30m without use";
        return relay(ctx, pod, &format!("pod {pod}"), hint).await;
    }
    let host = Host::parse(typed).map_err(|error| Error::usage(error.to_string()))?;
    let node = if host.node > 0 { host.node } else { node };
    let stderr = proxy::TtyStderr::redirect();
    let ready = wait_ready(ctx, resolve::exact(ctx, &host.server).await?, node, options).await?;
    drop(stderr);
    // OpenSSH looks up the key by the host as typed, after it receives the banner.
    ready.pin_host_key(&if typed.ends_with(SUFFIX) { typed.to_owned() } else { ready.host.alias() })?;
    let name = ready.server.name();
    relay(ctx, &ready.pod, &format!("server {name}"), &format!("run `devctl debug {name} --logs` for details")).await
}

/// Relays between the standard streams and the SSH port of a pod. `title` names its owner in errors; `hint` is for a pod
/// that does not respond.
async fn relay(ctx: &ClusterContext, pod: &str, title: &str, hint: &str) -> Result<()> {
    let (connection, banner) = connect_with_banner(ctx, pod, title, hint).await?;
    let result = proxy::relay(connection, &banner).await;
    result.map(drop).map_err(|error| {
        Error::failed(format!("lost the connection to {title}: {}", format_chain(&error)))
            .with_hint("connect again; processes in tmux are still running")
    })
}

/// Connects and waits for the version banner, retrying while the agent restarts.
async fn connect_with_banner(
    ctx: &ClusterContext,
    pod: &str,
    title: &str,
    hint: &str,
) -> Result<(Box<dyn Connection>, Vec<u8>)> {
    let started = Instant::now();
    loop {
        let mut connection = ctx.client.connect(pod, odc_api::port::AGENT).await?;
        let banner = tokio::time::timeout(BANNER_TIMEOUT, proxy::read_version_banner(&mut connection)).await;
        match banner.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
            Ok(banner) => return Ok((connection, banner)),
            Err(_) if started.elapsed() < BANNER_TIMEOUT => tokio::time::sleep(RETRY_INTERVAL).await,
            Err(error) => {
                return Err(Error::failed(format!(
                    "{title} is running but its SSH port does not respond: {}",
                    format_chain(&error)
                ))
                .with_hint(hint));
            }
        }
    }
}
