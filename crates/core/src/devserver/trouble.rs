//! Why a pod does not become ready: what Kubernetes says, in classes, each with advice for the owner.

use odc_api::v1alpha1::condition::Reason;

use crate::seen::{Container, ContainerState, Pod};

/// How often a container may die before it has ever been ready.
const ENOUGH_DEATHS: i64 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub reason: Reason,
    /// What is wrong and what to do, in a sentence or two.
    pub message: String,
    /// The last lines of the container's log.
    pub log: Option<String>,
    /// Waiting longer would not help.
    pub fatal: bool,
}

/// The first thing wrong with a pod that is not ready; nothing if it is only on its way.
pub fn of(pod: &Pod) -> Option<Trouble> {
    pod.server.as_deref()?.containers.iter().find_map(of_container)
}

fn of_container(container: &Container) -> Option<Trouble> {
    let last_log = || container.last.as_ref().map(|exit| exit.message.clone()).filter(|log| !log.is_empty());
    match &container.state {
        ContainerState::Waiting { reason, message } => match reason.as_str() {
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" | "ImageInspectError" => {
                Some(image(container, reason, message))
            }
            "CreateContainerConfigError" => Some(Trouble {
                reason: Reason::SecretMissing,
                message: format!(
                    "Its environment cannot be made: {}. Create what is missing, and the server starts by itself.",
                    one_line(message)
                ),
                log: None,
                fatal: false,
            }),
            "CreateContainerError" | "RunContainerError" | "StartError" => Some(Trouble {
                reason: Reason::DiesAtStart,
                message: format!("The image cannot be started: {}. Choose another image.", one_line(message)),
                log: last_log(),
                fatal: container.restarts >= ENOUGH_DEATHS,
            }),
            "CrashLoopBackOff" => died(container, last_log()),
            _ => None,
        },
        ContainerState::Ended(exit) if exit.code != 0 => {
            let log = Some(exit.message.clone()).filter(|log| !log.is_empty()).or_else(last_log);
            died(container, log)
        }
        ContainerState::Ended(_) | ContainerState::Running => None,
    }
}

fn died(container: &Container, log: Option<String>) -> Option<Trouble> {
    let exit = match &container.state {
        ContainerState::Ended(exit) => Some(exit),
        _ => container.last.as_ref(),
    }?;
    let fatal = container.restarts >= ENOUGH_DEATHS;
    if exit.reason == "OOMKilled" {
        let message = "It ran out of memory while it started. Take a flavor or count with more memory.".to_owned();
        return Some(Trouble { reason: Reason::OutOfMemory, message, log, fatal });
    }
    let message = format!(
        "Its program ended with code {} right after the start. Its last lines say why; mend the image or its \
         entrypoint, or leave image.keepEntrypoint out.",
        exit.code
    );
    Some(Trouble { reason: Reason::DiesAtStart, message, log, fatal })
}

/// Registries word it differently; these are the words of the usual ones.
const ABSENT: &[&str] = &["not found", "manifest unknown", "name unknown", "does not exist", "status code 404"];
/// Numbers alone would be found in digests, and a hiccup of the registry would end the server.
const DENIED: &[&str] = &[
    "unauthorized",
    "denied",
    "forbidden",
    "no basic auth",
    "authentication required",
    "status code 401",
    "status code 403",
];

fn image(container: &Container, reason: &str, message: &str) -> Trouble {
    let text = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    // The first failure may be a hiccup of the registry; the kubelet tries again before it backs off.
    let again = reason != "ErrImagePull";
    let ours = super::build::is_agent(&container.name);
    let whose = if ours { "The image of ODC's own agent" } else { "The image" };
    let (reason, message, fatal) = if reason == "InvalidImageName" {
        (Reason::ImageNotFound, format!("{whose} has a name no registry can have. Correct image.ref."), true)
    } else if says(DENIED) {
        let advice = "Put a login for it into a Secret and name that in image.pullSecret, or correct image.ref.";
        (Reason::ImageDenied, format!("{whose} may not be pulled: the registry wants a login. {advice}"), again)
    } else if says(ABSENT) {
        let advice = "Check the name and tag in image.ref, and create the server anew.";
        (Reason::ImageNotFound, format!("{whose} does not exist. {advice}"), again)
    } else {
        let cause = one_line(message);
        (Reason::ImageNotFound, format!("{whose} cannot be pulled yet, and is tried again: {cause}"), false)
    };
    // A missing agent is the administrator's to mend, and no reason to end anybody's server.
    Trouble { reason, message, log: None, fatal: fatal && !ours }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::Exit;

    fn waiting(reason: &str, message: &str, restarts: i64) -> Option<Trouble> {
        let state = ContainerState::Waiting { reason: reason.into(), message: message.into() };
        let last = Some(Exit { code: 3, reason: "Error".into(), message: "no such table".into() });
        of_container(&Container { name: "dev".into(), restarts, state, last })
    }

    #[test]
    fn troubles_have_classes() {
        use Reason::{DiesAtStart, ImageDenied, ImageNotFound, SecretMissing};
        let not_found = "rpc error: code = NotFound desc = failed to pull: example.org/x:1: not found";
        let denied = "failed to authorize: 401 Unauthorized";
        for (reason, message, restarts, expect) in [
            ("ContainerCreating", "", 0, None),
            ("PodInitializing", "", 0, None),
            ("ErrImagePull", not_found, 0, Some((ImageNotFound, false))),
            ("ImagePullBackOff", not_found, 0, Some((ImageNotFound, true))),
            ("ImagePullBackOff", denied, 0, Some((ImageDenied, true))),
            ("ImagePullBackOff", "dial tcp: i/o timeout", 0, Some((ImageNotFound, false))),
            ("ImagePullBackOff", "x@sha256:401403404: i/o timeout", 0, Some((ImageNotFound, false))),
            ("ImagePullBackOff", "unexpected status code 403", 0, Some((ImageDenied, true))),
            ("ImagePullBackOff", "429 Too Many Requests", 0, Some((ImageNotFound, false))),
            ("InvalidImageName", "couldn't parse", 0, Some((ImageNotFound, true))),
            ("CreateContainerConfigError", "secret \"s\" not found", 0, Some((SecretMissing, false))),
            ("CrashLoopBackOff", "back-off 10s", 1, Some((DiesAtStart, false))),
            ("CrashLoopBackOff", "back-off 40s", 3, Some((DiesAtStart, true))),
        ] {
            let trouble = waiting(reason, message, restarts);
            assert_eq!(trouble.map(|trouble| (trouble.reason, trouble.fatal)), expect, "{reason} {message}");
        }
    }

    #[test]
    fn the_log_comes_along() {
        assert_eq!(waiting("CrashLoopBackOff", "", 3).unwrap().log.as_deref(), Some("no such table"));
    }

    #[test]
    fn a_missing_agent_ends_nobodys_server() {
        let state = ContainerState::Waiting { reason: "ImagePullBackOff".into(), message: "not found".into() };
        let container = Container { name: crate::devserver::build::AGENT.into(), restarts: 0, state, last: None };
        assert!(!of_container(&container).unwrap().fatal);
    }

    #[test]
    fn a_program_that_ends_well_is_no_trouble() {
        let state = ContainerState::Ended(Exit { code: 0, reason: "Completed".into(), message: String::new() });
        let container = Container { name: "odc-agent".into(), restarts: 0, state, last: None };
        assert_eq!(of_container(&container), None);
    }
}
