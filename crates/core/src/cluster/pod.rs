//! Pods: the resource usage of all pods, and the state of server pods.

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::jiff::Timestamp;
use odc_api::{annotation, label};

use super::{blocking_finalizers, controlling_server, created_for, timestamp};
use crate::resources::Resources;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: Option<String>,
    pub phase: PodPhase,
    /// The end of its grace period.
    pub deletion_timestamp: Option<Timestamp>,
    /// The request as the kube-scheduler accounts it, including one pod.
    pub requests: Resources,
    /// The claims it mounts, and may write to as long as it exists.
    pub claims: Box<[Box<str>]>,
    /// Details of server pods.
    pub server: Option<Box<ServerPod>>,
    /// Details of pods of disk operations.
    pub operation: Option<Box<OperationPod>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    Pending,
    Running,
    /// Terminated; its resources are free.
    Succeeded,
    /// Terminated: evicted, rejected by the node, or shut down with it.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPod {
    /// The uid of the controlling `DevServer`. The owner reference may have been removed.
    pub owner: Option<String>,
    /// The uid of the `DevServer` it was created for, from its annotation.
    pub created_for: Option<String>,
    /// The name of its server.
    pub server: Option<String>,
    pub run: Option<i64>,
    /// The server's public host key at the creation of the pod.
    pub host_key: Option<String>,
    pub ip: Option<Box<str>>,
    pub created_at: Option<Timestamp>,
    pub ready: bool,
    /// Why it terminated or cannot be scheduled, as reported by Kubernetes.
    pub reason: Option<Box<str>>,
    pub message: Option<Box<str>>,
    /// Since when the kube-scheduler reports it as unschedulable.
    pub unschedulable_since: Option<Timestamp>,
    /// The finalizers that block its deletion; empty unless it is being deleted.
    pub blocking_finalizers: Box<[String]>,
    /// Init containers first.
    pub containers: Vec<Container>,
}

/// The state of a pod that was created for a `DiskOperation`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationPod {
    pub operation_uid: String,
    /// The uid of the `Disk` of the operation.
    pub disk_uid: Option<String>,
    /// Its public host key, if it serves SSH.
    pub host_key: Option<String>,
    pub ip: Option<Box<str>>,
    pub ready: bool,
    /// Why it terminated or cannot be scheduled, as reported by Kubernetes.
    pub reason: Option<Box<str>>,
    pub message: Option<Box<str>>,
    /// Init containers first.
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub name: String,
    pub restarts: i64,
    pub state: ContainerState,
    /// The previous exit. Boxed, because it is rarely present.
    pub last: Option<Box<Exit>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    Waiting { reason: String, message: String },
    Running,
    Terminated(Exit),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    pub reason: String,
    /// The tail of its log.
    pub message: String,
}

impl Pod {
    pub fn from_api(pod: &k8s::Pod) -> Self {
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
            deletion_timestamp: timestamp(meta.deletion_timestamp.as_ref()),
            requests: spec.map(requests).unwrap_or_default(),
            claims: spec.map(|spec| claims(meta.name.as_deref(), spec)).unwrap_or_default(),
            server: ServerPod::from_api(pod).map(Box::new),
            operation: OperationPod::from_api(pod).map(Box::new),
        }
    }

    /// Reports whether the pod no longer uses resources of its node.
    pub fn is_terminated(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Returns why Kubernetes terminated or cannot schedule the pod, without a full stop.
    pub fn reason_and_message(&self) -> String {
        let text = |text: &Option<Box<str>>| {
            let text = text.as_deref().unwrap_or_default();
            text.trim().trim_end_matches('.').to_owned()
        };
        let server = self.server.as_deref().map(|pod| (text(&pod.reason), text(&pod.message)));
        let operation = || self.operation.as_deref().map(|pod| (text(&pod.reason), text(&pod.message)));
        let (reason, message) = server.or_else(operation).unwrap_or_default();
        match (reason.is_empty(), message.is_empty()) {
            (true, true) => "no reason given".to_owned(),
            (false, true) => reason,
            (true, false) => message,
            (false, false) => format!("{reason}: {message}"),
        }
    }
}

impl ServerPod {
    /// Reports whether the pod belongs to the server with this uid.
    pub fn belongs_to(&self, uid: &str) -> bool {
        self.server_uid() == Some(uid)
    }

    /// Returns the uid of the server the pod belongs to: its owner, or the server it was created for if the owner reference
    /// was removed.
    pub fn server_uid(&self) -> Option<&str> {
        self.owner.as_deref().or(self.created_for.as_deref())
    }

    /// Returns `None` for pods that are not server pods.
    fn from_api(pod: &k8s::Pod) -> Option<Self> {
        let (meta, status) = (&pod.metadata, pod.status.as_ref());
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).cloned();
        let server = meta.labels.as_ref().and_then(|all| all.get(label::SERVER)).cloned();
        let created_for = created_for(meta).map(str::to_owned);
        let owner = controlling_server(meta).map(str::to_owned);
        if server.is_none() && created_for.is_none() && owner.is_none() {
            return None;
        }
        let state = Observation::new(status);
        Some(Self {
            owner,
            created_for,
            server,
            run: annotation(annotation::RUN).and_then(|run| run.parse().ok()),
            host_key: annotation(annotation::HOST_KEY),
            ip: state.ip,
            created_at: timestamp(meta.creation_timestamp.as_ref()),
            ready: state.ready,
            reason: state.reason,
            message: state.message,
            unschedulable_since: state.unschedulable_since,
            blocking_finalizers: meta
                .deletion_timestamp
                .as_ref()
                .map(|_| blocking_finalizers(meta.finalizers.as_deref()).into())
                .unwrap_or_default(),
            containers: state.containers,
        })
    }
}

