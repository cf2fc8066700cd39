//! The state of the pod of an operation.

use odc_api::v1alpha1::condition::Reason;

use super::Progress;
use crate::cluster::{ContainerState, Pod};

/// States of a container that starts normally.
const STARTING: [&str; 2] = ["PodInitializing", "ContainerCreating"];

pub(super) fn check_not_deleted(pod: &Pod) -> Result<(), Progress> {
    match pod.deletion_timestamp {
        Some(_) => Err(Progress::Failed(Reason::PodFailed, format!("Pod {} was deleted.", pod.name))),
        None => Ok(()),
    }
}

/// Returns why a pod does not start, if Kubernetes reports it.
pub(super) fn cause_of_wait(pod: &Pod) -> String {
    let Some(details) = pod.operation.as_deref() else { return String::new() };
    let waiting = details.containers.iter().find_map(|container| match &container.state {
        ContainerState::Waiting { reason, message } if !STARTING.contains(&reason.as_str()) => {
            Some(format!(" {reason}: {message}"))
        }
        _ => None,
    });
    let unschedulable = || details.message.as_ref().map(|_| format!(" {}.", pod.reason_and_message()));
    waiting.or_else(unschedulable).unwrap_or_default()
}
