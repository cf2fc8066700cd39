//! Pods: of everybody what they take, of servers also how they are.

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::jiff::Timestamp;
use odc_api::{annotation, label};

use super::{at, holders};
use crate::amounts::Amounts;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: Option<String>,
    pub phase: PodPhase,
    /// It is being deleted, and has until then to stop by itself.
    pub deleting: Option<Timestamp>,
    /// What the kube-scheduler counts for it, one pod included.
    pub requests: Amounts,
    /// The claims it mounts, and may write to for as long as it is there.
    pub claims: Box<[Box<str>]>,
    /// More about pods of servers.
    pub server: Option<Box<ServerPod>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    Pending,
    Running,
    /// It ended and never starts again; its node's resources are free.
    Succeeded,
    /// As above: evicted, refused by its node, or shut down with it.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPod {
    /// The uid of the `DevServer` that controls it. Somebody may have taken it away.
    pub owner: Option<String>,
    /// The uid it was made for.
    pub made_for: Option<String>,
    /// The name of its server.
    pub server: Option<String>,
    pub run: Option<i64>,
    /// The server's public host key, remembered here from the moment the pod is made.
    pub host_key: Option<String>,
    pub ip: Option<Box<str>>,
    pub created: Option<Timestamp>,
    pub ready: bool,
    /// Why it ended or cannot be placed, in the words of Kubernetes.
    pub reason: Option<Box<str>>,
    pub message: Option<Box<str>>,
    /// The kube-scheduler found no place for it, since then.
    pub unschedulable: Option<Timestamp>,
    /// The finalizers that keep it although it is being deleted; of others nobody asks.
    pub held_by: Box<[String]>,
    /// Those of the init containers first.
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub name: String,
    pub restarts: i64,
    pub state: ContainerState,
    /// How it ended the last time. Few ever did, and this is kept for every pod there is.
    pub last: Option<Box<Exit>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    Waiting { reason: String, message: String },
    Running,
    Ended(Exit),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    pub reason: String,
    /// The end of its log.
    pub message: String,
}

impl Pod {
    pub fn of(pod: &k8s::Pod) -> Self {
        let (meta, spec, status) = (&pod.metadata, pod.spec.as_ref(), pod.status.as_ref());
        let phase = match status.and_then(|status| status.phase.as_deref()) {
            Some("Running" | "Unknown") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            _ => PodPhase::Pending,
        };
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            node: spec.and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()),
            phase,
            deleting: at(meta.deletion_timestamp.as_ref()),
            requests: spec.map(requests).unwrap_or_default(),
            claims: spec.map(|spec| claims(meta.name.as_deref(), spec)).unwrap_or_default(),
            server: ServerPod::of(pod).map(Box::new),
        }
    }

    /// Whether it takes something from its node.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }
}

impl ServerPod {
    /// Nothing for pods of others.
    fn of(pod: &k8s::Pod) -> Option<Self> {
        let (meta, status) = (&pod.metadata, pod.status.as_ref());
        let noted = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).cloned();
        let server = meta.labels.as_ref().and_then(|all| all.get(label::SERVER)).cloned();
        let made_for = noted(annotation::SERVER_UID);
        let controllers = meta.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
        let owner = controllers
            .filter(|owner| owner.kind == "DevServer" && owner.api_version.starts_with("odc.dev/"))
            .map(|owner| owner.uid.clone())
            .next();
        if server.is_none() && made_for.is_none() && owner.is_none() {
            return None;
        }
        let conditions = || status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let ready = conditions().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let refused = conditions().find(|condition| {
            condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
        });
        let of_status =
            |text: fn(&k8s::PodStatus) -> &Option<String>| status.and_then(|status| text(status).as_deref());
        let initial = status.and_then(|status| status.init_container_statuses.as_ref()).into_iter().flatten();
        let main = status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
        let mut containers: Vec<_> = initial.chain(main).map(Container::of).collect();
        // Kept for every pod there is, and collected with room for four.
        containers.shrink_to_fit();
        Some(Self {
            owner,
            made_for,
            server,
            run: noted(annotation::RUN).and_then(|run| run.parse().ok()),
            host_key: noted(annotation::HOST_KEY),
            ip: of_status(|status| &status.pod_ip).map(Into::into),
            created: at(meta.creation_timestamp.as_ref()),
            ready,
            reason: of_status(|status| &status.reason)
                .or(refused.and_then(|refused| refused.reason.as_deref()))
                .map(Into::into),
            message: of_status(|status| &status.message)
                .or(refused.and_then(|refused| refused.message.as_deref()))
                .map(Into::into),
            unschedulable: refused.and_then(|refused| at(refused.last_transition_time.as_ref())),
            held_by: meta
                .deletion_timestamp
                .as_ref()
                .map(|_| holders(meta.finalizers.as_deref()).into())
                .unwrap_or_default(),
            containers,
        })
    }
}

impl Container {
    fn of(status: &k8s::ContainerStatus) -> Self {
        let exit = |ended: &k8s::ContainerStateTerminated| Exit {
            code: ended.exit_code,
            reason: ended.reason.clone().unwrap_or_default(),
            message: ended.message.clone().unwrap_or_default(),
        };
        let ended =
            |state: &Option<k8s::ContainerState>| state.as_ref().and_then(|state| state.terminated.as_ref()).map(exit);
        let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
        let state = match (waiting, ended(&status.state)) {
            (Some(waiting), _) => ContainerState::Waiting {
                reason: waiting.reason.clone().unwrap_or_default(),
                message: waiting.message.clone().unwrap_or_default(),
            },
            (None, Some(exit)) => ContainerState::Ended(exit),
            (None, None) => ContainerState::Running,
        };
        Self {
            name: status.name.clone(),
            restarts: status.restart_count.into(),
            state,
            last: ended(&status.last_state).map(Box::new),
        }
    }
}

