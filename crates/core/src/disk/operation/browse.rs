//! Browse: a pod with a restore point mounted read-only, which serves SSH until it is idle.

use std::time::Duration;

use odc_api::name::ObjectName;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{DiskAction, DiskOperation, DiskOperationResult};
use odc_control::{Access, IdleAction, IdlePolicy, duration};

use super::super::{State, Steps, claim, operation_pod, temporary};
use super::pod_state::{cause_of_wait, check_not_deleted};
use super::point_argument::wait_for_point;
use super::{Progress, READY_TIMEOUT, creation_order, is_finished, limit_wait, started_at};
use crate::activity::{self, DetectionPolicy, Verdict};
use crate::cluster::{Claim, OperationPod, Pod};
use crate::devserver::agent_requests::{AgentCall, AgentConfig, AgentRequest, AgentState, retry_delay};
use crate::devserver::build::operation_keys;
use crate::plan::Write;
use crate::time::{add, elapsed, remaining, until};

/// The number of Browse operations that run in a namespace at the same time.
const MAX_BROWSE_OPERATIONS: usize = 2;
/// A pod without activity for this time is deleted.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// A pod is deleted after this time in any case.
const MAX_LIFETIME: Duration = Duration::from_secs(8 * 60 * 60);
/// The maximum age of a reply that ends an operation.
const MAX_REPLY_AGE: Duration = Duration::from_secs(30);

