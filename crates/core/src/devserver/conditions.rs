//! The conditions of a server.

use k8s_openapi::jiff::Timestamp;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{self, Condition, Reason, Status, Type};
use odc_api::v1alpha1::{DevServerStatus, Phase, StopCause};
use odc_control::duration;

use super::lifetime::{self, Stage, WARNING_PERIOD};
use super::status::{Outcome, Transition};
use super::validate::{Valid, Violation};
use super::{Settings, active_admission, messages};

/// The new state of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConditionUpdate {
    pub is_true: bool,
    pub reason: Reason,
    pub message: String,
}

impl ConditionUpdate {
    pub(super) fn new(is_true: bool, reason: Reason, message: impl Into<String>) -> Self {
        Self { is_true, reason, message: message.into() }
    }
}

pub(super) struct Conditions<'a> {
    pub outcome: &'a Outcome,
    pub checked: &'a Result<Valid<'a>, Vec<Violation>>,
    pub settings: &'a Settings,
    pub generation: Option<i64>,
    pub now: Timestamp,
}

impl Conditions<'_> {
    /// Returns all conditions except Idle.
    pub(super) fn all(&self, status: &DevServerStatus) -> Vec<Condition> {
        let image = ConditionUpdate::new(true, Reason::ImageAvailable, "No build required.");
        [
            (Type::Accepted, Some(self.accepted())),
            (Type::ImageReady, Some(image)),
            (Type::DiskReady, self.disk_ready(status)),
            (Type::Admitted, Some(self.admitted(status))),
            (Type::PodsReady, Some(self.pods_ready())),
            (Type::Ready, Some(self.ready())),
            (Type::Expiring, self.expiring(status)),
        ]
        .into_iter()
        .filter_map(|(kind, update)| Some(self.build(kind, &update?)))
        .collect()
    }

    pub(super) fn build(&self, kind: Type, update: &ConditionUpdate) -> Condition {
        let status = if update.is_true { Status::True } else { Status::False };
        condition::new(kind, status, update.reason, &update.message, self.generation, to_api_precision(self.now))
    }

    fn accepted(&self) -> ConditionUpdate {
        match self.checked {
            Err(violations) => {
                let reason = violations.first().map_or(Reason::Invalid, |violation| violation.reason);
                let all: Vec<&str> = violations.iter().map(|violation| violation.message.as_str()).collect();
                ConditionUpdate::new(false, reason, all.join(" "))
            }
            Ok(_) => ConditionUpdate::new(true, Reason::Valid, "The request is valid."),
        }
    }

    fn disk_ready(&self, status: &DevServerStatus) -> Option<ConditionUpdate> {
        match self.checked {
            Ok(valid) => Some(ConditionUpdate::new(valid.disk.ready, valid.disk.reason, valid.disk.message.clone())),
            // An admitted server has its volumes, even if its flavor was deleted since.
            Err(_) if active_admission(Some(status)).is_some() => None,
            Err(_) => Some(ConditionUpdate::new(false, Reason::NotQueued, "The request is not accepted.")),
        }
    }

    fn admitted(&self, status: &DevServerStatus) -> ConditionUpdate {
        let admission = active_admission(Some(status));
        let preempted = admission.filter(|admission| admission.preempt_at.is_some());
        let preempted = preempted.and_then(|admission| admission.message.as_ref());
        match self.outcome.phase {
            Phase::Starting | Phase::Running if admission.is_some() => match preempted {
                Some(message) => ConditionUpdate::new(true, Reason::Preempted, message.as_str()),
                None => ConditionUpdate::new(true, Reason::Admitted, "Admitted; nodes are assigned."),
            },
            // The pods of a server that hibernates still hold devices.
            Phase::Queued | Phase::Hibernating => {
                ConditionUpdate::new(false, self.outcome.reason, self.outcome.message.clone())
            }
            Phase::Hibernated => ConditionUpdate::new(false, self.outcome.reason, "Hibernated; no devices are held."),
            _ => ConditionUpdate::new(false, Reason::NotQueued, "The server is not queued."),
        }
    }

    fn pods_ready(&self) -> ConditionUpdate {
        let update = self.ready();
        if update.is_true { ConditionUpdate { message: "All pods are ready.".into(), ..update } } else { update }
    }

    fn ready(&self) -> ConditionUpdate {
        let is_true = self.outcome.phase == Phase::Running && self.outcome.reason == Reason::Running;
        ConditionUpdate::new(is_true, self.outcome.reason, self.outcome.message.clone())
    }

    fn expiring(&self, status: &DevServerStatus) -> Option<ConditionUpdate> {
        let expires_at = status.expires_at.as_ref();
        let stage = expires_at.map(|at| lifetime::stage(at.0, self.settings.expiry_grace, self.now));
        Some(match stage {
            _ if self.outcome.transition == Some(Transition::Stopping(StopCause::Expired)) => {
                ConditionUpdate::new(true, Reason::LifetimeExceeded, messages::EXPIRED)
            }
            Some(Stage::Grace(_) | Stage::Expired) => {
                let message = "Lifetime exceeded; the server will be stopped. Raise spec.lifetime to keep it.";
                ConditionUpdate::new(true, Reason::ExpiringSoon, message)
            }
            Some(Stage::ExpiringSoon(_)) => {
                let period = duration::format(WARNING_PERIOD.as_secs());
                let message = format!("The lifetime ends within {period}. Raise spec.lifetime to extend it.");
                ConditionUpdate::new(true, Reason::ExpiringSoon, message)
            }
            Some(Stage::Remaining(_)) => {
                let period = duration::format(WARNING_PERIOD.as_secs());
                let message = format!("The lifetime ends in more than {period}.");
                ConditionUpdate::new(false, Reason::LifetimeRemaining, message)
            }
            None if status.started_at.is_some() => {
                ConditionUpdate::new(false, Reason::LifetimeRemaining, "Lifetime is paused.")
            }
            None => return None,
        })
    }
}
