//! How waiting ends.

use inquire::Select;
use odc_api::v1alpha1::Phase;
use serde_json::json;

use super::Goal;
use crate::app::App;
use crate::failure::{Failure, Result};
use crate::find;
use crate::glance::Glance;

/// How many lines of a log are shown when a server failed.
const TAIL: usize = 20;

/// Whether there is nothing more to wait for, and why.
pub fn of(server: &Glance, goal: Goal) -> Option<Result<()>> {
    match goal {
        Goal::Ended => server.ended().then_some(Ok(())),
        // A status that speaks of an older spec says nothing about what was asked for now.
        _ if !server.settled() && !server.ended() => None,
        Goal::Ready if server.ready() => Some(Ok(())),
        Goal::Asleep if server.phase() == Some(Phase::Hibernated) => Some(Ok(())),
        Goal::Ready
            if server.phase() == Some(Phase::Hibernated) && server.spec.desired.as_deref() == Some("Hibernated") =>
        {
            Some(Err(Failure::conflict(format!("{} was put to sleep meanwhile", server.name()))
                .advise(format!("devctl wake {} wakes it.", server.name()))))
        }
        Goal::Ready | Goal::Asleep if server.phase() == Some(Phase::Failed) => Some(Err(failed(server))),
        Goal::Ready | Goal::Asleep => find::not_reachable(server).filter(|_| server.ended()).map(Err),
    }
}

/// Reason, log tail and the next command.
fn failed(server: &Glance) -> Failure {
    let name = server.name();
    let advice = format!("devctl debug {name} says more; devctl create {name} tries again.");
    let Some(last) = &server.status.last_failure else {
        return Failure::failed(format!("{name} has failed")).advise(advice);
    };
    let mut message = format!("{name} has failed: {}", last.message.trim_end_matches('.'));
    let lines: Vec<&str> = last.log_tail.as_deref().unwrap_or_default().lines().collect();
    for line in &lines[lines.len().saturating_sub(TAIL)..] {
        message.push_str(&format!("\n  | {line}"));
    }
    Failure::failed(message).advise(advice)
}

/// Somebody does not want to wait any longer.
pub fn left(name: &str, goal: Goal) -> Failure {
    let advice = match goal {
        Goal::Ready => format!("devctl ssh {name} comes back to it, devctl delete {name} ends it."),
        Goal::Asleep | Goal::Ended => format!("devctl show {name} says how it is."),
    };
    Failure::interrupted(format!("{name} goes on without you")).advise(advice)
}

pub fn late(name: &str, goal: Goal, server: Option<&Glance>) -> Failure {
    let phase = server.map_or("not there", Glance::phase_word);
    let what = match goal {
        Goal::Ready => "is not ready in time",
        Goal::Asleep => "does not sleep in time",
        Goal::Ended => "has not ended in time",
    };
    let why = server.and_then(|server| crate::view::Server::from(server).message).map(|why| format!(": {why}"));
    let again = if goal == Goal::Ready { format!(", devctl ssh {name} waits again") } else { String::new() };
    Failure::timeout(format!("{name} {what}; it is {phase}{}", why.unwrap_or_default().trim_end_matches('.')))
        .advise(format!("It goes on. devctl debug {name} says what it waits for{again}."))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Wait,
    Leave,
    End,
}

/// A second Ctrl-C means what the first one usually does.
pub fn ask(name: &str) -> Choice {
    let options = vec!["go on waiting", "leave it, and come back later", "end it"];
    let chosen = Select::new(&format!("What about {name}?"), options).raw_prompt();
    match chosen.map(|chosen| chosen.index) {
        Ok(0) | Err(inquire::InquireError::OperationCanceled) => Choice::Wait,
        Ok(1) => Choice::Leave,
        Ok(_) | Err(_) => Choice::End,
    }
}

/// Ends what this command had asked for.
pub async fn end(app: &App, name: &str, server: Option<&Glance>) -> Result<Failure> {
    let ended = server.is_some_and(Glance::ended);
    if !ended {
        app.backend.change(name, json!({"spec": {"desired": "Ended"}}), None, false).await?;
    }
    Ok(Failure::interrupted(format!("{name} was cancelled")).advise("devctl create asks again."))
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::DevServer;

    use super::*;
    use crate::failure::Kind;

    fn glance(phase: &str, ready: bool, generation: i64) -> Glance {
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": "box", "generation": 2},
            "spec": {"home": {}, "desired": "Running"},
            "status": {"phase": phase, "observedGeneration": generation,
                "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": null}],
                "lastFailure": {"reason": "DiesAtStart", "message": "It dies.", "time": "2026-01-01T00:00:00Z", "logTail": "a\nb"}},
        }))
        .unwrap()
    }

    #[test]
    fn running_is_not_ready_and_an_old_word_is_none() {
        assert!(of(&glance("Running", true, 2), Goal::Ready).unwrap().is_ok());
        assert!(of(&glance("Running", false, 2), Goal::Ready).is_none());
        assert!(of(&glance("Running", true, 1), Goal::Ready).is_none());
        assert!(of(&glance("Hibernated", false, 1), Goal::Asleep).is_none());
        assert!(of(&glance("Hibernated", false, 2), Goal::Asleep).unwrap().is_ok());
    }

    #[test]
    fn a_failure_shows_reason_log_and_what_to_do() {
        let failure = of(&glance("Failed", false, 2), Goal::Ready).unwrap().unwrap_err();
        assert_eq!(failure.message, "box has failed: It dies\n  | a\n  | b");
        assert!(failure.advice.unwrap().contains("devctl debug box"));
    }

    #[test]
    fn each_end_is_told_apart() {
        let kind = |phase| of(&glance(phase, false, 1), Goal::Ready).map(|end| end.unwrap_err().kind);
        assert_eq!(kind("Expired"), Some(Kind::Conflict));
        assert_eq!(kind("Cancelled"), Some(Kind::Conflict));
        assert_eq!(kind("Queued"), None);
        assert!(of(&Glance::try_from(&DevServer::test()).unwrap(), Goal::Ended).is_none());
    }
}
