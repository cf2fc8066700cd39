//! Resolves a typed name to a server: exact names, unique prefixes and suggestions.

use futures_util::StreamExt as _;
use odc_api::v1alpha1::Phase;
use odc_api::v1alpha1::condition::Reason;

use crate::client::Scope;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::server::ServerSummary;

/// Set inside every server, where it is the default name.
const SERVER_ENV: &str = "ODC_SERVER";

/// The least Jaro-Winkler similarity of a suggestion.
const MIN_SIMILARITY: f64 = 0.7;

/// The most names in a message.
const MAX_LISTED_NAMES: usize = 8;

/// Returns the named server, or the only one that is not finished.
pub async fn resolve(ctx: &ClusterContext, typed: Option<&str>) -> Result<ServerSummary> {
    match typed {
        Some(typed) => by_prefix(ctx, typed).await,
        None => the_only(ctx, |server| !server.is_finished(), "active servers").await,
    }
}

/// Returns the server of this name, or the only one with this prefix.
pub async fn by_prefix(ctx: &ClusterContext, typed: &str) -> Result<ServerSummary> {
    let typed = typed.strip_suffix(".odc").unwrap_or(typed);
    if let Some(server) = ctx.client.get_summary(typed).await? {
        ctx.ui.trace_step("reading the server");
        return Ok(server);
    }
    let servers = list_own(ctx).await?;
    ctx.ui.trace_step("listing servers");
    let name = match_name(typed, servers.iter().map(ServerSummary::name))?.to_owned();
    servers.into_iter().find(|server| server.name() == name).ok_or_else(|| not_found(typed, None))
}

/// Returns the server of exactly this name, for programs that would not notice another one.
pub async fn exact(ctx: &ClusterContext, name: &str) -> Result<ServerSummary> {
    get_exact(ctx, name, |names| not_found(name, nearest(name, names.iter().copied()))).await
}

/// Returns the server of exactly this name, for destructive commands without confirmation.
pub async fn exact_if_unconfirmed(ctx: &ClusterContext, typed: &str) -> Result<ServerSummary> {
    let name = typed.strip_suffix(".odc").unwrap_or(typed);
    get_exact(ctx, name, |names| prefix_not_allowed(name, names)).await
}

async fn get_exact(ctx: &ClusterContext, name: &str, missing: impl FnOnce(&[&str]) -> Error) -> Result<ServerSummary> {
    if let Some(server) = ctx.client.get_summary(name).await? {
        return Ok(server);
    }
    let servers = list_own(ctx).await?;
    let names: Vec<&str> = servers.iter().map(ServerSummary::name).collect();
    Err(missing(&names))
}

/// Returns the only server that matches; prompts if there are several. `noun` names them in the error.
pub async fn the_only(
    ctx: &ClusterContext,
    matches: impl Fn(&ServerSummary) -> bool,
    noun: &str,
) -> Result<ServerSummary> {
    let mut candidates = candidates(ctx, matches, noun).await?;
    match candidates.len() {
        1 => Ok(candidates.remove(0)),
        _ if ctx.ui.is_interactive() => crate::prompt::server(candidates, ctx.ui.width()),
        _ => Err(ambiguous(&candidates)),
    }
}

/// As [`the_only`], with the option to choose all.
pub async fn one_or_all(
    ctx: &ClusterContext,
    matches: impl Fn(&ServerSummary) -> bool,
    noun: &str,
) -> Result<Vec<ServerSummary>> {
    let candidates = candidates(ctx, matches, noun).await?;
    match candidates.len() {
        1 => Ok(candidates),
        _ if ctx.ui.is_interactive() => crate::prompt::one_or_all(candidates, ctx.ui.width()),
        _ => Err(ambiguous(&candidates)),
    }
}