/// As the kube-scheduler counts: containers and sidecars together, or an init container with the sidecars started
/// before it if that is more, and the overhead of the runtime.
fn requests(spec: &k8s::PodSpec) -> Amounts {
    let of = |container: &k8s::Container| {
        let resources = container.resources.as_ref();
        let list = resources.and_then(|resources| resources.requests.as_ref());
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        // For extended resources a limit alone is a request; the API server writes it out for the others.
        list.or(limits).map(Amounts::of).unwrap_or_default()
    };
    let mut sidecars = Amounts::default();
    let mut most = Amounts::default();
    for container in spec.init_containers.iter().flatten() {
        let own = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars.plus(&own);
            most = most.or_more(&sidecars);
        } else {
            most = most.or_more(&sidecars.plus(&own));
        }
    }
    let running = spec.containers.iter().fold(sidecars, |sum, container| sum.plus(&of(container)));
    let overhead = spec.overhead.as_ref().map(Amounts::of).unwrap_or_default();
    let mut all = running.or_more(&most).plus(&overhead);
    all.pods = 1;
    all
}

/// Those it names, and those that are made for it and called after it.
fn claims(pod: Option<&str>, spec: &k8s::PodSpec) -> Box<[Box<str>]> {
    let claim = |volume: &k8s::Volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.as_str().into()),
        (None, Some(_)) => Some(format!("{}-{}", pod.unwrap_or_default(), volume.name).into()),
        (None, None) => None,
    };
    spec.volumes.iter().flatten().filter_map(claim).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(value: serde_json::Value) -> Pod {
        Pod::of(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn requests_are_what_the_kube_scheduler_counts() {
        let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("sidecar", "100m");
        sidecar["restartPolicy"] = "Always".into();
        let spec = |containers: &[serde_json::Value]| {
            json!({"metadata": {"name": "p"}, "spec": {
                "initContainers": [container("first", "900m"), sidecar, container("later", "2")],
                "containers": containers,
                "overhead": {"cpu": "50m"},
            }})
        };
        assert_eq!(pod(spec(&[container("main", "1")])).requests.cpu, 2_150);
        assert_eq!(pod(spec(&[container("main", "3"), container("second", "1")])).requests.cpu, 4_150);
        assert_eq!(pod(spec(&[container("main", "1")])).requests.pods, 1);
    }

    #[test]
    fn a_device_limit_is_a_request() {
        let seen = pod(json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
        }}));
        assert_eq!(seen.requests.device("nvidia.com/gpu"), 2);
        assert_eq!(seen.server, None);
    }

    #[test]
    fn a_pod_that_is_being_deleted_tells_who_keeps_it() {
        let of = |deleted: Option<&str>| {
            let seen = pod(json!({"metadata": {"name": "server-1-0", "labels": {"odc.dev/server": "server-1"},
                "deletionTimestamp": deleted, "finalizers": ["foregroundDeletion", "example.org/hold", "orphan"]}}));
            seen.server.unwrap().held_by.to_vec()
        };
        assert_eq!(of(Some("2026-01-01T00:00:00Z")), ["example.org/hold"]);
        assert_eq!(of(None), [] as [&str; 0]);
    }

    #[test]
    fn claims_are_those_it_names_and_those_made_for_it() {
        let seen = pod(json!({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": [
            {"name": "home", "persistentVolumeClaim": {"claimName": "home-ada"}},
            {"name": "scratch", "ephemeral": {}},
            {"name": "none", "emptyDir": {}},
        ]}}));
        assert_eq!(*seen.claims, ["home-ada".into(), "p-scratch".into()]);
    }

    #[test]
    fn a_pod_of_a_server_tells_more() {
        let seen = pod(json!({
            "metadata": {
                "name": "server-1-0",
                "labels": {"odc.dev/server": "server-1"},
                "annotations": {"odc.dev/run": "3", "odc.dev/server-uid": "uid-1"},
                "ownerReferences": [{"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "name": "server-1", "uid": "uid-1", "controller": true}],
            },
            "spec": {"containers": [], "nodeName": "n1", "volumes": [
                {"name": "home", "persistentVolumeClaim": {"claimName": "claim-home"}},
                {"name": "scratch", "emptyDir": {}},
            ]},
            "status": {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "containerStatuses": [{"name": "dev", "image": "", "imageID": "", "ready": false, "restartCount": 2,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}],
            },
        }));
        assert_eq!(*seen.claims, ["claim-home".into()]);
        let server = seen.server.unwrap();
        assert!(server.held_by.is_empty());
        assert_eq!((server.owner.as_deref(), server.run, server.ready), (Some("uid-1"), Some(3), false));
        assert_eq!(server.message.as_deref(), Some("0/1 nodes"));
        assert!(server.unschedulable.is_some());
        assert_eq!(server.containers[0].last.as_ref().map(|exit| exit.code), Some(137));
        assert!(
            matches!(&server.containers[0].state, ContainerState::Waiting { reason, .. } if reason == "CrashLoopBackOff")
        );
    }
}
