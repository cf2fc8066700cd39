//! `devctl logs`: what a server's container printed.

use futures_util::AsyncReadExt as _;
use odc_api::v1alpha1::Phase;

use crate::app::App;
use crate::args::Logs;
use crate::backend::LogRequest;
use crate::failure::{Failure, Kind, Result};
use crate::find;
use crate::glance::Glance;

pub async fn run(app: &App, args: Logs) -> Result<()> {
    let server = find::server(app, args.server.name.as_deref()).await?;
    let request = LogRequest {
        pod: format!("{}-{}", server.name(), args.place.node),
        container: None,
        follow: args.follow,
        tail: args.tail,
        since: args.since.map(Into::into),
        timestamps: args.timestamps,
        previous: args.previous,
    };
    let mut lines = match app.backend.logs(request).await {
        Ok(lines) => lines,
        // Its pod is gone with what it printed; the operator kept the end of it where it mattered.
        Err(failure) if failure.kind == Kind::NotFound => return last_words(app, &server, args.place.node),
        Err(failure) => return Err(waiting(&server, failure)),
    };
    let mut piece = vec![0; 64 * 1024];
    loop {
        let count = lines.read(&mut piece).await.map_err(|error| {
            Failure::failed(format!("the log of {} broke off: {error}", server.name())).advise("Try again.")
        })?;
        if count == 0 {
            return Ok(());
        }
        app.out.write(&piece[..count])?;
    }
}

/// What is left of a server without a pod.
fn last_words(app: &App, server: &Glance, node: u32) -> Result<()> {
    let name = server.name();
    if node >= server.nodes() {
        return Err(Failure::usage(format!("{name} has {} nodes, so there is no node {node}", server.nodes()))
            .advise("The first is 0."));
    }
    let kept = server.status.last_failure.as_ref().and_then(|failure| failure.log_tail.as_deref());
    if let Some(text) = kept {
        app.talk.say(format!("{name} does not run any more; this is the end of what it printed:"));
        return app.out.print(&format!("{}\n", text.trim_end_matches('\n')));
    }
    let failure = Failure::conflict(match server.phase() {
        Some(Phase::Hibernated | Phase::Hibernating) => format!("{name} sleeps, and what it printed went with its pod"),
        Some(phase) if phase.terminal() => format!("{name} has ended, and what it printed went with its pod"),
        _ => format!("{name} does not run yet, so it has printed nothing"),
    });
    Err(failure.advise(format!("devctl debug {name} says how it came to this.")))
}

/// Kubernetes refuses while the container is not there yet.
fn waiting(server: &Glance, failure: Failure) -> Failure {
    if server.phase() == Some(Phase::Starting) {
        let name = server.name();
        return Failure::conflict(format!("{name} is starting and has printed nothing yet"))
            .advise(format!("devctl debug {name} says what it waits for."));
    }
    failure
}
