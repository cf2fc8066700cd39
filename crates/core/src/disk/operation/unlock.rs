//! Unlock: deletes pods that remain after their server or operation has ended.

use odc_api::v1alpha1::DiskOperationResult;
use odc_api::v1alpha1::condition::Reason;

use super::super::{State, Steps};
use super::Progress;
use crate::cluster::Pod;
use crate::devserver::{active_admission, pods};
use crate::plan::Write;

/// Deletes pods that mount the disk although their server or operation has ended or does not exist. A pod on a node that is
/// not ready is deleted without waiting for the node: the owner has confirmed by the operation that nothing writes to the
/// disk any more.
pub(super) fn unlock(state: &State<'_>, steps: &mut Steps) -> Progress {
    let is_running = |uid: &str| {
        let mut servers = state.observed.servers.iter();
        servers.any(|server| {
            server.metadata.uid.as_deref() == Some(uid) && active_admission(server.status.as_ref()).is_some()
        })
    };
    let writers: Vec<&Pod> = state.writers().collect();
    // Operations on a disk run one at a time, so the one that created the pod has ended.
    for pod in writers.iter().filter(|pod| pod.operation.is_none()) {
        let Some(uid) = pod.server.as_ref().and_then(|details| details.server_uid()) else {
            let message = format!("Pod {} mounts the disk and does not belong to a server. Delete it first.", pod.name);
            return Progress::Failed(Reason::DiskInUse, message);
        };
        if is_running(uid) {
            let message =
                format!("Pod {} belongs to a running server. Hibernate or delete the server instead.", pod.name);
            return Progress::Failed(Reason::DiskInUse, message);
        }
    }
    if writers.is_empty() {
        return Progress::done(DiskOperationResult::default());
    }
    // The kubelet of a ready node ends the processes before the pod is gone. If the node is lost, nothing does.
    let (lost, reachable): (Vec<&Pod>, Vec<&Pod>) = writers.into_iter().partition(|pod| state.is_node_unready(pod));
    let running = reachable.iter().filter(|pod| pod.deletion_timestamp.is_none());
    steps.writes.extend(running.map(|pod| Write::Delete(pods::target(pod, None))));
    // That the server was interrupted is stored first. Otherwise the restore point could be Clean.
    if state.stored.holder.as_ref().is_none_or(|holder| holder.interrupted) {
        steps.writes.extend(lost.iter().map(|pod| Write::Delete(pods::target(pod, Some(0)))));
    }
    let names: Vec<&str> = reachable.iter().chain(&lost).map(|pod| pod.name.as_str()).collect();
    Progress::Wait(format!("Waiting for pods to be deleted: {}.", names.join(", ")))
}
