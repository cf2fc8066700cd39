//! Manifests of the pods of operations, and of the Secret of a pod that serves SSH.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements, Secret, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::{self, DevServerFlavor, DevServerUser, DiskOperation, Privilege};
use odc_api::{HOME, annotation};

use super::{State, claim, temporary};
use crate::cluster::Claim;
use crate::devserver::build::size::{self, CpuMemory};
use crate::devserver::build::{
    HOST_KEY, MAIN, PRIORITY_CLASS, authorized_keys, container, env, literal, operation_keys, pod, security, volume,
};
use crate::manifest::{Kind, Object};
use crate::plan::Write;

const CPU: Quantity = Quantity::milli(100);
const MEMORY: Quantity = Quantity::bytes(128 << 20);
/// Encryption and comparisons would be slow with the requested share, which is enough for the scheduler.
const CPU_LIMIT: Quantity = Quantity::whole(1);
const INIT_MEMORY: Quantity = Quantity::bytes(64 << 20);
const SHARED_MEMORY: Quantity = Quantity::bytes(16 << 20);
/// Nothing has to be saved when the pod ends.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// How long a job may run. The kubelet ends it then.
const JOB_DEADLINE: Duration = Duration::from_secs(60 * 60);
/// Where the agent is in its own image.
const AGENT: &str = "/odc-agent";
/// Where the copy of a point is mounted in a job.
pub(super) const POINT_PATH: &str = "/point";
/// Where the later state, or the data of the disk, is mounted in a job.
pub(super) const DATA_PATH: &str = "/data";

/// A claim that a job mounts.
pub(super) struct Mount<'a> {
    pub(super) claim: &'a Claim,
    pub(super) path: &'static str,
    pub(super) is_read_only: bool,
}

/// Returns the name of the Secret of an operation's pod.
fn secret_name(state: &State<'_>, operation: &DiskOperation) -> String {
    format!("{}-keys", claim::name(state.name, temporary::uid(operation)))
}