impl OperationPod {
    /// Returns `None` for other pods.
    fn from_api(pod: &k8s::Pod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref()?;
        let operation_uid = labels.get(label::OPERATION_UID)?.clone();
        let annotations = pod.metadata.annotations.as_ref();
        let state = Observation::new(pod.status.as_ref());
        Some(Self {
            operation_uid,
            disk_uid: labels.get(label::DISK_UID).cloned(),
            host_key: annotations.and_then(|all| all.get(annotation::HOST_KEY)).cloned(),
            ip: state.ip,
            ready: state.ready,
            reason: state.reason,
            message: state.message,
            containers: state.containers,
        })
    }
}

/// The status of a pod of ODC.
struct Observation {
    ip: Option<Box<str>>,
    ready: bool,
    reason: Option<Box<str>>,
    message: Option<Box<str>>,
    unschedulable_since: Option<Timestamp>,
    containers: Vec<Container>,
}

impl Observation {
    fn new(status: Option<&k8s::PodStatus>) -> Self {
        let conditions = || status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let ready = conditions().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let unschedulable = conditions().find(|condition| {
            condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
        });
        let status_text =
            |text: fn(&k8s::PodStatus) -> &Option<String>| status.and_then(|status| text(status).as_deref());
        let initial = status.and_then(|status| status.init_container_statuses.as_ref()).into_iter().flatten();
        let main = status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
        let mut containers: Vec<_> = initial.chain(main).map(Container::from_api).collect();
        // The cache holds all pods, and collecting allocates capacity for four.
        containers.shrink_to_fit();
        Self {
            ip: status_text(|status| &status.pod_ip).map(Into::into),
            ready,
            reason: status_text(|status| &status.reason)
                .or(unschedulable.and_then(|condition| condition.reason.as_deref()))
                .map(Into::into),
            message: status_text(|status| &status.message)
                .or(unschedulable.and_then(|condition| condition.message.as_deref()))
                .map(Into::into),
            unschedulable_since: unschedulable.and_then(|condition| timestamp(condition.last_transition_time.as_ref())),
            containers,
        }
    }
}

impl Container {
    fn from_api(status: &k8s::ContainerStatus) -> Self {
        let exit = |terminated: &k8s::ContainerStateTerminated| Exit {
            code: terminated.exit_code,
            reason: terminated.reason.clone().unwrap_or_default(),
            message: terminated.message.clone().unwrap_or_default(),
        };
        let terminated =
            |state: &Option<k8s::ContainerState>| state.as_ref().and_then(|state| state.terminated.as_ref()).map(exit);
        let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
        let state = match (waiting, terminated(&status.state)) {
            (Some(waiting), _) => ContainerState::Waiting {
                reason: waiting.reason.clone().unwrap_or_default(),
                message: waiting.message.clone().unwrap_or_default(),
            },
            (None, Some(exit)) => ContainerState::Terminated(exit),
            (None, None) => ContainerState::Running,
        };
        Self {
            name: status.name.clone(),
            restarts: status.restart_count.into(),
            state,
            last: terminated(&status.last_state).map(Box::new),
        }
    }
}

/// Returns the request as the kube-scheduler computes it: the larger of all containers and sidecars together and any init
/// container with the sidecars started before it, plus the overhead of the runtime class.
fn requests(spec: &k8s::PodSpec) -> Resources {
    let container_requests = |container: &k8s::Container| {
        let resources = container.resources.as_ref();
        let list = resources.and_then(|resources| resources.requests.as_ref());
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        // The API server defaults requests to limits, except for extended resources.
        list.or(limits).map(Resources::from_list).unwrap_or_default()
    };
    let mut sidecars = Resources::default();
    let mut init = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let own = container_requests(container);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars.saturating_add(&own);
            init = init.max(&sidecars);
        } else {
            init = init.max(&sidecars.saturating_add(&own));
        }
    }
    let running =
        spec.containers.iter().fold(sidecars, |sum, container| sum.saturating_add(&container_requests(container)));
    let overhead = spec.overhead.as_ref().map(Resources::from_list).unwrap_or_default();
    let mut all = running.max(&init).saturating_add(&overhead);
    all.pods = 1;
    all
}

/// Returns the claims of the pod, including those of generic ephemeral volumes, which are named after it.
fn claims(pod: Option<&str>, spec: &k8s::PodSpec) -> Box<[Box<str>]> {
    let claim = |volume: &k8s::Volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.as_str().into()),
        (None, Some(_)) => Some(format!("{}-{}", pod.unwrap_or_default(), volume.name).into()),
        (None, None) => None,
    };
    spec.volumes.iter().flatten().filter_map(claim).collect()
}

#[cfg(test)]
mod tests;
