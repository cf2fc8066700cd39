//! What is happening to a server, told step by step. Pure: the same facts give the same story.

use jiff::Timestamp;
use odc_api::v1alpha1::Phase;

use crate::backend::Happening;
use crate::glance::{Admission, Glance};
use crate::output::time::{clock, until};
use crate::prospect::{in_words, moved};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Done,
    Doing,
    /// It does not go on by itself.
    Stuck,
}

/// One line. Its key stays while its words change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub key: String,
    pub mark: Mark,
    pub text: String,
    /// What of it is worth a line of its own where lines cannot be drawn over: that time passes is not.
    pub news: String,
    /// Since when it has been going on.
    pub since: Option<Timestamp>,
}

impl Step {
    fn new(key: &str, mark: Mark, text: impl Into<String>, since: Option<Timestamp>) -> Self {
        let text = text.into();
        Self { key: key.to_owned(), mark, news: text.clone(), text, since }
    }
}

pub fn story(server: &Glance, happened: &[Happening], now: Timestamp) -> Vec<Step> {
    let mut steps = Vec::new();
    let entered = |phase: Phase| {
        let entries = server.status.timeline.iter().rev();
        entries.map(|entry| (&entry.phase, entry.at.0)).find(|(word, _)| *word == phase.as_str()).map(|(_, at)| at)
    };
    let begun = server.created();
    match server.phase() {
        None | Some(Phase::Pending | Phase::Building) => steps.push(pending(server, begun)),
        Some(Phase::Queued) => {
            let admission = server.status.admission.clone().unwrap_or_default();
            let since = entered(Phase::Queued).or(begun);
            let text = match server.booked(now) {
                Some(at) => booked_words(&admission, at, now),
                None => queue_words(&admission, now),
            };
            let news = format!("{:?} {:?} {}", admission.position, admission.message, admission.eta.is_some());
            steps.push(Step { news, ..Step::new("queue", Mark::Doing, text, since) });
        }
        Some(Phase::Starting) => {
            steps.push(granted(server));
            steps.extend(image(server, happened));
            steps.extend(pods(server, happened, entered(Phase::Starting).or(begun)));
        }
        Some(Phase::Running) => {
            steps.push(granted(server));
            steps.extend(image(server, happened).filter(|step| step.mark == Mark::Done));
            let ready = if server.ready() { Mark::Done } else { Mark::Doing };
            let text = if server.ready() { "ready".to_owned() } else { why(server, "starting") };
            steps.push(Step::new("ready", ready, text, entered(Phase::Running)));
        }
        Some(Phase::Hibernating) => {
            steps.push(Step::new(
                "sleep",
                Mark::Doing,
                "going to sleep: everything is written to disk",
                entered(Phase::Hibernating),
            ));
        }
        Some(Phase::Hibernated) => {
            let mark = if server.settled() { Mark::Done } else { Mark::Doing };
            let text = if mark == Mark::Done { "asleep" } else { "waking" };
            steps.push(Step::new("sleep", mark, text, entered(Phase::Hibernated)));
        }
        Some(Phase::Stopping) => {
            steps.push(Step::new(
                "stop",
                Mark::Doing,
                "stopping: everything is written to disk",
                entered(Phase::Stopping),
            ));
        }
        Some(ended @ (Phase::Expired | Phase::Cancelled)) => {
            steps.push(Step::new("stop", Mark::Done, ended.as_str().to_lowercase(), None));
        }
        Some(Phase::Failed) => steps.push(Step::new("stop", Mark::Stuck, "failed", None)),
    }
    steps
}

/// Not in the queue yet: what is missing, in the order in which it is looked at.
fn pending(server: &Glance, since: Option<Timestamp>) -> Step {
    for (kind, key) in [("Accepted", "request"), ("ImageReady", "image"), ("DiskReady", "disk")] {
        if let Some(condition) = server.condition(kind).filter(|condition| condition.status == "False") {
            let mark = if kind == "ImageReady" { Mark::Doing } else { Mark::Stuck };
            return Step::new(key, mark, condition.message.clone(), since);
        }
    }
    Step::new("request", Mark::Doing, "asked for", since)
}

fn granted(server: &Glance) -> Step {
    let nodes = server.status.admission.as_ref().map(|admission| admission.nodes.as_slice()).unwrap_or_default();
    let text = match nodes {
        [] => "granted".to_owned(),
        [node] => format!("granted on {node}"),
        nodes => format!("granted on {} nodes", nodes.len()),
    };
    Step::new("queue", Mark::Done, text, None)
}

