//! Operations whose pod runs one command to its end.

use std::time::Duration;

use odc_api::v1alpha1::DiskOperation;
use odc_api::v1alpha1::condition::Reason;

use super::super::operation_pod::{self, Mount};
use super::super::{State, Steps, temporary};
use super::Progress;
use super::pod_state::{cause_of_wait, check_not_deleted};
use crate::cluster::{Claim, ContainerState, Exit, Pod, PodPhase, Snapshot};
use crate::plan::Write;

/// How long an operation may take, with all its waits.
pub(super) const JOB_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);
/// The number of pods of operations that run in a namespace at the same time.
const MAX_OPERATION_PODS: usize = 4;
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// The start of a message of the agent on its standard error.
const PROGRAM: &str = "odc-agent: ";

/// Returns a claim with a copy of a point, once a pod can mount it.
pub(super) fn restored_claim<'a>(
    state: &State<'a>,
    steps: &mut Steps,
    operation: &DiskOperation,
    name: &str,
    snapshot: &Snapshot,
) -> Result<&'a Claim, Progress> {
    let Some(claim) = temporary::claim(state, operation, name) else {
        return Err(temporary::create_claim(state, steps, operation, name, snapshot));
    };
    temporary::check_mountable(state, claim)?;
    Ok(claim)
}

pub(super) fn create_pod(
    state: &State<'_>,
    steps: &mut Steps,
    operation: &DiskOperation,
    command: Vec<String>,
    mounts: &[Mount<'_>],
) -> Progress {
    let is_running = |pod: &&&Pod| pod.operation.is_some() && !pod.is_terminated();
    let running = state.observed.pods.iter().filter(is_running).count();
    if running >= MAX_OPERATION_PODS {
        steps.requeue_after(RETRY_DELAY);
        return Progress::Wait(format!(
            "Waiting for other operations: {running} pods of operations run in the namespace, limit {MAX_OPERATION_PODS}."
        ));
    }
    let pod = operation_pod::job(state, operation, command, mounts);
    let message = format!("Creating pod {}.", pod.name);
    steps.operation_writes.push((temporary::uid(operation).to_owned(), Write::Create(pod)));
    Progress::Wait(message)
}

/// Returns the message of the pod's container after it has succeeded.
pub(super) fn result(pod: &Pod) -> Result<&str, Progress> {
    let name = &pod.name;
    let exit = exit(pod);
    match pod.phase {
        PodPhase::Succeeded => Ok(exit.map(|exit| exit.message.as_str()).unwrap_or_default()),
        PodPhase::Failed => {
            let message = exit.map(|exit| exit.message.trim().trim_start_matches(PROGRAM)).unwrap_or_default();
            let message = match exit {
                Some(_) if !message.is_empty() => format!("Pod {name} failed: {message}"),
                Some(exit) => format!("Pod {name} failed with exit code {}: {}.", exit.code, exit.reason),
                None => format!("Pod {name} failed: {}.", pod.reason_and_message()),
            };
            Err(Progress::Failed(Reason::PodFailed, message))
        }
        PodPhase::Pending | PodPhase::Running => {
            check_not_deleted(pod)?;
            Err(Progress::Wait(format!("Waiting for pod {name} to finish.{}", cause_of_wait(pod))))
        }
    }
}

/// Returns how the container of the pod ended. It has no init containers.
fn exit(pod: &Pod) -> Option<&Exit> {
    let containers = &pod.operation.as_deref()?.containers;
    containers.iter().find_map(|container| match &container.state {
        ContainerState::Terminated(exit) => Some(exit),
        ContainerState::Waiting { .. } | ContainerState::Running => None,
    })
}
