//! Classification of pod failures reported by Kubernetes, with advice for the owner.

use odc_api::v1alpha1::condition::Reason;

use crate::cluster::{Container, ContainerState, Pod};

/// The number of crashes before the first readiness after which a server fails.
const MAX_START_CRASHES: i64 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFailure {
    pub reason: Reason,
    /// The fault and what to do about it.
    pub message: String,
    /// The tail of the container's log.
    pub log: Option<String>,
    /// Waiting does not help.
    pub fatal: bool,
}

/// Returns the first failure of a pod that is not ready. `pull_secret` is the name in the server's spec.
pub fn find(pod: &Pod, pull_secret: Option<&str>) -> Option<PodFailure> {
    pod.server.as_deref()?.containers.iter().find_map(|container| container_failure(container, pull_secret))
}

fn container_failure(container: &Container, pull_secret: Option<&str>) -> Option<PodFailure> {
    let last_log = || container.last.as_ref().map(|exit| exit.message.clone()).filter(|log| !log.is_empty());
    match &container.state {
        ContainerState::Waiting { reason, message } => match reason.as_str() {
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" | "ImageInspectError" => {
                Some(image_failure(container, reason, message, pull_secret))
            }
            "CreateContainerConfigError" => Some(PodFailure {
                reason: Reason::SecretMissing,
                message: format!(
                    "Invalid container configuration: {}. Create the missing Secret or key to continue.",
                    one_line(message)
                ),
                log: None,
                fatal: false,
            }),
            "CreateContainerError" | "RunContainerError" | "StartError" => Some(PodFailure {
                reason: Reason::CrashLoop,
                message: format!("The container cannot be started: {}. Use another image.", one_line(message)),
                log: last_log(),
                fatal: container.restarts >= MAX_START_CRASHES,
            }),
            "CrashLoopBackOff" => exited(container, last_log()),
            _ => None,
        },
        ContainerState::Terminated(exit) if exit.code != 0 => {
            let log = Some(exit.message.clone()).filter(|log| !log.is_empty()).or_else(last_log);
            exited(container, log)
        }
        ContainerState::Terminated(_) | ContainerState::Running => None,
    }
}

fn exited(container: &Container, log: Option<String>) -> Option<PodFailure> {
    let exit = match &container.state {
        ContainerState::Terminated(exit) => Some(exit),
        _ => container.last.as_deref(),
    }?;
    let fatal = container.restarts >= MAX_START_CRASHES;
    if exit.reason == "OOMKilled" {
        let message = "Out of memory during startup. Use a flavor with more memory, or a higher spec.count.".to_owned();
        return Some(PodFailure { reason: Reason::OutOfMemory, message, log, fatal });
    }
    let message = format!(
        "Container exited with code {} during startup; see status.lastFailure.logTail. Fix the image or its \
         entrypoint, or omit image.keepEntrypoint.",
        exit.code
    );
    Some(PodFailure { reason: Reason::CrashLoop, message, log, fatal })
}

/// Messages of common registries for an image that does not exist.
const NOT_FOUND_MESSAGES: &[&str] =
    &["not found", "manifest unknown", "name unknown", "does not exist", "status code 404"];
/// Messages of common registries for denied access. Bare status codes would also match digests.
const DENIED_MESSAGES: &[&str] = &[
    "unauthorized",
    "denied",
    "forbidden",
    "no basic auth",
    "authentication required",
    "status code 401",
    "status code 403",
];

