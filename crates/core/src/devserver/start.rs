//! Starting a server: creating the missing objects of the current run.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Admission, Home, Phase};

use super::pod_failure::PodFailure;
use super::reconcile::Reconcile;
use super::status::Outcome;
use super::validate::Valid;
use super::{Plan, Query, SecretState, build, messages, pods};
use crate::cluster::Pod;
use crate::plan::{Requeue, Write};
use crate::time::remaining;

/// Why nothing can be written for a start.
enum StartBlocker {
    Query(Query),
    /// An object with a required name belongs to another owner.
    NameConflict(String),
    /// The entrypoint of the image cannot be read.
    EntrypointUnreadable(String),
}

impl Reconcile<'_> {
    pub(super) fn start(&self, admission: &Admission, failure: Option<&PodFailure>) -> Plan {
        let valid = match self.checked {
            Ok(valid) => valid,
            // Existing pods are kept. Only new ones wait for a valid request.
            Err(violations) => return self.reject(violations, self.adopt()),
        };
        let next = self.next_writes(valid, admission);
        let (reason, message) = self.starting_reason(valid, next.as_ref().err(), failure);
        let cannot_progress = match &next {
            Ok(writes) => writes.is_empty() && self.are_nodes_ready(),
            Err(blocked) => matches!(blocked, StartBlocker::NameConflict(_)),
        };
        let remaining = self.remaining_start_time(admission);
        if cannot_progress && remaining.is_none() {
            return self.fail(&PodFailure {
                reason: Reason::StartTimeout,
                message: messages::start_timeout(self.settings.start_timeout, reason, &message),
                log: failure.and_then(|failure| failure.log.clone()),
                fatal: true,
            });
        }
        let host_key_lost = self.soft_state.secret == SecretState::Missing && self.has_stored_key();
        let outcome = Outcome::new(Phase::Starting, reason, message);
        let outcome = if host_key_lost { outcome.host_key_lost() } else { outcome };
        match next {
            Ok(writes) => {
                // Creating the Secret tells which host key is in force, and the pods depend on it.
                let immediately = host_key_lost || writes.iter().any(creates_secret);
                let delay = if immediately { Some(Duration::ZERO) } else { remaining };
                let requeue = delay.map_or(Requeue::AwaitChange, Requeue::After);
                let requeue = requeue.earlier(self.next_pod_check()).earlier(self.next_secret_check());
                self.plan_with_status(&outcome, writes, requeue)
            }
            Err(StartBlocker::NameConflict(_)) => {
                let requeue = remaining.map_or(Requeue::AwaitChange, Requeue::After);
                self.plan_with_status(&outcome, vec![], requeue.earlier(self.next_secret_check()))
            }
            Err(StartBlocker::Query(query)) => {
                // If the query keeps failing, the status says what the start is waiting for.
                let failing = self.soft_state.recurring_error.is_some();
                let plan = failing.then(|| self.plan_with_status(&outcome, vec![], Requeue::AwaitChange));
                Plan {
                    query: Some(query),
                    phase: Some(Phase::Starting),
                    status: plan.and_then(|plan| plan.status),
                    ..Plan::empty()
                }
            }
            Err(StartBlocker::EntrypointUnreadable(cause)) => self.fail(&PodFailure {
                reason: Reason::ImageNotFound,
                message: messages::entrypoint_unreadable(&cause),
                log: None,
                fatal: true,
            }),
        }
    }

    /// Returns what the start is waiting for.
    fn starting_reason(
        &self,
        valid: &Valid<'_>,
        blocked: Option<&StartBlocker>,
        failure: Option<&PodFailure>,
    ) -> (Reason, String) {
        if let Some(StartBlocker::NameConflict(message)) = blocked {
            return (Reason::NameConflict, message.clone());
        }
        if let Some(failure) = failure {
            return (failure.reason, failure.message.clone());
        }
        if self.waits_for_disk(valid) {
            return (valid.disk.reason, valid.disk.message.clone());
        }
        if let Some(error) = &self.soft_state.recurring_error {
            return (Reason::WriteFailed, error.clone());
        }
        self.termination_problem().unwrap_or_else(|| messages::starting(&self.pods))
    }

    /// Returns the remaining time for the start. It counts from the latest of: the phase Starting, the admission, the
    /// creation of the newest pod, and the end of the previous pods. A replaced pod has its own start time.
    fn remaining_start_time(&self, admission: &Admission) -> Option<Duration> {
        let timeout = self.settings.start_timeout;
        let stored = self.stored().filter(|status| status.phase == Some(Phase::Starting));
        let entry = stored.and_then(|status| status.timeline.last()).filter(|entry| entry.phase == Phase::Starting);
        // Until the phase is stored the start begins now. The admission may be days old.
        let Some(starting) = entry.map(|entry| entry.at.0) else { return Some(timeout) };
        let created = self.pods.live().filter_map(|pod| pod.server.as_ref()?.created_at);
        let deleted = self.pods.terminating.iter().filter_map(|pod| pod.deletion_timestamp);
        let admitted = admission.admitted_at.as_ref().map(|at| at.0);
        let since = created.chain(deleted).chain(admitted).fold(starting, Timestamp::max);
        remaining(timeout, since, self.now)
    }

    /// Reports whether all pods are bound to ready nodes, so that only the pods can be the cause of a timeout. Unbound pods
    /// and unready nodes are handled by the scheduler.
    fn are_nodes_ready(&self) -> bool {
        let is_ready = |node: &str| self.observed.nodes.get(node).is_some_and(|node| node.is_ready());
        let is_bound = |pod: &Pod| pod.node.as_deref().is_some_and(is_ready);
        self.pods.current.iter().all(|pod| pod.is_some_and(is_bound))
    }

    /// Returns the writes for missing objects of the run, in order of dependency: pods mount the Secret and find each other
    /// through the Service.
    fn next_writes(&self, valid: &Valid<'_>, admission: &Admission) -> Result<Vec<Write>, StartBlocker> {
        if let Some(foreign) = self.pods.foreign.iter().find(|pod| pod.deletion_timestamp.is_none()) {
            return Err(StartBlocker::NameConflict(messages::name_conflict("Pod", &foreign.name)));
        }
        let mut writes = self.adopt();
        writes.extend(self.delete_surplus());
        let missing: Vec<usize> = (0..self.pods.current.len()).filter(|ordinal| self.is_name_free(*ordinal)).collect();
        match self.soft_state.secret {
            SecretState::Foreign if self.is_secret_check_due() => return Err(StartBlocker::Query(Query::Secret)),
            SecretState::Foreign => {
                let name = build::secret_name(valid.name.as_str(), valid.uid);
                return Err(StartBlocker::NameConflict(messages::name_conflict("Secret", &name)));
            }
            // The stored key is removed before it is replaced, so that it is never mistaken for the new one.
            SecretState::Missing if self.has_stored_key() => {
                return Ok(self.keyed_pods().map(|pod| Write::Delete(pods::target(pod, None))).collect());
            }
            SecretState::Missing => return Ok(create_secret(valid, writes)),
            SecretState::Unknown | SecretState::Present(_) if missing.is_empty() => {
                return if self.is_secret_check_due() { Err(StartBlocker::Query(Query::Secret)) } else { Ok(writes) };
            }
            SecretState::Unknown | SecretState::Present(_) => {}
        }
        let Some(host_key) = self.host_key() else { return Ok(create_secret(valid, writes)) };
        let entrypoint = self.entrypoint(valid)?;
        writes.extend(self.service(valid)?);
        if self.waits_for_disk(valid) {
            return Ok(writes);
        }
        for ordinal in missing {
            let Some(node) = admission.nodes.get(ordinal) else { continue };
            let assignment = build::PodAssignment {
                ordinal,
                run: admission.run,
                node,
                user_namespaces: self.observed.nodes.get(node.as_str()).is_some_and(|node| node.user_namespaces),
            };
            writes.push(Write::Create(build::pod(
                valid,
                assignment,
                &host_key,
                &entrypoint,
                self.settings,
                self.observed.control_cas,
            )));
        }
        Ok(writes)
    }

    /// Reports whether a pod is missing while another server may still write to its volume, or while the server does not
    /// hold its disk. The admission may be older than that.
    fn waits_for_disk(&self, valid: &Valid<'_>) -> bool {
        let missing = (0..self.pods.current.len()).any(|ordinal| self.is_name_free(ordinal));
        let is_disk = matches!(self.server.spec.home, Home::Disk(_));
        missing && (valid.disk.reason == Reason::DiskInUse || is_disk && !valid.disk.ready)
    }

    /// Reports whether no pod, not even a terminating one, has the name of this ordinal.
    fn is_name_free(&self, ordinal: usize) -> bool {
        let name = pods::pod_name(self.server.metadata.name.as_deref().unwrap_or_default(), ordinal);
        self.observed.pods.iter().all(|pod| pod.name != name)
    }

    fn entrypoint(&self, valid: &Valid<'_>) -> Result<Vec<String>, StartBlocker> {
        let image = self.server.spec.image.as_ref();
        if !image.is_some_and(|image| image.keep_entrypoint) {
            return Ok(vec![]);
        }
        match &self.soft_state.entrypoint {
            Some(Ok(entrypoint)) => Ok(entrypoint.clone()),
            Some(Err(cause)) => Err(StartBlocker::EntrypointUnreadable(cause.clone())),
            None => {
                let pull_secrets = valid.pull_secrets().map(str::to_owned).collect();
                Err(StartBlocker::Query(Query::Entrypoint { image: valid.image.to_owned(), pull_secrets }))
            }
        }
    }

    /// Creates or repairs the Service of a gang.
    fn service(&self, valid: &Valid<'_>) -> Result<Option<Write>, StartBlocker> {
        if valid.nodes == 1 {
            return Ok(None);
        }
        let desired = build::service(valid);
        match self.observed.service {
            Some(service) if service.server_uid().as_deref() != Some(valid.uid) => {
                Err(StartBlocker::NameConflict(messages::name_conflict("Service", &desired.name)))
            }
            Some(service) if service.is_deleting || service.contains(&desired) => Ok(None),
            Some(_) | None => Ok(Some(Write::Apply(desired))),
        }
    }

    /// Returns the writes that revert external changes to a server whose pods all exist.
    pub(super) fn repairs(&self) -> Vec<Write> {
        let service = self.checked.as_ref().ok().and_then(|valid| self.service(valid).ok().flatten());
        self.adopt().into_iter().chain(self.delete_surplus()).chain(service).collect()
    }

    fn adopt(&self) -> Vec<Write> {
        let name = self.server.metadata.name.as_deref().unwrap_or_default();
        let uid = self.server.metadata.uid.as_deref().unwrap_or_default();
        let owner = serde_json::to_value(build::owner_reference(name, uid)).unwrap_or_default();
        let orphans = self.pods.orphaned.iter();
        orphans.map(|pod| Write::Adopt { target: pods::target(pod, None), owner: owner.clone() }).collect()
    }

    /// Pods of an older run may occupy names of the current one.
    fn delete_surplus(&self) -> impl Iterator<Item = Write> {
        self.pods.surplus.iter().map(|pod| Write::Delete(pods::target(pod, None)))
    }
}

fn create_secret(valid: &Valid<'_>, mut writes: Vec<Write>) -> Vec<Write> {
    writes.push(Write::CreateWithKeys { secret: build::secret(valid), names: build::key_names(valid) });
    writes
}

fn creates_secret(write: &Write) -> bool {
    matches!(write, Write::CreateWithKeys { .. })
}
