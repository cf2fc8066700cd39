//! Waits for an operation on a disk and shows its progress.

use std::time::Duration;

use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{DiskOperation, DiskOperationPhase};

use super::REDRAW_INTERVAL;
use super::progress::ProgressView;
use super::steps::{Step, StepKey, StepState};
use crate::client::WatchEvent;
use crate::clock;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::disk;
use crate::signals::Signals;

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationGoal {
    Succeeded,
    /// Its pod accepts SSH connections.
    Connectable,
}

/// Waits until an operation has reached the goal. Fails with the message of a failed operation. A signal stops waiting and
/// leaves the operation running.
pub async fn until_operation(
    ctx: &ClusterContext,
    operation: &DiskOperation,
    goal: OperationGoal,
    timeout: Option<Duration>,
) -> Result<DiskOperation> {
    let (name, disk) = (operation.name_any(), operation.spec.disk.as_str());
    let mut signals = Signals::new()?;
    let mut watch = ctx.client.watch_operation(&name);
    let mut progress = ProgressView::new(&ctx.ui, &format!("disk {disk}"));
    let mut tick = tokio::time::interval(REDRAW_INTERVAL);
    let deadline = tokio::time::sleep(timeout.unwrap_or(Duration::MAX / 4));
    tokio::pin!(deadline);
    let (mut current, mut is_listed) = (operation.clone(), false);
    let result = loop {
        tokio::select! {
            event = watch.next() => match event {
                Some(Ok(WatchEvent::Apply(operation))) => (current, is_listed) = (*operation, true),
                Some(Ok(WatchEvent::Init)) => is_listed = false,
                Some(Ok(WatchEvent::InitDone)) if is_listed => {}
                Some(Ok(WatchEvent::InitDone | WatchEvent::Delete(_))) | None => break Err(deleted(&name, disk)),
                Some(Ok(WatchEvent::Interrupted(cause))) => progress.connection_lost(&cause),
                Some(Err(error)) => break Err(error),
            },
            _ = signals.recv() => break Err(detached(&name, disk)),
            _ = tick.tick() => {}
            () = &mut deadline => break Err(timed_out(&current)),
        }
        progress.show(&[step(&current)], clock::now());
        if let Some(result) = evaluate(&current, goal) {
            break result.map(|()| current);
        }
    };
    progress.finish();
    result
}

/// Returns the result if the goal is reached or can no longer be reached.
fn evaluate(operation: &DiskOperation, goal: OperationGoal) -> Option<Result<()>> {
    let status = operation.status.as_ref()?;
    let result = status.result.as_ref();
    let is_connectable = result.is_some_and(|result| result.pod.is_some() && result.host_key.is_some());
    match (status.phase?, goal) {
        (DiskOperationPhase::Failed, _) => Some(Err(failed(operation))),
        (_, OperationGoal::Connectable) if is_connectable => Some(Ok(())),
        (DiskOperationPhase::Succeeded, OperationGoal::Succeeded) => Some(Ok(())),
        (DiskOperationPhase::Succeeded, OperationGoal::Connectable) => {
            Some(Err(Error::failed(format!("operation {} ended without a pod", operation.name_any()))
                .with_hint("try again; ask your administrator if it happens again")))
        }
        (DiskOperationPhase::Pending | DiskOperationPhase::Running, _) => None,
    }
}

fn step(operation: &DiskOperation) -> Step {
    let status = operation.status.as_ref();
    let phase = status.and_then(|status| status.phase);
    let state = match phase {
        Some(DiskOperationPhase::Succeeded) => StepState::Done,
        Some(DiskOperationPhase::Failed) => StepState::Blocked,
        Some(DiskOperationPhase::Pending | DiskOperationPhase::Running) | None => StepState::Running,
    };
    let text = match phase {
        None => "created, waiting for the operator".to_owned(),
        Some(phase) => {
            let progress = status.and_then(|status| status.progress.as_ref()).filter(|_| !phase.is_terminal());
            let progress = progress.map(|progress| format!(" {progress}")).unwrap_or_default();
            let phase = phase.as_str().to_lowercase();
            match message(operation) {
                "" => format!("{phase}{progress}"),
                message => format!("{phase}{progress}: {message}"),
            }
        }
    };
    let started = status.and_then(|status| status.started_at.as_ref());
    let since = started.or(operation.metadata.creation_timestamp.as_ref()).map(|time| time.0);
    Step::new(StepKey::Operation, state, text, since)
}

