//! The results of waiting.

use inquire::Select;
use odc_api::v1alpha1::Phase;
use serde_json::json;

use super::Goal;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::server::ServerSummary;
use crate::output::json::ServerJson;
use crate::resolve;

/// Lines of the log that are printed when a server failed.
const LOG_TAIL_LINES: usize = 20;

/// Returns the result if the goal is reached or can no longer be reached.
pub fn evaluate(server: &ServerSummary, goal: Goal) -> Option<Result<()>> {
    match goal {
        Goal::Finished => server.is_finished().then_some(Ok(())),
        // The status does not reflect the current spec yet.
        _ if !server.observed_current() && !server.is_finished() => None,
        Goal::Ready if server.is_ready() => Some(Ok(())),
        Goal::Hibernated if server.phase() == Some(Phase::Hibernated) => Some(Ok(())),
        Goal::Ready
            if server.phase() == Some(Phase::Hibernated) && server.spec.desired.as_deref() == Some("Hibernated") =>
        {
            let name = server.name();
            Some(Err(Error::conflict(format!("server {name} was hibernated while it started"))
                .with_hint(format!("run `devctl wake {name}` to wake it"))))
        }
        Goal::Ready | Goal::Hibernated if server.phase() == Some(Phase::Failed) => Some(Err(failed(server))),
        Goal::Ready | Goal::Hibernated => resolve::not_connectable(server).filter(|_| server.is_finished()).map(Err),
    }
}

/// Returns the error of a failed server, with the end of its log.
fn failed(server: &ServerSummary) -> Error {
    let name = server.name();
    let hint = format!("run `devctl debug {name}` for details, or `devctl create {name}` to try again");
    let Some(last) = &server.status.last_failure else {
        return Error::failed(format!("server {name} failed")).with_hint(hint);
    };
    let mut message = format!("server {name} failed: {}", last.message.trim_end_matches('.'));
    let lines: Vec<&str> = last.log_tail.as_deref().unwrap_or_default().lines().collect();
    for line in &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..] {
        message.push_str(&format!("\n  | {line}"));
    }
    Error::failed(message).with_hint(hint)
}

/// Returns the error when the user stops waiting.
pub fn detached(name: &str, goal: Goal) -> Error {
    let hint = match goal {
        Goal::Ready => {
            format!("connect later with `devctl ssh {name}`, or delete it with `devctl delete {name}`")
        }
        Goal::Hibernated | Goal::Finished => format!("run `devctl show {name}` to check"),
    };
    let transition = transition(goal);
    Error::interrupted(format!("stopped waiting; server {name} keeps {transition} in the background")).with_hint(hint)
}

/// Returns what the server does in the background after waiting has stopped.
const fn transition(goal: Goal) -> &'static str {
    match goal {
        Goal::Ready => "starting",
        Goal::Hibernated => "hibernating",
        Goal::Finished => "stopping",
    }
}

/// Returns the error when the timeout is exceeded.
pub fn timed_out(name: &str, goal: Goal, server: Option<&ServerSummary>) -> Error {
    let phase = server.map_or("unknown", ServerSummary::phase_str);
    let transition = transition(goal);
    let goal = match goal {
        Goal::Ready => "become ready",
        Goal::Hibernated => "hibernate",
        Goal::Finished => "stop",
    };
    let message = server.and_then(|server| ServerJson::from(server).message);
    let cause = message.map(|message| format!(": {}", message.trim_end_matches('.'))).unwrap_or_default();
    Error::timeout(format!("timed out waiting for server {name} to {goal} (phase: {phase}){cause}"))
        .with_hint(format!("the server keeps {transition}; run `devctl debug {name}` for details"))
}

/// The answer to the prompt after Ctrl-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptChoice {
    Wait,
    Detach,
    Delete,
}

/// Prompts what to do after Ctrl-C. A second Ctrl-C deletes the server.
pub fn prompt(name: &str) -> InterruptChoice {
    let options = vec!["keep waiting", "detach (keep the server)", "delete the server"];
    let chosen = Select::new(&format!("Server {name} is not ready yet. What now?"), options).raw_prompt();
    match chosen.map(|chosen| chosen.index) {
        Ok(0) | Err(inquire::InquireError::OperationCanceled) => InterruptChoice::Wait,
        Ok(1) => InterruptChoice::Detach,
        Ok(_) | Err(_) => InterruptChoice::Delete,
    }
}

/// Deletes the server that this command created. Returns the error to exit with.
pub async fn delete(ctx: &ClusterContext, name: &str, server: Option<&ServerSummary>) -> Error {
    if !server.is_some_and(ServerSummary::is_finished)
        && let Err(error) = ctx.client.patch(name, json!({"spec": {"desired": "Ended"}}), None, false).await
    {
        return error;
    }
    Error::interrupted(format!("interrupted; server {name} is being deleted"))
        .with_hint(format!("run `devctl create {name}` to create it again"))
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::DevServer;

    use super::*;
    use crate::error::Kind;

    fn server(phase: &str, ready: bool, observed_generation: i64) -> ServerSummary {
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": "box", "generation": 2},
            "spec": {"home": {}, "desired": "Running"},
            "status": {"phase": phase, "observedGeneration": observed_generation,
                "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": null}],
                "lastFailure": {"reason": "CrashLoop", "message": "It dies.", "time": "2026-01-01T00:00:00Z", "logTail": "a\nb"}},
        }))
        .unwrap()
    }

    #[test]
    fn ready_requires_condition_and_current_generation() {
        assert!(evaluate(&server("Running", true, 2), Goal::Ready).unwrap().is_ok());
        assert!(evaluate(&server("Running", false, 2), Goal::Ready).is_none());
        assert!(evaluate(&server("Running", true, 1), Goal::Ready).is_none());
        assert!(evaluate(&server("Hibernated", false, 1), Goal::Hibernated).is_none());
        assert!(evaluate(&server("Hibernated", false, 2), Goal::Hibernated).unwrap().is_ok());
    }

    #[test]
    fn failure_has_reason_log_tail_and_hint() {
        let error = evaluate(&server("Failed", false, 2), Goal::Ready).unwrap().unwrap_err();
        assert_eq!(error.message, "server box failed: It dies\n  | a\n  | b");
        assert!(error.hint.unwrap().contains("devctl debug box"));
    }

    #[test]
    fn finished_server_is_a_conflict() {
        let kind = |phase| evaluate(&server(phase, false, 1), Goal::Ready).map(|result| result.unwrap_err().kind);
        assert_eq!(kind("Expired"), Some(Kind::Conflict));
        assert_eq!(kind("Cancelled"), Some(Kind::Conflict));
        assert_eq!(kind("Queued"), None);
        assert!(evaluate(&ServerSummary::try_from(&DevServer::test()).unwrap(), Goal::Finished).is_none());
    }
}