fn image_failure(container: &Container, reason: &str, message: &str, pull_secret: Option<&str>) -> PodFailure {
    // A file system error of the node is not a response of the registry.
    let text = message.to_lowercase().replace(": permission denied", "");
    let contains = |messages: &[&str]| messages.iter().any(|message| text.contains(message));
    // The first failure may be transient. The kubelet retries before it backs off.
    let repeated = reason != "ErrImagePull";
    let agent = super::build::is_agent(&container.name);
    let image = if agent { "agent image" } else { "image" };
    let fix = |advice: &str| {
        if agent { "Ask an administrator to fix ODC_AGENT_IMAGE.".to_owned() } else { advice.to_owned() }
    };
    let (reason, message, fatal) = if reason == "InvalidImageName" {
        let advice = fix("Recreate the server with a valid image.ref.");
        (Reason::ImageNotFound, format!("Invalid {image} name. {advice}"), true)
    } else if contains(DENIED_MESSAGES) {
        (Reason::ImageDenied, format!("Access to the {image} denied: {}", login_advice(agent, pull_secret)), repeated)
    } else if contains(NOT_FOUND_MESSAGES) {
        let advice = fix("Check the name and tag in image.ref, and recreate the server.");
        (Reason::ImageNotFound, format!("The {image} does not exist. {advice}"), repeated)
    } else {
        let cause = one_line(message);
        (Reason::ImageNotFound, format!("Failed to pull the {image}, retrying: {cause}"), false)
    };
    // Only an administrator can fix the agent image, so it does not fail the server.
    PodFailure { reason, message, log: None, fatal: fatal && !agent }
}