/// Returns the message of the condition Complete, without the full stop.
fn message(operation: &DiskOperation) -> &str {
    let conditions = operation.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, Type::Complete).map_or("", |complete| complete.message.trim_end_matches('.'))
}

fn action(operation: &DiskOperation) -> String {
    disk::action_str(operation.spec.action).to_lowercase()
}

fn failed(operation: &DiskOperation) -> Error {
    let disk = &operation.spec.disk;
    let cause = match message(operation) {
        "" => String::new(),
        message => format!(": {message}"),
    };
    Error::failed(format!("{} of disk {disk} failed{cause}", action(operation)))
        .with_hint(format!("run `devctl disk show {disk}` for details"))
}

fn detached(name: &str, disk: &str) -> Error {
    Error::interrupted(format!("stopped waiting; operation {name} continues in the background"))
        .with_hint(format!("run `devctl disk show {disk}` to see its progress"))
}

fn timed_out(operation: &DiskOperation) -> Error {
    let Step { text, .. } = step(operation);
    let disk = &operation.spec.disk;
    Error::timeout(format!("timed out waiting for the {} of disk {disk} ({text})", action(operation)))
        .with_hint(format!("the operation continues; run `devctl disk show {disk}` to see its progress"))
}

fn deleted(name: &str, disk: &str) -> Error {
    Error::not_found(format!("operation {name} was deleted"))
        .with_hint(format!("run `devctl disk show {disk}` to see the state of the disk"))
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::DiskAction;
    use serde_json::{Value, json};

    use super::*;
    use crate::error::Kind;

    fn operation(action: DiskAction, status: Value) -> DiskOperation {
        let mut operation = DiskOperation::test("op-1", action);
        operation.status = serde_json::from_value(status).unwrap();
        operation
    }

    fn complete(phase: &str, message: &str) -> Value {
        json!({"phase": phase, "conditions": [{"type": "Complete", "status": "False", "reason": "OperationRunning",
            "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
    }

    #[test]
    fn failed_operation_is_an_error_with_its_message() {
        let failed = operation(DiskAction::Rollback, complete("Failed", "Server box uses the disk."));
        let error = evaluate(&failed, OperationGoal::Succeeded).unwrap().unwrap_err();
        assert_eq!(error.message, "rollback of disk disk-home failed: Server box uses the disk");
        assert_eq!((error.kind, step(&failed).state), (Kind::Failed, StepState::Blocked));
    }

    #[test]
    fn step_shows_phase_and_message() {
        let waiting = operation(DiskAction::Snapshot, complete("Running", "Waiting for the snapshot."));
        assert_eq!(step(&waiting).text, "running: Waiting for the snapshot");
        assert_eq!(evaluate(&waiting, OperationGoal::Succeeded), None);
        let new = operation(DiskAction::Snapshot, Value::Null);
        assert_eq!(step(&new).text, "created, waiting for the operator");
        assert_eq!(evaluate(&new, OperationGoal::Succeeded), None);
        assert!(timed_out(&waiting).message.ends_with("(running: Waiting for the snapshot)"));
    }

    #[test]
    fn browse_is_connectable_with_pod_and_host_key() {
        let status =
            |phase: &str, result: Value| operation(DiskAction::Browse, json!({"phase": phase, "result": result}));
        let goal = OperationGoal::Connectable;
        assert_eq!(evaluate(&status("Running", json!({"pod": "p"})), goal), None);
        let ready = json!({"pod": "p", "hostKey": "ssh-ed25519 AAAA"});
        assert_eq!(evaluate(&status("Running", ready.clone()), goal), Some(Ok(())));
        assert_eq!(evaluate(&status("Succeeded", ready), goal), Some(Ok(())));
        assert_eq!(evaluate(&status("Succeeded", json!({})), goal).unwrap().unwrap_err().kind, Kind::Failed);
    }
}