/// Starts the pod and keeps it until it is idle. It is deleted after the operation has ended.
pub(super) fn browse(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> Progress {
    let result = operation.status.as_ref().and_then(|status| status.result.clone());
    let served = result.filter(|result| result.pod.is_some());
    match (temporary::pod(state, operation), served) {
        (Some(pod), Some(result)) => serve(state, steps, operation, pod, Box::new(result)),
        (None, Some(_)) => Progress::Failed(Reason::PodFailed, "The pod was deleted.".into()),
        (pod, None) => {
            let progress = start(state, steps, operation, pod).unwrap_or_else(|progress| progress);
            limit_wait(state, steps, operation, READY_TIMEOUT, progress)
        }
    }
}

/// Creates the claim, the Secret and the pod, and waits until the pod is ready.
fn start(
    state: &State<'_>,
    steps: &mut Steps,
    operation: &DiskOperation,
    pod: Option<&Pod>,
) -> Result<Progress, Progress> {
    if let Some(pod) = pod {
        return wait_until_ready(pod);
    }
    let name = claim::name(state.name, temporary::uid(operation));
    let Some(claim) = temporary::claim(state, operation, &name) else {
        check_limit(state, operation)?;
        let point = operation.spec.point().map(ObjectName::as_str).unwrap_or_default();
        let snapshot = wait_for_point(state, point)?;
        return Ok(temporary::create_claim(state, steps, operation, &name, snapshot));
    };
    temporary::check_mountable(state, claim)?;
    Ok(create_pod(state, steps, operation, claim))
}

fn create_pod(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation, claim: &Claim) -> Progress {
    let uid = temporary::uid(operation);
    let Some(owner) = state.observed.owner else {
        return Progress::Failed(Reason::NoOwner, format!("Namespace {} does not belong to a user.", state.namespace));
    };
    let host_key = state.observed.operation_states.get(uid).and_then(|state| state.host_key.as_deref());
    let Some(host_key) = host_key else {
        let write = operation_pod::create_secret(state, operation, owner, claim);
        let message = format!("Creating Secret {}.", write.name());
        steps.operation_writes.push((uid.to_owned(), write));
        // Secrets are not watched.
        steps.requeue_after(Duration::ZERO);
        return Progress::Wait(message);
    };
    let pod = operation_pod::browse(state, operation, owner, claim, host_key);
    let message = format!("Creating pod {}.", pod.name);
    steps.operation_writes.push((uid.to_owned(), Write::Create(pod)));
    Progress::Wait(message)
}

/// Fails if enough other Browse operations run in the namespace: those that were created before, and those that already
/// have a claim.
fn check_limit(state: &State<'_>, operation: &DiskOperation) -> Result<(), Progress> {
    let observed = state.observed;
    let has_claim = |other: &DiskOperation| {
        let uid = other.metadata.uid.as_deref();
        uid.is_some() && observed.claims.iter().any(|claim| claim.operation_uid.as_deref() == uid)
    };
    let others = observed.operations.iter().filter(|other| {
        let is_other = other.spec.action == DiskAction::Browse && other.metadata.uid != operation.metadata.uid;
        is_other && !is_finished(other) && (creation_order(other) < creation_order(operation) || has_claim(other))
    });
    let names: Vec<&str> = others.filter_map(|other| other.metadata.name.as_deref()).collect();
    if names.len() < MAX_BROWSE_OPERATIONS {
        return Ok(());
    }
    let message = format!(
        "The namespace has {} Browse operations, limit {MAX_BROWSE_OPERATIONS}: {}. Delete one of them first.",
        names.len(),
        names.join(", ")
    );
    Err(Progress::Failed(Reason::TooManyBrowseOperations, message))
}

/// Returns the result when the pod serves SSH.
fn wait_until_ready(pod: &Pod) -> Result<Progress, Progress> {
    check_running(pod)?;
    let name = &pod.name;
    match pod.operation.as_deref().filter(|details| details.ready) {
        Some(details) => {
            let host_key = details.host_key.as_deref().map(Into::into);
            let result = DiskOperationResult { pod: name.parse().ok(), host_key, ..Default::default() };
            Ok(Progress::Serve(Box::new(result), serving_message(pod)))
        }
        None => Err(Progress::Wait(format!("Waiting for pod {name} to be ready.{}", cause_of_wait(pod)))),
    }
}

fn serving_message(pod: &Pod) -> String {
    let (idle, lifetime) = (duration::format(IDLE_TIMEOUT.as_secs()), duration::format(MAX_LIFETIME.as_secs()));
    format!("Pod {} serves SSH. It is deleted after {idle} without activity, and after {lifetime}.", pod.name)
}

fn check_running(pod: &Pod) -> Result<(), Progress> {
    let name = &pod.name;
    if pod.is_terminated() {
        let message = format!("Pod {name} has terminated: {}.", pod.reason_and_message());
        return Err(Progress::Failed(Reason::PodFailed, message));
    }
    check_not_deleted(pod)
}

/// Keeps the agent configured, and ends the operation when it is idle or its time is over.
fn serve(
    state: &State<'_>,
    steps: &mut Steps,
    operation: &DiskOperation,
    pod: &Pod,
    result: Box<DiskOperationResult>,
) -> Progress {
    if let Err(failed) = check_running(pod) {
        return failed;
    }
    let started = started_at(operation, state.now);
    let Some(rest) = remaining(MAX_LIFETIME, started, state.now) else {
        let message = format!("The pod was deleted after {}.", duration::format(MAX_LIFETIME.as_secs()));
        return Progress::Done(result, message);
    };
    steps.requeue_after(rest);
    let serving = serving_message(pod);
    // Without a valid control CA the agent cannot be reached.
    let can_call = !state.observed.control_cas.is_empty();
    let Some(details) = pod.operation.as_deref().filter(|details| details.ready && can_call) else {
        return Progress::Serve(result, serving);
    };
    let states = state.observed.operation_states.get(temporary::uid(operation));
    let agent = states.and_then(|states| states.agents.get(&pod.uid));
    let call = |steps: &mut Steps, request: AgentRequest| {
        let (Some(address), Some(host_key)) = (&details.ip, &details.host_key) else { return };
        let (address, host_key) = (address.to_string(), host_key.clone());
        let call = AgentCall { pod: pod.uid.clone(), address, host_key, request };
        steps.agent_calls.push((temporary::uid(operation).to_owned(), call));
    };
    if let Some(config) = due_config(state, steps, operation, details, agent) {
        call(steps, AgentRequest::Configure(Box::new(config)));
    }
    match next_poll(state, agent) {
        Poll::Idle(reason) => return Progress::Done(result, format!("The pod was deleted: {reason}.")),
        Poll::Now => call(steps, AgentRequest::GetSignals),
        Poll::After(delay) => steps.requeue_after(delay),
    }
    Progress::Serve(result, serving)
}

/// Returns the configuration of the agent if it differs from the last accepted one.
fn due_config(
    state: &State<'_>,
    steps: &mut Steps,
    operation: &DiskOperation,
    details: &OperationPod,
    agent: Option<&AgentState>,
) -> Option<AgentConfig> {
    // Without the owner, the agent keeps its keys.
    let keys = operation_keys(state.observed.owner?, operation);
    let config = AgentConfig {
        restarts: details.containers.iter().map(|container| container.restarts).sum(),
        access: Access { keys, user_cas: vec![], control_cas: state.observed.control_cas.to_vec() },
        expires_at: Some(add(started_at(operation, state.now), MAX_LIFETIME)),
        idle: Some(IdlePolicy { limit_seconds: IDLE_TIMEOUT.as_secs(), action: IdleAction::End }),
        idle_warning: None,
        preemption_notice: None,
        idle_status: None,
        jupyter: None,
    };
    if agent.and_then(|agent| agent.config.as_deref()) == Some(&config) {
        return None;
    }
    let failures = agent.and_then(|agent| agent.unreachable);
    match failures.and_then(|failures| remaining(retry_delay(failures.count), failures.at, state.now)) {
        Some(delay) => {
            steps.requeue_after(delay);
            None
        }
        None => Some(config),
    }
}

/// When to ask the agent for its activity signals.
enum Poll {
    Now,
    After(Duration),
    /// The pod is idle, for this reason.
    Idle(String),
}

/// Polls when the pod can be idle at the earliest. An agent that does not reply is not idle.
fn next_poll(state: &State<'_>, agent: Option<&AgentState>) -> Poll {
    // Replies from the future were recorded with another clock.
    let reply = agent.and_then(|agent| agent.signals_reply.as_deref()).filter(|reply| reply.at <= state.now);
    let Some(reply) = reply else { return Poll::Now };
    let policy = DetectionPolicy::all(IDLE_TIMEOUT);
    let delay = match activity::evaluate(reply.signals.as_ref().ok(), &policy) {
        Verdict::Idle { reason, .. } if elapsed(reply.at, state.now) <= MAX_REPLY_AGE => return Poll::Idle(reason),
        Verdict::Idle { .. } => Duration::ZERO,
        Verdict::Active { next_check, .. } => next_check,
        Verdict::Unknown => retry_delay(reply.failures).max(MAX_REPLY_AGE),
    };
    match until(add(reply.at, delay), state.now) {
        Duration::ZERO => Poll::Now,
        delay => Poll::After(delay),
    }
}