/// The pull of the image, as the kubelet tells it.
fn image(server: &Glance, happened: &[Happening]) -> impl Iterator<Item = Step> {
    let since_start =
        server.status.timeline.iter().rev().find(|entry| entry.phase == "Starting").map(|entry| entry.at.0);
    // Events of an earlier run are about an earlier pull.
    let current = move |happening: &&Happening| match (happening.at, since_start) {
        (Some(at), Some(start)) => at.as_second() + 1 >= start.as_second(),
        _ => true,
    };
    let mut step = None;
    for happening in happened.iter().filter(current) {
        match happening.reason.as_str() {
            "Pulling" => {
                let image = quoted(&happening.message).unwrap_or("the image");
                step = Some(Step::new("image", Mark::Doing, format!("pulling {image}"), happening.at));
            }
            "Pulled" => {
                step = Some(Step::new("image", Mark::Done, pulled(&happening.message), None));
            }
            "Failed" | "BackOff" if happening.message.contains("pull") => {
                step = Some(Step::new("image", Mark::Stuck, happening.message.clone(), None));
            }
            _ => {}
        }
    }
    step.into_iter()
}

/// `Successfully pulled image "x" in 5.1s (5.1s including waiting). Image size: 126341 bytes.`
fn pulled(message: &str) -> String {
    let Some(image) = quoted(message) else { return "image there".to_owned() };
    let took = message.split(" in ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let took = took.filter(|word| word.starts_with(|letter: char| letter.is_ascii_digit()));
    let size =
        message.split("Image size: ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    match (took, size) {
        (Some(took), Some(size)) => format!("pulled {image} ({} in {took})", bytes(size)),
        (Some(took), None) => format!("pulled {image} in {took}"),
        _ => format!("{image} was there already"),
    }
}

fn quoted(message: &str) -> Option<&str> {
    message.split('"').nth(1)
}

fn bytes(size: u64) -> String {
    match size {
        0..1_000_000 => format!("{} kB", size / 1000),
        1_000_000..1_000_000_000 => format!("{} MB", size / 1_000_000),
        _ => format!("{}.{} GB", size / 1_000_000_000, size / 100_000_000 % 10),
    }
}

/// One row for each node of a gang, or what a single server is at.
fn pods(server: &Glance, happened: &[Happening], since: Option<Timestamp>) -> Vec<Step> {
    if server.nodes() == 1 {
        return vec![Step::new("ready", Mark::Doing, why(server, "starting"), since)];
    }
    let row = |pod: &crate::glance::Pod| {
        let node = pod.node.as_deref().map(|node| format!(" on {node}")).unwrap_or_default();
        if pod.ready {
            return Step::new(&pod.name, Mark::Done, format!("{}{node} ready", pod.name), None);
        }
        let last = happened.iter().rev().find(|happening| happening.about == format!("Pod {}", pod.name));
        let doing = last.map_or("starting", |happening| match happening.reason.as_str() {
            "Pulling" => "pulling its image",
            "Scheduled" => "placed",
            _ => "starting",
        });
        Step::new(&pod.name, Mark::Doing, format!("{}{node} {doing}", pod.name), since)
    };
    server.status.pods.iter().map(row).collect()
}

fn why(server: &Glance, otherwise: &str) -> String {
    // That it starts is no reason; what keeps it from starting is.
    let reason = server.condition("Ready").filter(|ready| ready.reason != "Starting");
    let message = reason.map(|ready| ready.message.trim_end_matches('.').to_owned());
    message.filter(|message| !message.is_empty()).unwrap_or_else(|| otherwise.to_owned())
}

/// The place in the queue in words; no promise where the queue makes none.
pub fn queue_words(admission: &Admission, now: Timestamp) -> String {
    let place = admission
        .position
        .map_or_else(|| "in the queue".to_owned(), |position| format!("place {position} in the queue"));
    let eta = admission.eta.as_ref().map(|eta| format!(", starts {}", in_words(eta, now)));
    let why = admission.message.as_ref().map(|message| format!(": {}", message.trim_end_matches('.')));
    let later = admission.moved.as_ref().map(|from| format!(". {}", moved(from, now).trim_end_matches('.')));
    format!("{place}{}{}{}", eta.unwrap_or_default(), why.unwrap_or_default(), later.unwrap_or_default())
}

/// A booking whose time has not come, and what the queue says to it.
pub fn booked_words(admission: &Admission, at: Timestamp, now: Timestamp) -> String {
    let why = admission.message.as_ref().map(|message| format!(": {}", message.trim_end_matches('.')));
    format!("booked for {} (in {}){}", clock(at, now), until(at, now), why.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn told(status: &Value, nodes: u32, happened: &[Happening]) -> Vec<String> {
        let server = json!({"metadata": {"name": "box"}, "spec": {"nodes": nodes, "home": {}}, "status": status});
        let server: Glance = serde_json::from_value(server).unwrap();
        let mark = |mark| match mark {
            Mark::Done => "✓",
            Mark::Doing => "…",
            Mark::Stuck => "!",
        };
        story(&server, happened, at(1000)).iter().map(|step| format!("{} {}", mark(step.mark), step.text)).collect()
    }

    fn event(reason: &str, message: &str) -> Happening {
        Happening {
            at: Some(at(900)),
            about: "Pod box-0".into(),
            warning: false,
            reason: reason.into(),
            message: message.into(),
            times: 1,
        }
    }

    #[test]
    fn a_refused_request_says_what_to_change() {
        let status = json!({"phase": "Pending", "conditions": [
            {"type": "Accepted", "status": "False", "reason": "UnknownFlavor", "message": "No such flavor.", "lastTransitionTime": null}]});
        assert_eq!(told(&status, 1, &[]), ["! No such flavor."]);
        assert_eq!(told(&json!({}), 1, &[]), ["… asked for"]);
    }

    #[test]
    fn the_queue_promises_only_what_it_knows() {
        let mut admission = json!({"position": 3, "message": "5 of 8 devices are free."});
        assert_eq!(
            told(&json!({"phase": "Queued", "admission": admission}), 1, &[]),
            ["… place 3 in the queue: 5 of 8 devices are free"]
        );
        admission["eta"] = json!({"p50": at(1000 + 2400).to_string(), "p90": at(9000).to_string()});
        let told = told(&json!({"phase": "Queued", "admission": admission}), 1, &[]);
        assert_eq!(
            told,
            [
                "… place 3 in the queue, starts in about 40 m (nine of ten start within 2 h 13 m): 5 of 8 devices are free"
            ]
        );
    }

    #[test]
    fn a_start_that_moved_says_why() {
        let moved = json!({"from": at(4600).to_string(), "to": at(8200).to_string(), "reason": "Extended",
            "message": "Somebody who runs stays longer than was known."});
        let admission = json!({"position": 1, "message": "None is free.", "moved": moved});
        let text = told(&json!({"phase": "Queued", "admission": admission}), 1, &[]).remove(0);
        assert!(text.starts_with("… place 1 in the queue: None is free. Its latest start moved from "), "{text}");
        assert!(text.ends_with(". Somebody who runs stays longer than was known"), "{text}");
    }

    #[test]
    fn that_time_passes_is_no_news() {
        let admission = json!({"position": 3, "eta": {"p50": at(5000).to_string(), "p90": at(9000).to_string()}});
        let server = json!({"metadata": {"name": "box"}, "spec": {"home": {}},
            "status": {"phase": "Queued", "admission": admission}});
        let server: Glance = serde_json::from_value(server).unwrap();
        let step = |second| story(&server, &[], at(second)).remove(0);
        assert_ne!(step(1000).text, step(2000).text);
        assert_eq!(step(1000).news, step(2000).news);
    }

    #[test]
    fn a_booking_says_its_time_and_whether_it_is_promised() {
        let status = json!({"phase": "Queued", "admission": {"message": "It is promised."}});
        let server = json!({"metadata": {"name": "box"}, "status": status,
            "spec": {"home": {}, "scheduling": {"notBefore": at(8200).to_string()}}});
        let server: Glance = serde_json::from_value(server).unwrap();
        let text = story(&server, &[], at(1000)).remove(0).text;
        assert!(text.starts_with("booked for ") && text.ends_with(" (in 2h): It is promised"), "{text}");
    }

    #[test]
    fn a_pull_has_its_size_and_time() {
        let status = || json!({"phase": "Starting", "admission": {"nodes": ["n1"]}});
        let pulling = event("Pulling", r#"Pulling image "reg/base:1""#);
        assert_eq!(
            told(&status(), 1, std::slice::from_ref(&pulling)),
            ["✓ granted on n1", "… pulling reg/base:1", "… starting"]
        );
        let pulled =
            r#"Successfully pulled image "reg/base:1" in 5.1s (5.1s including waiting). Image size: 126341000 bytes."#;
        let done = [pulling, event("Pulled", pulled)];
        assert_eq!(told(&status(), 1, &done)[1], "✓ pulled reg/base:1 (126 MB in 5.1s)");
        let there = [event("Pulled", r#"Container image "reg/base:1" already present on machine"#)];
        assert_eq!(told(&status(), 1, &there)[1], "✓ reg/base:1 was there already");
    }

    #[test]
    fn a_gang_has_a_row_for_each_node() {
        let status = json!({"phase": "Starting", "admission": {"nodes": ["n1", "n2"]},
            "pods": [{"name": "box-0", "node": "n1", "ready": true}, {"name": "box-1", "node": "n2", "ready": false}]});
        assert_eq!(told(&status, 2, &[]), ["✓ granted on 2 nodes", "✓ box-0 on n1 ready", "… box-1 on n2 starting"]);
    }

    #[test]
    fn an_earlier_pull_is_not_told_again() {
        let status = json!({"phase": "Starting", "timeline": [{"phase": "Starting", "at": at(990).to_string(), "reason": "Granted"}]});
        assert_eq!(told(&status, 1, &[event("Pulling", r#"Pulling image "old""#)]), ["✓ granted", "… starting"]);
    }
}
