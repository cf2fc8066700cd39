//! The steps of a server that starts, hibernates or stops. No I/O.

use jiff::Timestamp;
use odc_api::v1alpha1::Phase;

use crate::client::Event;
use crate::model::queue::{format_delay, format_eta};
use crate::model::server::{Admission, Pod, ServerSummary};
use crate::output::duration::{format_clock, format_until};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepState {
    Done,
    Running,
    /// Does not proceed without a change by the user.
    Blocked,
}

/// Identifies a step while its text changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKey {
    Request,
    Image,
    Disk,
    Queue,
    Ready,
    Pod(String),
    Hibernate,
    Stop,
    Operation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub key: StepKey,
    pub state: StepState,
    pub text: String,
    /// Changes if the step is worth a new line in a log, unlike `text`, which may contain times.
    pub log_key: String,
    /// When the step began.
    pub since: Option<Timestamp>,
}

impl Step {
    pub fn new(key: StepKey, state: StepState, text: impl Into<String>, since: Option<Timestamp>) -> Self {
        let text = text.into();
        Self { key, state, log_key: text.clone(), text, since }
    }
}

pub fn progress_steps(server: &ServerSummary, events: &[Event], now: Timestamp) -> Vec<Step> {
    let mut steps = Vec::new();
    let entered = |phase: Phase| {
        let entries = server.status.timeline.iter().rev();
        entries.map(|entry| (&entry.phase, entry.at.0)).find(|(name, _)| *name == phase.as_str()).map(|(_, at)| at)
    };
    let created = server.created();
    match server.phase() {
        None | Some(Phase::Pending | Phase::Building) => steps.push(pending_step(server, created)),
        Some(Phase::Queued) => {
            let admission = server.status.admission.clone().unwrap_or_default();
            let since = entered(Phase::Queued).or(created);
            let text = match server.booked_start(now) {
                Some(start) => format_booking(&admission, start, now),
                None => format_queue(&admission, now),
            };
            let log_key = format!("{:?} {:?} {}", admission.position, admission.message, admission.eta.is_some());
            steps.push(Step { log_key, ..Step::new(StepKey::Queue, StepState::Running, text, since) });
        }
        Some(Phase::Starting) => {
            steps.push(scheduled_step(server));
            steps.extend(image_step(server, events));
            steps.extend(pod_steps(server, events, entered(Phase::Starting).or(created)));
        }
        Some(Phase::Running) => {
            steps.push(scheduled_step(server));
            steps.extend(image_step(server, events).filter(|step| step.state == StepState::Done));
            let state = if server.is_ready() { StepState::Done } else { StepState::Running };
            let text = if server.is_ready() { "ready".to_owned() } else { ready_message(server, "starting") };
            steps.push(Step::new(StepKey::Ready, state, text, entered(Phase::Running)));
        }
        Some(Phase::Hibernating) => {
            let text = "hibernating: syncing data to disk";
            steps.push(Step::new(StepKey::Hibernate, StepState::Running, text, entered(Phase::Hibernating)));
        }
        Some(Phase::Hibernated) => {
            let (state, text) = if server.observed_current() {
                (StepState::Done, "hibernated")
            } else {
                (StepState::Running, "waking")
            };
            steps.push(Step::new(StepKey::Hibernate, state, text, entered(Phase::Hibernated)));
        }
        Some(Phase::Stopping) => {
            let text = "stopping: syncing data to disk";
            steps.push(Step::new(StepKey::Stop, StepState::Running, text, entered(Phase::Stopping)));
        }
        Some(finished @ (Phase::Expired | Phase::Cancelled)) => {
            steps.push(Step::new(StepKey::Stop, StepState::Done, finished.as_str().to_lowercase(), None));
        }
        Some(Phase::Failed) => steps.push(Step::new(StepKey::Stop, StepState::Blocked, "failed", None)),
    }
    steps
}

/// Returns the first failed precondition of a server that is not queued yet.
fn pending_step(server: &ServerSummary, since: Option<Timestamp>) -> Step {
    let conditions = [("Accepted", StepKey::Request), ("ImageReady", StepKey::Image), ("DiskReady", StepKey::Disk)];
    for (kind, key) in conditions {
        if let Some(condition) = server.condition(kind).filter(|condition| condition.status == "False") {
            let state = if key == StepKey::Image { StepState::Running } else { StepState::Blocked };
            return Step::new(key, state, condition.message.clone(), since);
        }
    }
    Step::new(StepKey::Request, StepState::Running, "created, waiting for the operator", since)
}

fn scheduled_step(server: &ServerSummary) -> Step {
    let nodes = server.status.admission.as_ref().map(|admission| admission.nodes.as_slice()).unwrap_or_default();
    let text = match nodes {
        [] => "scheduled".to_owned(),
        [node] => format!("scheduled on {node}"),
        nodes => format!("scheduled on {} nodes", nodes.len()),
    };
    Step::new(StepKey::Queue, StepState::Done, text, None)
}

