//! From what is known of a server to what its owner can do about it. Pure.

use jiff::Timestamp;
use odc_api::v1alpha1::Phase;

use crate::backend::Happening;
use crate::glance::Glance;

/// Within this many seconds the operator says something about every server.
const ANSWERED: i64 = 15;

pub(super) fn hints(server: &Glance, events: &[Happening], now: Timestamp) -> Vec<String> {
    let name = server.name();
    let mut hints: Vec<String> = Vec::new();
    let reasons = server
        .status
        .conditions
        .iter()
        .filter(|condition| condition.status != "True" || condition.kind == "Idle" || condition.kind == "Expiring")
        .map(|condition| condition.reason.as_str())
        .chain(server.status.last_failure.iter().map(|failure| failure.reason.as_str()))
        .chain(server.status.admission.iter().filter_map(|admission| admission.reason.as_deref()));
    for reason in reasons {
        if let Some(hint) = about(reason, name)
            && !hints.contains(&hint)
        {
            hints.push(hint);
        }
    }
    if server.status.oom_kills.unwrap_or(0) > 0 {
        hints.push(
            "It ran out of memory: take a flavor with more, more GPUs (memory grows with them), or smaller batches."
                .into(),
        );
    }
    let waited = server.created().is_none_or(|created| now.as_second() - created.as_second() > ANSWERED);
    if server.status.phase.is_none() && events.is_empty() && waited {
        hints.push("Nobody has looked at it yet: is the operator running? Ask your administrator.".into());
    }
    match server.phase() {
        Some(phase) if phase.terminal() => {
            hints.push(format!("devctl create {name} makes a new one of the same name."));
        }
        Some(Phase::Hibernated) => hints.push(format!("devctl ssh {name} wakes it.")),
        Some(Phase::Running) if hints.is_empty() => hints.push(format!("It runs: devctl ssh {name} goes in.")),
        _ => {}
    }
    hints
}

fn about(reason: &str, name: &str) -> Option<String> {
    Some(match reason {
        "UnknownFlavor" | "NoDefaultFlavor" => {
            format!("devctl flavors lists what there is; delete {name} and create it with one of them.")
        }
        "SeveralDefaultFlavors" => "Name a flavor with --flavor; an administrator should leave one default.".into(),
        "CountNotAllowed" => "devctl flavors shows which numbers of GPUs each flavor comes with.".into(),
        "NotATeamMember" => "Leave --team out, or have an administrator put you into the team.".into(),
        "PriorityTooHigh" => format!("devctl edit {name} --priority normal"),
        "Maintenance" => "devctl avail says why and until when; another flavor may do.".into(),
        "DiskNotFound" => {
            "The claim does not exist in your namespace: create it, and the server goes on by itself.".into()
        }
        "DiskInUse" => "Another server has this home: devctl list -o wide shows which; end it or let it sleep.".into(),
        "DiskPending" | "DiskUnavailable" => {
            "The volume is not there: ask your administrator about the storage.".into()
        }
        "QuotaExceeded" => "Your quota is used up: devctl list shows what holds it; end or hibernate something.".into(),
        "InsufficientCapacity" | "Fragmented" => {
            format!("devctl avail shows what is free; fewer GPUs start sooner. {name} keeps its place.")
        }
        "Unsatisfiable" => "No node could ever hold it: ask for less, or for another flavor.".into(),
        "QueuedTooLong" => {
            "devctl avail shows what starts soon; devctl create again, with fewer GPUs, another flavor or --at.".into()
        }
        "Booked" => "It was booked for later, and starts by itself then.".into(),
        "ImageNotFound" => {
            "Check the name of the image; it must be reachable from the cluster, not only from here.".into()
        }
        "ImageDenied" => "Create a Secret with the registry's login and name it with --pull-secret.".into(),
        "DiesAtStart" => format!(
            "The image's own program ends at once: devctl logs {name} --previous; or leave --preserve-entrypoint out."
        ),
        "SecretMissing" => "Create the Secret that --secret-env names, and the server goes on by itself.".into(),
        "PodHeld" => format!("An old pod is still there: kubectl get pods -l odc.dev/server={name} -o yaml shows why."),
        "NodeLost" => "Its node does not answer; with a claim it waits until the old pod is known to be gone.".into(),
        "NobodyThere" => format!("Any use keeps it: devctl ssh {name}, or odc-keep-alive inside."),
        "EndsSoon" => format!("devctl extend {name} 2h"),
        "AgentUnreachable" => "The server's agent does not answer the operator; it is never stopped for that.".into(),
        "OutOfMemory" => "It ran out of memory again and again: take a flavor with more.".into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::condition::Reason;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_reason_with_a_hint_is_one_that_exists() {
        let known: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        let hinted: Vec<&&str> = known.iter().filter(|reason| about(reason, "box").is_some()).collect();
        assert!(hinted.len() > 20, "{hinted:?}");
        assert!(about("Typo", "box").is_none());
    }

    #[test]
    fn hints_come_from_what_does_not_hold() {
        let server = json!({"metadata": {"name": "box"}, "spec": {"home": {}}, "status": {"phase": "Pending", "conditions": [
            {"type": "Accepted", "status": "True", "reason": "UnknownFlavor", "lastTransitionTime": null},
            {"type": "DiskReady", "status": "False", "reason": "DiskInUse", "lastTransitionTime": null}]}});
        let hints = hints(&serde_json::from_value(server).unwrap(), &[], Timestamp::UNIX_EPOCH);
        assert_eq!(hints.len(), 1);
        assert!(hints[0].contains("Another server has this home"), "{hints:?}");
    }

    #[test]
    fn silence_of_the_operator_is_told_after_a_while() {
        let server =
            json!({"metadata": {"name": "box", "creationTimestamp": "1970-01-01T00:00:00Z"}, "spec": {"home": {}}});
        let server: Glance = serde_json::from_value(server).unwrap();
        let told = |second| hints(&server, &[], Timestamp::from_second(second).unwrap()).len();
        assert_eq!((told(ANSWERED), told(ANSWERED + 1)), (0, 1));
    }
}
