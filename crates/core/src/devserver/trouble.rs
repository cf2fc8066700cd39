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

/// The first thing wrong with a pod that is not ready; nothing if it is only on its way. `pull_secret` is the one its
/// owner named.
pub fn of(pod: &Pod, pull_secret: Option<&str>) -> Option<Trouble> {
    pod.server.as_deref()?.containers.iter().find_map(|container| of_container(container, pull_secret))
}

fn of_container(container: &Container, pull_secret: Option<&str>) -> Option<Trouble> {
    let last_log = || container.last.as_ref().map(|exit| exit.message.clone()).filter(|log| !log.is_empty());
    match &container.state {
        ContainerState::Waiting { reason, message } => match reason.as_str() {
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" | "ImageInspectError" => {
                Some(image(container, reason, message, pull_secret))
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
        _ => container.last.as_deref(),
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

fn image(container: &Container, reason: &str, message: &str, pull_secret: Option<&str>) -> Trouble {
    // A file of the node's that may not be written is no refusal of the registry's.
    let text = message.to_lowercase().replace(": permission denied", "");
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    // The first failure may be a hiccup of the registry; the kubelet tries again before it backs off.
    let again = reason != "ErrImagePull";
    let ours = super::build::is_agent(&container.name);
    let whose = if ours { "The image of ODC's own agent" } else { "The image" };
    let mend = |advice: &str| {
        if ours { "Ask an administrator to correct ODC_AGENT_IMAGE.".to_owned() } else { advice.to_owned() }
    };
    let (reason, message, fatal) = if reason == "InvalidImageName" {
        let advice = mend("Create the server anew with a correct image.ref.");
        (Reason::ImageNotFound, format!("{whose} has a name no registry can have. {advice}"), true)
    } else if says(DENIED) {
        (Reason::ImageDenied, format!("{whose} may not be pulled: {}", login(ours, pull_secret)), again)
    } else if says(ABSENT) {
        let advice = mend("Check the name and tag in image.ref, and create the server anew.");
        (Reason::ImageNotFound, format!("{whose} does not exist. {advice}"), again)
    } else {
        let cause = one_line(message);
        (Reason::ImageNotFound, format!("{whose} cannot be pulled yet, and is tried again: {cause}"), false)
    };
    // A missing agent is the administrator's to mend, and no reason to end anybody's server.
    Trouble { reason, message, log: None, fatal: fatal && !ours }
}

/// What is wrong with the login for a registry, and what to do. That a Secret does not exist is told nowhere in a pod's
/// status: its image is pulled without a login then, and the registry refuses that.
fn login(ours: bool, pull_secret: Option<&str>) -> String {
    match pull_secret {
        _ if ours => "the registry wants a login. Ask an administrator to name one in the flavor's pullSecret.".into(),
        Some(name) => format!(
            "Secret {name}, which image.pullSecret names, does not exist in this namespace, or the registry does not \
             take its login. Create or correct it (kubectl create secret docker-registry {name}), and create the \
             server anew; or correct image.ref."
        ),
        None => {
            "the registry wants a login. Put one into a Secret (kubectl create secret docker-registry), and create \
                 the server anew with its name in image.pullSecret; or correct image.ref."
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
    use crate::seen::Exit;

    fn waiting(reason: &str, message: &str, restarts: i64) -> Option<Trouble> {
        let state = ContainerState::Waiting { reason: reason.into(), message: message.into() };
        let last = Some(Exit { code: 3, reason: "Error".into(), message: "no such table".into() });
        of_container(&Container { name: "dev".into(), restarts, state, last: last.map(Box::new) }, None)
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

    /// As containerd words it and the kubelet passes it on; a Secret that does not exist is told in an event of the
    /// kubelet's alone (`FailedToRetrieveImagePullSecret`), and leaves the same words.
    const DENIALS: &[&str] = &[
        r#"failed to pull and unpack image "ghcr.io/lab/private:1": failed to resolve reference "ghcr.io/lab/private:1": failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://ghcr.io/token?scope=repository%3Alab%2Fprivate%3Apull&service=ghcr.io: 401 Unauthorized"#,
        r#"failed to pull and unpack image "123456789012.dkr.ecr.eu-west-1.amazonaws.com/lab/private:1": failed to resolve reference "123456789012.dkr.ecr.eu-west-1.amazonaws.com/lab/private:1": unexpected status from HEAD request to https://123456789012.dkr.ecr.eu-west-1.amazonaws.com/v2/lab/private/manifests/1: 403 Forbidden"#,
        r#"rpc error: code = Unknown desc = failed to pull and unpack image "registry.example.org/private:1": failed to resolve reference "registry.example.org/private:1": pulling from host registry.example.org failed with status code [manifests 1]: 401 Unauthorized"#,
        r#"failed to pull and unpack image "docker.io/lab/private:1": failed to resolve reference "docker.io/lab/private:1": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed"#,
        r#"failed to pull and unpack image "europe-docker.pkg.dev/lab/private/x:1": failed to resolve reference "europe-docker.pkg.dev/lab/private/x:1": failed to authorize: failed to fetch oauth token: unexpected status from GET request to https://europe-docker.pkg.dev/v2/token?scope=repository%3Alab%2Fprivate%2Fx%3Apull&service=: 403 Forbidden: denied: Permission "artifactregistry.repositories.downloadArtifacts" denied on resource "projects/lab/locations/europe/repositories/private" (or it may not exist)"#,
        r#"failed to pull and unpack image "registry.example.org/private:1": failed to resolve reference "registry.example.org/private:1": no basic auth credentials"#,
    ];

    #[test]
    fn an_image_that_wants_a_login_is_told_with_what_to_do() {
        let pull = |reason: &str, message: &str, pull_secret| {
            let state = ContainerState::Waiting { reason: reason.into(), message: message.into() };
            let container = Container { name: "dev".into(), restarts: 0, state, last: None };
            of_container(&container, pull_secret).unwrap()
        };
        for said in DENIALS {
            // The first time may be a hiccup; after that the server is given up with advice.
            let backing_off = format!("Back-off pulling image \"x\": ErrImagePull: {said}");
            for (reason, message, fatal) in
                [("ErrImagePull", *said, false), ("ImagePullBackOff", backing_off.as_str(), true)]
            {
                let without = pull(reason, message, None);
                assert_eq!((without.reason, without.fatal), (Reason::ImageDenied, fatal), "{message}");
                let told = &without.message;
                assert!(told.contains("wants a login") && told.contains("image.pullSecret"), "{told}");
                let named = pull(reason, message, Some("lab-login"));
                assert_eq!((named.reason, named.fatal), (Reason::ImageDenied, fatal), "{message}");
                let told = &named.message;
                assert!(told.contains("Secret lab-login, which image.pullSecret names, does not exist"), "{told}");
                assert!(told.contains("kubectl create secret docker-registry lab-login"), "{told}");
            }
        }
    }

    #[test]
    fn a_node_that_cannot_unpack_is_no_registry_that_refuses() {
        let said = r#"Back-off pulling image "x": ErrImagePull: failed to pull and unpack image "registry.example.org/x:1": failed to extract layer sha256:4010: mount callback failed on /var/lib/containerd/tmpmounts/containerd-mount1: mkdir /var/lib/containerd/tmpmounts/containerd-mount1/etc: permission denied"#;
        let trouble = waiting("ImagePullBackOff", said, 0).unwrap();
        assert_eq!((trouble.reason, trouble.fatal), (Reason::ImageNotFound, false));
    }

    #[test]
    fn the_log_comes_along() {
        assert_eq!(waiting("CrashLoopBackOff", "", 3).unwrap().log.as_deref(), Some("no such table"));
    }

    #[test]
    fn a_missing_agent_ends_nobodys_server() {
        let state = ContainerState::Waiting { reason: "ImagePullBackOff".into(), message: "not found".into() };
        let container = Container { name: crate::devserver::build::AGENT.into(), restarts: 0, state, last: None };
        let trouble = of_container(&container, Some("mine")).unwrap();
        assert!(!trouble.fatal);
        assert!(trouble.message.contains("administrator") && !trouble.message.contains("image.ref"), "{trouble:?}");
        let denied = ContainerState::Waiting { reason: "ImagePullBackOff".into(), message: "403 Forbidden".into() };
        let trouble = of_container(&Container { state: denied, ..container }, Some("mine")).unwrap();
        assert!(trouble.message.contains("flavor's pullSecret") && !trouble.message.contains("mine"), "{trouble:?}");
    }

    #[test]
    fn a_program_that_ends_well_is_no_trouble() {
        let state = ContainerState::Ended(Exit { code: 0, reason: "Completed".into(), message: String::new() });
        let container = Container { name: "odc-agent".into(), restarts: 0, state, last: None };
        assert_eq!(of_container(&container, None), None);
    }
}
