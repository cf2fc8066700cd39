//! `devctl ssh`: a shell in a server, a command there, or the connection itself.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use tokio::process::Command;

use crate::app::App;
use crate::args::Ssh;
use crate::backend::Pipe;
use crate::failure::{Failure, Kind, Result, chain};
use crate::find;
use crate::output::harmless;
use crate::pick;
use crate::remote;
use crate::ssh::arrive::{Arrived, Patience, reach};
use crate::ssh::host::{Host, SUFFIX};
use crate::ssh::route::{Wishes, route};
use crate::ssh::{client, quote, stdio};

/// An agent that has just died is back before that.
const RESTART: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);
/// Whoever is not let in knows before that.
const LOGIN: Duration = Duration::from_secs(30);

pub async fn run(app: &App, args: Ssh) -> Result<()> {
    let patience = Patience { no_wake: args.sleeping.no_wake, limit: args.timeout.map(Into::into) };
    if args.stdio {
        return be_the_connection(app, &args, patience).await;
    }
    let server = find::server(app, args.server.name.as_deref()).await?;
    // Nobody is asked for the sake of a server that cannot be entered.
    if let Some(failure) = find::not_reachable(&server) {
        return Err(failure);
    }
    let node = match args.node {
        Some(node) => node,
        // Whoever wants a shell and sees the question; a command for a gang is for its first node.
        None if server.nodes() > 1 && args.command.is_empty() && app.talk.can_ask() && !app.talk.yes() => {
            pick::node(&server)?
        }
        None => 0,
    };
    let there = reach(app, server, node, patience).await?;
    let mut options = args.options.iter().map(|option| format!("-o{option}")).collect::<Vec<_>>();
    // A terminal for a command too, where there is one: people start editors and debuggers this way.
    let terminal = !args.command.is_empty() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    options.extend(terminal.then(|| "-t".to_owned()));
    let wishes = Wishes {
        identity: args.identity.clone(),
        forward_agent: if args.forward_agent { Some(true) } else { args.no_forward_agent.then_some(false) },
    };
    let line = (!args.command.is_empty()).then(|| args.command.join(" "));
    let visit = Visit { options, wishes, line };
    if args.dry_run {
        let command = visit.command(app, &there)?;
        let words: Vec<String> = std::iter::once(command.as_std().get_program())
            .chain(command.as_std().get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        return app.out.print(&format!("{}\n", quote::words(words.iter().map(String::as_str))));
    }
    visit.pay(app, &there).await
}

/// One run of OpenSSH with our standard streams.
#[derive(Debug, Default)]
pub struct Visit {
    pub options: Vec<String>,
    pub wishes: Wishes,
    /// For the shell there; a login shell if there is none.
    pub line: Option<String>,
}

impl Visit {
    /// Ends with what the command there ended with.
    pub async fn pay(&self, app: &App, there: &Arrived) -> Result<()> {
        let code = self.code(app, there).await?;
        if code == 0 { Ok(()) } else { Err(Failure::remote(code)) }
    }

    /// The code of the command there. A failure is one of the connection.
    pub async fn code(&self, app: &App, there: &Arrived) -> Result<u8> {
        let begun = Instant::now();
        let code = client::code(client::run(self.command(app, there)?).await?);
        // OpenSSH's own: there was no connection, or one that has lasted broke, or the command ended so.
        if code == 255
            && begun.elapsed() < LOGIN
            && let Some(failure) = remote::why_not(app, there).await
        {
            return Err(failure);
        }
        Ok(code)
    }

    fn command(&self, app: &App, there: &Arrived) -> Result<Command> {
        let alias = there.host.alias();
        there.pin(&alias)?;
        let route = route(&app.global, &app.settings, app.place(), &self.wishes)?;
        let shared = there.server.metadata.uid.as_ref().map(|uid| format!("{uid}.{}", there.host.node));
        let mut command = Command::new("ssh");
        // What was said for this once comes first: OpenSSH takes the first value of each option.
        command.args(&self.options).args(route.options(shared.as_deref())).args(["-l", app.login()]);
        command.arg("--").arg(alias).args(&self.line);
        Ok(command)
    }
}

/// `--stdio`: whatever goes wrong must reach a person through whoever called us.
async fn be_the_connection(app: &App, args: &Ssh, patience: Patience) -> Result<()> {
    let typed = args.server.name.as_deref().unwrap_or_default();
    let outcome = connection(app, typed, args.node.unwrap_or(0), patience).await;
    if let Err(failure) = &outcome
        && failure.kind != Kind::ClosedPipe
    {
        // Standard error is told in any case, by whoever called this.
        let _ = stdio::refuse(&harmless(&failure.to_string())).await;
    }
    outcome
}

async fn connection(app: &App, typed: &str, node: u32, patience: Patience) -> Result<()> {
    let host = Host::parse(typed).map_err(|error| Failure::usage(error.to_string()))?;
    let node = if host.node > 0 { host.node } else { node };
    let aloud = stdio::Aloud::begin();
    let there = reach(app, find::whole(app, &host.server).await?, node, patience).await?;
    drop(aloud);
    // OpenSSH looks the key up by what was typed to it, and only after we have begun to send.
    there.pin(&if typed.ends_with(SUFFIX) { typed.to_owned() } else { there.host.alias() })?;
    let (pipe, greeting) = greeted(app, &there).await?;
    let ended = stdio::carry(pipe, &greeting).await;
    ended.map(drop).map_err(|error| {
        Failure::failed(format!("the connection to {} broke: {}", there.server.name(), chain(&error)))
            .advise("Connect again; what runs in tmux has gone on.")
    })
}

/// A connection on which the server has said its first words.
async fn greeted(app: &App, there: &Arrived) -> Result<(Box<dyn Pipe>, Vec<u8>)> {
    let started = Instant::now();
    loop {
        let mut pipe = app.backend.connect(&there.pod, odc_api::port::AGENT).await?;
        let greeting = tokio::time::timeout(RESTART, stdio::greeting(&mut pipe)).await;
        match greeting.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
            Ok(greeting) => return Ok((pipe, greeting)),
            Err(_) if started.elapsed() < RESTART => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                let name = there.server.name();
                return Err(Failure::failed(format!("{name} runs and does not answer: {}", chain(&error)))
                    .advise(format!("devctl debug {name} --logs says more.")));
            }
        }
    }
}