/// Returns the likely cause of denied access and what to do about it. The status of a pod does not say whether its pull
/// secret exists: without one, the image is pulled anonymously and the registry denies access.
fn login_advice(agent: bool, pull_secret: Option<&str>) -> String {
    match pull_secret {
        _ if agent => "the registry requires a login. Ask an administrator to set the flavor's pullSecret.".into(),
        Some(name) => format!(
            "Secret {name} (image.pullSecret) does not exist in this namespace, or the registry rejects its login. Ask an \
             administrator to create or fix it (kubectl create secret docker-registry {name}) and recreate the server, or \
             fix image.ref."
        ),
        None => {
            "the registry requires a login. Ask an administrator for a pull Secret (kubectl create secret docker-registry) \
                 and recreate the server with its name in image.pullSecret, or fix image.ref."
                .into()
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Exit;

    fn waiting(reason: &str, message: &str, restarts: i64) -> Option<PodFailure> {
        let state = ContainerState::Waiting { reason: reason.into(), message: message.into() };
        let last = Some(Exit { code: 3, reason: "Error".into(), message: "no such table".into() });
        container_failure(&Container { name: "dev".into(), restarts, state, last: last.map(Box::new) }, None)
    }

    #[test]
    fn container_states_are_classified() {
        use Reason::{CrashLoop, ImageDenied, ImageNotFound, SecretMissing};
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
            ("CrashLoopBackOff", "back-off 10s", 1, Some((CrashLoop, false))),
            ("CrashLoopBackOff", "back-off 40s", 3, Some((CrashLoop, true))),
        ] {
            let failure = waiting(reason, message, restarts);
            assert_eq!(failure.map(|failure| (failure.reason, failure.fatal)), expect, "{reason} {message}");
        }
    }

    /// Messages of containerd as reported by the kubelet. A missing pull secret gives the same messages; only an event
    /// (`FailedToRetrieveImagePullSecret`) reports it.
    const DENIALS: &[&str] = &[
        r#"failed to pull and unpack image "ghcr.io/lab/private:1": failed to resolve reference "ghcr.io/lab/private:1": failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://ghcr.io/token?scope=repository%3Alab%2Fprivate%3Apull&service=ghcr.io: 401 Unauthorized"#,
        r#"failed to pull and unpack image "123456789012.dkr.ecr.eu-west-1.amazonaws.com/lab/private:1": failed to resolve reference "123456789012.dkr.ecr.eu-west-1.amazonaws.com/lab/private:1": unexpected status from HEAD request to https://123456789012.dkr.ecr.eu-west-1.amazonaws.com/v2/lab/private/manifests/1: 403 Forbidden"#,
        r#"rpc error: code = Unknown desc = failed to pull and unpack image "registry.example.org/private:1": failed to resolve reference "registry.example.org/private:1": pulling from host registry.example.org failed with status code [manifests 1]: 401 Unauthorized"#,
        r#"failed to pull and unpack image "docker.io/lab/private:1": failed to resolve reference "docker.io/lab/private:1": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed"#,
        r#"failed to pull and unpack image "europe-docker.pkg.dev/lab/private/x:1": failed to resolve reference "europe-docker.pkg.dev/lab/private/x:1": failed to authorize: failed to fetch oauth token: unexpected status from GET request to https://europe-docker.pkg.dev/v2/token?scope=repository%3Alab%2Fprivate%2Fx%3Apull&service=: 403 Forbidden: denied: Permission "artifactregistry.repositories.downloadArtifacts" denied on resource "projects/lab/locations/europe/repositories/private" (or it may not exist)"#,
        r#"failed to pull and unpack image "registry.example.org/private:1": failed to resolve reference "registry.example.org/private:1": no basic auth credentials"#,
    ];

    #[test]
    fn denied_image_has_advice() {
        let pull = |reason: &str, message: &str, pull_secret| {
            let state = ContainerState::Waiting { reason: reason.into(), message: message.into() };
            let container = Container { name: "dev".into(), restarts: 0, state, last: None };
            container_failure(&container, pull_secret).unwrap()
        };
        for message in DENIALS {
            // Only the repeated failure is fatal.
            let backing_off = format!("Back-off pulling image \"x\": ErrImagePull: {message}");
            for (reason, message, fatal) in
                [("ErrImagePull", *message, false), ("ImagePullBackOff", backing_off.as_str(), true)]
            {
                let without = pull(reason, message, None);
                assert_eq!((without.reason, without.fatal), (Reason::ImageDenied, fatal), "{message}");
                let text = &without.message;
                assert!(text.contains("requires a login") && text.contains("image.pullSecret"), "{text}");
                let named = pull(reason, message, Some("lab-login"));
                assert_eq!((named.reason, named.fatal), (Reason::ImageDenied, fatal), "{message}");
                let text = &named.message;
                assert!(text.contains("Secret lab-login (image.pullSecret) does not exist"), "{text}");
                assert!(text.contains("kubectl create secret docker-registry lab-login"), "{text}");
            }
        }
    }

    #[test]
    fn unpack_error_of_node_is_not_denied_access() {
        let message = r#"Back-off pulling image "x": ErrImagePull: failed to pull and unpack image "registry.example.org/x:1": failed to extract layer sha256:4010: mount callback failed on /var/lib/containerd/tmpmounts/containerd-mount1: mkdir /var/lib/containerd/tmpmounts/containerd-mount1/etc: permission denied"#;
        let failure = waiting("ImagePullBackOff", message, 0).unwrap();
        assert_eq!((failure.reason, failure.fatal), (Reason::ImageNotFound, false));
    }

    #[test]
    fn crash_has_log_tail() {
        assert_eq!(waiting("CrashLoopBackOff", "", 3).unwrap().log.as_deref(), Some("no such table"));
    }

    #[test]
    fn missing_agent_image_is_not_fatal() {
        let state = ContainerState::Waiting { reason: "ImagePullBackOff".into(), message: "not found".into() };
        let container = Container { name: crate::devserver::build::AGENT.into(), restarts: 0, state, last: None };
        let failure = container_failure(&container, Some("mine")).unwrap();
        assert!(!failure.fatal);
        assert!(failure.message.contains("administrator") && !failure.message.contains("image.ref"), "{failure:?}");
        let denied = ContainerState::Waiting { reason: "ImagePullBackOff".into(), message: "403 Forbidden".into() };
        let failure = container_failure(&Container { state: denied, ..container }, Some("mine")).unwrap();
        assert!(failure.message.contains("flavor's pullSecret") && !failure.message.contains("mine"), "{failure:?}");
    }

    #[test]
    fn successful_exit_is_no_failure() {
        let state = ContainerState::Terminated(Exit { code: 0, reason: "Completed".into(), message: String::new() });
        let container = Container { name: "odc-agent".into(), restarts: 0, state, last: None };
        assert_eq!(container_failure(&container, None), None);
    }
}