/// Returns the matching servers, at least one. Inside a server, returns that server.
async fn candidates(
    ctx: &ClusterContext,
    matches: impl Fn(&ServerSummary) -> bool,
    noun: &str,
) -> Result<Vec<ServerSummary>> {
    let current = std::env::var(SERVER_ENV).ok();
    let mut candidates: Vec<ServerSummary> = list_own(ctx).await?.into_iter().filter(matches).collect();
    ctx.ui.trace_step("listing servers");
    if let Some(current) = current
        && let Some(position) = candidates.iter().position(|server| server.name() == current)
    {
        return Ok(vec![candidates.swap_remove(position)]);
    }
    if candidates.is_empty() {
        return Err(Error::not_found(format!("no {noun} found"))
            .with_hint("run `devctl create` to create one, or `devctl list --all` to see finished ones"));
    }
    Ok(candidates)
}

fn ambiguous(servers: &[ServerSummary]) -> Error {
    let names: Vec<&str> = servers.iter().map(ServerSummary::name).collect();
    Error::usage(format!("server name required ({} servers found)", names.len()))
        .with_hint(format!("choose one of {}", join_names(&names)))
}

pub async fn list_own(ctx: &ClusterContext) -> Result<Vec<ServerSummary>> {
    let mut pages = ctx.client.list(Scope::Own);
    let mut servers = Vec::new();
    while let Some(page) = pages.next().await {
        servers.extend(page?);
    }
    Ok(servers)
}

/// Returns the name that equals the typed text or is the only one with this prefix.
pub fn match_name<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Result<&'a str> {
    let names: Vec<&str> = names.collect();
    if let Some(exact) = names.iter().find(|name| **name == typed) {
        return Ok(exact);
    }
    match with_prefix(typed, &names).as_slice() {
        [name] => Ok(name),
        [] => Err(not_found(typed, nearest(typed, names.iter().copied()))),
        several => Err(Error::usage(format!("name prefix \"{typed}\" is ambiguous"))
            .with_hint(format!("matches {}", join_names(several)))),
    }
}

fn with_prefix<'a>(prefix: &str, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().copied().filter(|name| !prefix.is_empty() && name.starts_with(prefix)).collect()
}

fn prefix_not_allowed(typed: &str, names: &[&str]) -> Error {
    match with_prefix(typed, names).as_slice() {
        [] => not_found(typed, nearest(typed, names.iter().copied())),
        names => Error::usage(format!("\"{typed}\" is only a prefix of {}", join_names(names)))
            .with_hint("with `--yes` or without a terminal, give the full name"),
    }
}

fn not_found(typed: &str, nearest: Option<&str>) -> Error {
    let hint = nearest.map_or_else(
        || "run `devctl list` to see your servers, or `devctl create` to create one".to_owned(),
        |nearest| format!("did you mean {nearest}?"),
    );
    Error::not_found(format!("server {typed} not found")).with_hint(hint)
}

/// Returns the most similar name, if any is similar enough.
pub fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let scored = names.map(|name| (strsim::jaro_winkler(&typed, &name.to_lowercase()), name));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= MIN_SIMILARITY).then_some(best.1)
}

/// Joins names for a message, the first few if there are many.
pub fn join_names(names: &[&str]) -> String {
    if names.len() <= MAX_LISTED_NAMES {
        return names.join(", ");
    }
    format!("{} and {} more", names[..MAX_LISTED_NAMES].join(", "), names.len() - MAX_LISTED_NAMES)
}

/// Returns why a server can never be connected to. A hibernated, queued or starting server can be waited for.
pub fn not_connectable(server: &ServerSummary) -> Option<Error> {
    let name = server.name();
    let create = format!("run `devctl create {name}` to create a new server of this name");
    if server.is_deleting() {
        return Some(Error::conflict(format!("server {name} is being deleted")).with_hint(create));
    }
    let error = match server.phase()? {
        Phase::Expired => Error::conflict(format!("server {name} has expired")),
        Phase::Cancelled => Error::conflict(match cancellation_cause(server) {
            None => format!("server {name} was deleted"),
            Some(cause) => format!("server {name} was cancelled: {cause}"),
        }),
        Phase::Failed => {
            let cause = server.status.last_failure.as_ref().map_or("", |failure| failure.message.as_str());
            let cause = if cause.is_empty() { String::new() } else { format!(": {}", cause.trim_end_matches('.')) };
            return Some(Error::conflict(format!("server {name} has failed{cause}")).with_hint(format!(
                "run `devctl debug {name}` for details, or `devctl create {name}` to recreate it"
            )));
        }
        Phase::Stopping => Error::conflict(format!("server {name} is stopping")),
        _ => return None,
    };
    Some(error.with_hint(create))
}

