//! Hints for the user from the state of a server. No I/O.

use jiff::Timestamp;
use odc_api::open_enum::OpenEnum;
use odc_api::v1alpha1::Phase;
use odc_api::v1alpha1::condition::Reason;

use crate::client::Event;
use crate::model::server::ServerSummary;

/// The operator sets a status within this time.
const MAX_OPERATOR_DELAY_SECONDS: i64 = 15;

pub(super) fn hints(server: &ServerSummary, events: &[Event], now: Timestamp) -> Vec<String> {
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
        if let Some(hint) = OpenEnum::parse(reason).known().and_then(|reason| hint_for_reason(reason, name))
            && !hints.contains(&hint)
        {
            hints.push(hint);
        }
    }
    if server.status.oom_kills.unwrap_or(0) > 0 {
        hints.push(
            "A process was OOM-killed. Use less memory, more GPUs (memory is per GPU), or a flavor with more memory."
                .into(),
        );
    }
    let is_overdue =
        server.created().is_none_or(|created| now.as_second() - created.as_second() > MAX_OPERATOR_DELAY_SECONDS);
    if server.status.phase.is_none() && events.is_empty() && is_overdue {
        hints.push(
            "The operator has not processed this server yet. Ask an administrator whether the operator is running."
                .into(),
        );
    }
    match server.phase() {
        Some(phase) if phase.is_terminal() => {
            hints.push(format!("Run `devctl create {name}` to create a new server of this name."));
        }
        Some(Phase::Hibernated) => hints.push(format!("Run `devctl ssh {name}` to wake it and connect.")),
        Some(Phase::Running) if hints.is_empty() => hints.push(format!("Run `devctl ssh {name}` to connect.")),
        _ => {}
    }
    hints
}

fn hint_for_reason(reason: Reason, name: &str) -> Option<String> {
    Some(match reason {
        Reason::FlavorNotFound | Reason::NoDefaultFlavor => {
            format!("Run `devctl flavors` to see the flavors, then delete {name} and create it with one of them.")
        }
        Reason::MultipleDefaultFlavors => {
            "Choose a flavor with `--flavor`. An administrator should leave only one default flavor.".into()
        }
        Reason::InvalidCount => "Run `devctl flavors` to see the GPU counts of each flavor.".into(),
        Reason::NotTeamMember => "Omit `--team`, or ask an administrator to add you to the team.".into(),
        Reason::PriorityTooHigh => format!("Lower the priority with `devctl edit {name} --priority normal`."),
        Reason::Maintenance => "Run `devctl avail` for the reason, or choose another flavor.".into(),
        Reason::DiskNotFound => {
            "Create the disk with `devctl disk create`, or ask an administrator for the PVC; the server then continues."
                .into()
        },
        Reason::DiskInUse => {
            "Another server uses this home. Find it with `devctl list -o wide`, then delete or hibernate it.".into()
        }
        Reason::DiskPending | Reason::DiskUnavailable => {
            "The volume is not available. Ask your administrator about the storage and the default StorageClass, or \
             create the server with `--ephemeral`."
                .into()
        }
        Reason::QuotaExceeded => {
            "Your quota is exhausted. Delete or hibernate a server; run `devctl list` to see them.".into()
        }
        Reason::InsufficientCapacity | Reason::Fragmented => {
            format!("Run `devctl avail` to see what is free; fewer GPUs start sooner. {name} keeps its queue position.")
        }
        Reason::Reserved => {
            "Free capacity is reserved for servers ahead in the queue. A shorter `--lifetime` may start sooner.".into()
        }
        Reason::Unsatisfiable => "No node is large enough. Request less, or another flavor.".into(),
        Reason::QueueTimeout => {
            "Run `devctl avail` to see what starts soon, then create it with fewer GPUs, another flavor or `--at`."
                .into()
        }
        Reason::Booked => "The server is booked and starts at the booked time.".into(),
        Reason::ImageNotFound => "Check the name of the image. The cluster must be able to pull it.".into(),
        Reason::ImageDenied => "Ask an administrator for a pull Secret and pass it with `--pull-secret`.".into(),
        Reason::CrashLoop => format!(
            "The entrypoint of the image exits immediately. Run `devctl logs {name} --previous`, or omit `--preserve-entrypoint`."
        ),
        Reason::SecretMissing => "Ask an administrator to create the Secret that `--secret-env` refers to; the server then continues.".into(),
        Reason::PodTerminationBlocked => {
            format!("An old pod still exists. Inspect it with `kubectl get pods -l odc.dev/server={name} -o yaml`.")
        }
        Reason::NodeLost => {
            "The node of the server does not respond. A server with a PVC waits until the old pod is confirmed to be gone.".into()
        }
        Reason::Idle => {
            format!("Connect with `devctl ssh {name}`, or run `odc-keep-alive` in the server, to keep it running.")
        }
        Reason::ExpiringSoon => format!("Extend the lifetime with `devctl extend {name} 2h`."),
        Reason::AgentUnreachable => {
            "The agent in the server does not respond to the operator. The server is not stopped for this reason."
                .into()
        }
        Reason::OutOfMemory => "The server repeatedly ran out of memory. Use a flavor with more memory.".into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hints_come_from_failed_conditions() {
        let server = json!({"metadata": {"name": "box"}, "spec": {"home": {}}, "status": {"phase": "Pending", "conditions": [
            {"type": "Accepted", "status": "True", "reason": "FlavorNotFound", "lastTransitionTime": null},
            {"type": "DiskReady", "status": "False", "reason": "DiskInUse", "lastTransitionTime": null}]}});
        let hints = hints(&serde_json::from_value(server).unwrap(), &[], Timestamp::UNIX_EPOCH);
        assert_eq!(hints.len(), 1);
        assert!(hints[0].contains("Another server uses this home"), "{hints:?}");
    }

    #[test]
    fn missing_status_gets_a_hint_after_a_delay() {
        let server =
            json!({"metadata": {"name": "box", "creationTimestamp": "1970-01-01T00:00:00Z"}, "spec": {"home": {}}});
        let server: ServerSummary = serde_json::from_value(server).unwrap();
        let count = |second| hints(&server, &[], Timestamp::from_second(second).unwrap()).len();
        assert_eq!((count(MAX_OPERATOR_DELAY_SECONDS), count(MAX_OPERATOR_DELAY_SECONDS + 1)), (0, 1));
    }
}