/// Returns a write that creates the Secret of a Browse pod: its host key and the authorized keys. It is owned by the
/// claim, because it is not watched and could not be found after the pod is gone.
pub(super) fn create_secret(
    state: &State<'_>,
    operation: &DiskOperation,
    owner: &DevServerUser,
    claim: &Claim,
) -> Write {
    let mut metadata = temporary::metadata(state, operation, &secret_name(state, operation));
    metadata.owner_references = Some(vec![OwnerReference {
        api_version: Kind::PersistentVolumeClaim.api_version().into(),
        kind: Kind::PersistentVolumeClaim.as_str().into(),
        name: claim.name.clone(),
        uid: claim.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    let secret = Secret {
        metadata,
        string_data: Some([("authorized_keys".to_owned(), authorized_keys(&operation_keys(owner, operation)))].into()),
        type_: Some("Opaque".into()),
        ..Secret::default()
    };
    Write::CreateWithKeys { secret: Object::new(Kind::Secret, &secret), names: &[HOST_KEY] }
}

/// Returns the pod of a Browse operation: the default image with the agent, and the point mounted read-only as home.
pub(super) fn browse(
    state: &State<'_>,
    operation: &DiskOperation,
    owner: &DevServerUser,
    claim: &Claim,
    host_key: &str,
) -> Object {
    let settings = state.settings;
    let name = claim::name(state.name, temporary::uid(operation));
    let mut metadata = temporary::metadata(state, operation, &name);
    metadata.annotations = Some([(annotation::HOST_KEY.to_owned(), host_key.to_owned())].into());
    let home = volume::from_claim(volume::HOME_VOLUME.to_owned(), &claim.name, true);
    let main = Container {
        name: MAIN.into(),
        image: Some(settings.default_image.clone()),
        command: Some(container::serve_command(temporary::uid(operation), GRACE_PERIOD, state.observed.control_cas)),
        env: Some(vec![
            env::plain("HOME", HOME),
            env::plain("ODC_SERVER", &name),
            env::plain("ODC_OWNER", owner.metadata.name.as_deref().unwrap_or_default()),
        ]),
        ports: Some(vec![container::ssh_port()]),
        resources: Some(resources()),
        volume_mounts: Some(volume::base_mounts(true, true)),
        security_context: Some(security::restricted()),
        startup_probe: Some(container::startup_probe()),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    };
    let spec = PodSpec {
        containers: vec![main],
        hostname: Some(name),
        init_containers: Some(vec![
            container::install(&settings.agent_image, init_resources()),
            container::prepare(&settings.default_image, owner, init_resources()),
        ]),
        restart_policy: Some("Always".into()),
        security_context: Some(security::pod(Privilege::Restricted)),
        volumes: Some(volume::base_volumes(&secret_name(state, operation), SHARED_MEMORY, home, true)),
        ..base_spec(state, &[claim])
    };
    Object::new(Kind::Pod, &Pod { metadata, spec: Some(spec), status: None })
}

pub(super) fn diff_command() -> Vec<String> {
    [AGENT, "compare-trees", "--earlier", POINT_PATH, "--later", DATA_PATH, "--result", TERMINATION_MESSAGE_PATH]
        .map(str::to_owned)
        .to_vec()
}

pub(super) fn restore_command(operation: &DiskOperation) -> Vec<String> {
    let mut command =
        [AGENT, "copy-paths", "--from", POINT_PATH, "--to", DATA_PATH, "--id", temporary::uid(operation), "--"]
            .map(str::to_owned)
            .to_vec();
    command.extend(operation.spec.paths().iter().map(|path| literal(path.as_str())));
    command
}

/// The default of Kubernetes.
const TERMINATION_MESSAGE_PATH: &str = "/dev/termination-log";

/// Returns a pod that runs one command of the agent. No program of the user runs in it, so it may read files of all
/// users, and keep their owners.
pub(super) fn job(state: &State<'_>, operation: &DiskOperation, command: Vec<String>, mounts: &[Mount<'_>]) -> Object {
    let name = claim::name(state.name, temporary::uid(operation));
    let metadata = temporary::metadata(state, operation, &name);
    let volume_name = |mount: &Mount<'_>| mount.path.trim_start_matches('/').to_owned();
    let volumes =
        mounts.iter().map(|mount| volume::from_claim(volume_name(mount), &mount.claim.name, mount.is_read_only));
    let main = Container {
        name: MAIN.into(),
        image: Some(state.settings.agent_image.clone()),
        command: Some(command),
        resources: Some(resources()),
        volume_mounts: Some(
            mounts.iter().map(|mount| volume::mount(&volume_name(mount), mount.path, mount.is_read_only)).collect(),
        ),
        security_context: Some(security::file_owner()),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    };
    let claims: Vec<&Claim> = mounts.iter().map(|mount| mount.claim).collect();
    let spec = PodSpec {
        active_deadline_seconds: Some(JOB_DEADLINE.as_secs().cast_signed()),
        containers: vec![main],
        restart_policy: Some("Never".into()),
        security_context: Some(security::root_without_group()),
        volumes: Some(volumes.collect()),
        ..base_spec(state, &claims)
    };
    Object::new(Kind::Pod, &Pod { metadata, spec: Some(spec), status: None })
}

fn base_spec(state: &State<'_>, claims: &[&Claim]) -> PodSpec {
    PodSpec {
        affinity: temporary::affinity(claims),
        // The data may be reachable only from a node where a server ran, with taints that its flavor tolerates.
        tolerations: Some(tolerations(&state.observed.flavors)),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        priority_class_name: Some(PRIORITY_CLASS.into()),
        termination_grace_period_seconds: Some(GRACE_PERIOD.as_secs().cast_signed()),
        ..PodSpec::default()
    }
}

/// Returns the tolerations of all flavors, except those of conditions of nodes, which kube-scheduler must respect.
fn tolerations(flavors: &[&DevServerFlavor]) -> Vec<Toleration> {
    let is_of_hardware = |toleration: &&v1alpha1::Toleration| {
        toleration.key.as_deref().is_some_and(|key| !key.starts_with("node.kubernetes.io/"))
    };
    let of_flavors = flavors.iter().flat_map(|flavor| &flavor.spec.tolerations).filter(is_of_hardware);
    let mut all: Vec<Toleration> = Vec::new();
    for toleration in of_flavors.map(pod::toleration) {
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    all
}

fn resources() -> ResourceRequirements {
    ResourceRequirements {
        requests: Some(size::list(CpuMemory { cpu: CPU, memory: MEMORY })),
        limits: Some(size::list(CpuMemory { cpu: CPU_LIMIT, memory: MEMORY })),
        ..ResourceRequirements::default()
    }
}

fn init_resources() -> ResourceRequirements {
    size::guaranteed(CpuMemory { cpu: CPU, memory: INIT_MEMORY })
}

#[cfg(test)]
mod tests;