/// Returns why a server was cancelled; `None` if its owner or an administrator deleted it.
fn cancellation_cause(server: &ServerSummary) -> Option<&str> {
    let ready = server.condition("Ready").filter(|ready| ready.reason != Reason::Ended.as_str())?;
    Some(ready.message.trim_end_matches('.')).filter(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::DevServer;
    use serde_json::json;

    use super::*;
    use crate::error::Kind;

    #[test]
    fn exact_name_wins_over_a_prefix() {
        assert_eq!(match_name("box", ["box", "box-2"].into_iter()).unwrap(), "box");
        assert_eq!(match_name("tr", ["box", "train"].into_iter()).unwrap(), "train");
    }

    #[test]
    fn ambiguous_prefix_lists_the_matches() {
        let error = match_name("bo", ["box", "boat"].into_iter()).unwrap_err();
        assert_eq!((error.kind, error.hint.as_deref()), (Kind::Usage, Some("matches box, boat")));
    }

    #[test]
    fn prefix_is_rejected_without_confirmation() {
        let error = prefix_not_allowed("bo", &["box", "boat", "train"]);
        assert_eq!((error.kind, error.message.as_str()), (Kind::Usage, "\"bo\" is only a prefix of box, boat"));
        assert_eq!(prefix_not_allowed("bix", &["box"]).kind, Kind::NotFound);
        assert_eq!(prefix_not_allowed("", &["box"]).kind, Kind::NotFound);
    }

    #[test]
    fn similar_name_is_suggested() {
        let error = match_name("bix", ["box", "train"].into_iter()).unwrap_err();
        assert_eq!((error.kind, error.hint.as_deref()), (Kind::NotFound, Some("did you mean box?")));
        let error = match_name("zebra", ["box", "train"].into_iter()).unwrap_err();
        assert!(error.hint.unwrap().contains("devctl list"));
        assert_eq!(match_name("", ["box"].into_iter()).unwrap_err().kind, Kind::NotFound);
    }

    #[test]
    fn long_lists_of_names_are_shortened() {
        let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(join_names(&names).ends_with("n7 and 12 more"));
    }

    #[test]
    fn cancelled_server_has_its_cause_unless_it_was_deleted() {
        let error = |reason: &str, message: &str| {
            let ready = json!({"type": "Ready", "status": "False", "reason": reason, "message": message,
                "lastTransitionTime": null});
            let server = json!({"metadata": {"name": "box"}, "spec": {"home": {}},
                "status": {"phase": "Cancelled", "conditions": [ready]}});
            not_connectable(&serde_json::from_value(server).unwrap()).unwrap().message
        };
        assert_eq!(error("Ended", "Ended by the owner or an administrator."), "server box was deleted");
        let cause = "Cancelled after waiting 48h in the queue (cluster limit).";
        assert_eq!(
            error("QueueTimeout", cause),
            "server box was cancelled: Cancelled after waiting 48h in the queue (cluster limit)"
        );
    }

    #[test]
    fn finished_phases_are_not_connectable() {
        let in_phase = |phase| {
            let server = DevServer::test().named("box").in_phase(phase);
            not_connectable(&ServerSummary::try_from(&server).unwrap()).map(|error| error.message)
        };
        assert!(in_phase(Phase::Expired).unwrap().contains("expired"));
        assert!(in_phase(Phase::Cancelled).unwrap().contains("deleted"));
        assert!(in_phase(Phase::Failed).unwrap().contains("failed"));
        assert!(in_phase(Phase::Stopping).unwrap().contains("stopping"));
        for phase in
            [Phase::Pending, Phase::Queued, Phase::Starting, Phase::Running, Phase::Hibernating, Phase::Hibernated]
        {
            assert_eq!(in_phase(phase), None, "{phase}");
        }
    }
}