/// Returns the image pull, from the events of the kubelet.
fn image_step(server: &ServerSummary, events: &[Event]) -> impl Iterator<Item = Step> {
    let started = server.status.timeline.iter().rev().find(|entry| entry.phase == "Starting").map(|entry| entry.at.0);
    // Skip the pull of an earlier run. Events have a resolution of one second.
    let is_current = move |event: &&Event| match (event.at, started) {
        (Some(at), Some(started)) => at.as_second() + 1 >= started.as_second(),
        _ => true,
    };
    let mut step = None;
    for event in events.iter().filter(is_current) {
        match event.reason.as_str() {
            "Pulling" => {
                let image = quoted(&event.message).unwrap_or("the image");
                step = Some(Step::new(StepKey::Image, StepState::Running, format!("pulling {image}"), event.at));
            }
            "Pulled" => {
                step = Some(Step::new(StepKey::Image, StepState::Done, format_pulled(&event.message), None));
            }
            "Failed" | "BackOff" if event.message.contains("pull") => {
                step = Some(Step::new(StepKey::Image, StepState::Blocked, event.message.clone(), None));
            }
            _ => {}
        }
    }
    step.into_iter()
}

/// Formats `Successfully pulled image "x" in 5.1s (5.1s including waiting). Image size: 126341 bytes.`
fn format_pulled(message: &str) -> String {
    let Some(image) = quoted(message) else { return "image present".to_owned() };
    let elapsed = message.split(" in ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let elapsed = elapsed.filter(|word| word.starts_with(|character: char| character.is_ascii_digit()));
    let size =
        message.split("Image size: ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    match (elapsed, size) {
        (Some(elapsed), Some(size)) => format!("pulled {image} ({} in {elapsed})", format_bytes(size)),
        (Some(elapsed), None) => format!("pulled {image} in {elapsed}"),
        _ => format!("{image} already present"),
    }
}

fn quoted(message: &str) -> Option<&str> {
    message.split('"').nth(1)
}

fn format_bytes(size: u64) -> String {
    match size {
        0..1_000_000 => format!("{} kB", size / 1000),
        1_000_000..1_000_000_000 => format!("{} MB", size / 1_000_000),
        _ => format!("{}.{} GB", size / 1_000_000_000, size / 100_000_000 % 10),
    }
}

/// Returns one step per node of a multi-node server, or one for a single node.
fn pod_steps(server: &ServerSummary, events: &[Event], since: Option<Timestamp>) -> Vec<Step> {
    if server.nodes() == 1 {
        return vec![Step::new(StepKey::Ready, StepState::Running, ready_message(server, "starting"), since)];
    }
    let step = |pod: &Pod| {
        let key = StepKey::Pod(pod.name.clone());
        let node = pod.node.as_deref().map(|node| format!(" on {node}")).unwrap_or_default();
        if pod.ready {
            return Step::new(key, StepState::Done, format!("{}{node} ready", pod.name), None);
        }
        let last = events.iter().rev().find(|event| event.object == format!("Pod {}", pod.name));
        let activity = last.map_or("starting", |event| match event.reason.as_str() {
            "Pulling" => "pulling its image",
            "Scheduled" => "scheduled",
            _ => "starting",
        });
        Step::new(key, StepState::Running, format!("{}{node} {activity}", pod.name), since)
    };
    server.status.pods.iter().map(step).collect()
}

/// Returns the message of the Ready condition if it names a cause.
fn ready_message(server: &ServerSummary, default: &str) -> String {
    let cause = server.condition("Ready").filter(|ready| ready.reason != "Starting");
    let message = cause.map(|ready| ready.message.trim_end_matches('.').to_owned());
    message.filter(|message| !message.is_empty()).unwrap_or_else(|| default.to_owned())
}

/// `queue position 3, starts in about 1h20m (90% within 3h): none is free`.
pub fn format_queue(admission: &Admission, now: Timestamp) -> String {
    let position =
        admission.position.map_or_else(|| "queued".to_owned(), |position| format!("queue position {position}"));
    let eta = admission.eta.as_ref().map(|eta| format!(", starts {}", format_eta(eta, now)));
    let message = admission.message.as_ref().map(|message| format!(": {}", message.trim_end_matches('.')));
    let delay = admission.delayed.as_ref().map(|delay| format!(". {}", format_delay(delay, now).trim_end_matches('.')));
    format!("{position}{}{}{}", eta.unwrap_or_default(), message.unwrap_or_default(), delay.unwrap_or_default())
}

/// `booked for 09:00 (in 2h): the start time is reserved`.
pub fn format_booking(admission: &Admission, start: Timestamp, now: Timestamp) -> String {
    let message = admission.message.as_ref().map(|message| format!(": {}", message.trim_end_matches('.')));
    format!("booked for {} (in {}){}", format_clock(start, now), format_until(start, now), message.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn render(status: &Value, nodes: u32, events: &[Event]) -> Vec<String> {
        let server = json!({"metadata": {"name": "box"}, "spec": {"nodes": nodes, "home": {}}, "status": status});
        let server: ServerSummary = serde_json::from_value(server).unwrap();
        let symbol = |state| match state {
            StepState::Done => "✓",
            StepState::Running => "…",
            StepState::Blocked => "!",
        };
        let steps = progress_steps(&server, events, at(1000));
        steps.iter().map(|step| format!("{} {}", symbol(step.state), step.text)).collect()
    }

    fn event(reason: &str, message: &str) -> Event {
        Event {
            at: Some(at(900)),
            object: "Pod box-0".into(),
            warning: false,
            reason: reason.into(),
            message: message.into(),
            count: 1,
        }
    }

    #[test]
    fn rejected_request_is_blocked() {
        let status = json!({"phase": "Pending", "conditions": [
            {"type": "Accepted", "status": "False", "reason": "FlavorNotFound", "message": "No such flavor.", "lastTransitionTime": null}]});
        assert_eq!(render(&status, 1, &[]), ["! No such flavor."]);
        assert_eq!(render(&json!({}), 1, &[]), ["… created, waiting for the operator"]);
    }

    #[test]
    fn queue_step_has_an_estimate_only_if_known() {
        let mut admission = json!({"position": 3, "message": "5 of 8 devices are free."});
        assert_eq!(
            render(&json!({"phase": "Queued", "admission": admission}), 1, &[]),
            ["… queue position 3: 5 of 8 devices are free"]
        );
        admission["eta"] = json!({"p50": at(1000 + 2400).to_string(), "p90": at(9000).to_string()});
        assert_eq!(
            render(&json!({"phase": "Queued", "admission": admission}), 1, &[]),
            ["… queue position 3, starts in about 40m (90% within 2h13m): 5 of 8 devices are free"]
        );
    }

    #[test]
    fn delayed_start_has_its_reason() {
        let delayed = json!({"from": at(4600).to_string(), "to": at(8200).to_string(), "reason": "Extended",
            "message": "A running server was extended."});
        let admission = json!({"position": 1, "message": "None is free.", "delayed": delayed});
        let text = render(&json!({"phase": "Queued", "admission": admission}), 1, &[]).remove(0);
        assert!(text.starts_with("… queue position 1: None is free. Latest start moved from "), "{text}");
        assert!(text.ends_with(". A running server was extended"), "{text}");
    }

    #[test]
    fn log_key_ignores_elapsed_time() {
        let admission = json!({"position": 3, "eta": {"p50": at(5000).to_string(), "p90": at(9000).to_string()}});
        let server = json!({"metadata": {"name": "box"}, "spec": {"home": {}},
            "status": {"phase": "Queued", "admission": admission}});
        let server: ServerSummary = serde_json::from_value(server).unwrap();
        let step = |second| progress_steps(&server, &[], at(second)).remove(0);
        assert_ne!(step(1000).text, step(2000).text);
        assert_eq!(step(1000).log_key, step(2000).log_key);
    }

    #[test]
    fn booking_has_its_start_time() {
        let status = json!({"phase": "Queued", "admission": {"message": "The start time is reserved."}});
        let server = json!({"metadata": {"name": "box"}, "status": status,
            "spec": {"home": {}, "scheduling": {"notBefore": at(8200).to_string()}}});
        let server: ServerSummary = serde_json::from_value(server).unwrap();
        let text = progress_steps(&server, &[], at(1000)).remove(0).text;
        assert!(text.starts_with("booked for ") && text.ends_with(" (in 2h): The start time is reserved"), "{text}");
    }

    #[test]
    fn image_pull_has_size_and_duration() {
        let status = || json!({"phase": "Starting", "admission": {"nodes": ["n1"]}});
        let pulling = event("Pulling", r#"Pulling image "reg/base:1""#);
        assert_eq!(
            render(&status(), 1, std::slice::from_ref(&pulling)),
            ["✓ scheduled on n1", "… pulling reg/base:1", "… starting"]
        );
        let pulled =
            r#"Successfully pulled image "reg/base:1" in 5.1s (5.1s including waiting). Image size: 126341000 bytes."#;
        let done = [pulling, event("Pulled", pulled)];
        assert_eq!(render(&status(), 1, &done)[1], "✓ pulled reg/base:1 (126 MB in 5.1s)");
        let present = [event("Pulled", r#"Container image "reg/base:1" already present on machine"#)];
        assert_eq!(render(&status(), 1, &present)[1], "✓ reg/base:1 already present");
    }

    #[test]
    fn multi_node_server_has_one_step_per_node() {
        let status = json!({"phase": "Starting", "admission": {"nodes": ["n1", "n2"]},
            "pods": [{"name": "box-0", "node": "n1", "ready": true}, {"name": "box-1", "node": "n2", "ready": false}]});
        assert_eq!(
            render(&status, 2, &[]),
            ["✓ scheduled on 2 nodes", "✓ box-0 on n1 ready", "… box-1 on n2 starting"]
        );
    }

    #[test]
    fn image_pull_of_an_earlier_run_is_ignored() {
        let status = json!({"phase": "Starting", "timeline": [{"phase": "Starting", "at": at(990).to_string(), "reason": "Admitted"}]});
        assert_eq!(render(&status, 1, &[event("Pulling", r#"Pulling image "old""#)]), ["✓ scheduled", "… starting"]);
    }
}
