//! Failures of quiescing a server before a stop: its preStop script failed, or data was not synced. The stop continues, but
//! the failure is reported before the pod is deleted.

use k8s_openapi::jiff::Timestamp;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{DevServerStatus, Failure};
use odc_control::{Outcome, Quiesced};

use super::reconcile::Reconcile;
use crate::plan::Event;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuiesceFailure {
    /// When the agent reported it.
    pub at: Timestamp,
    pub reason: Reason,
    pub message: String,
    /// The tail of the script's output.
    pub log: Option<String>,
}

impl QuiesceFailure {
    /// Returns `None` if quiescing succeeded.
    pub fn from_outcome(outcome: &Quiesced, at: Timestamp) -> Option<Self> {
        let sync_error = (!outcome.synced).then(|| {
            let cause = outcome.sync_error.as_deref().unwrap_or("unknown error");
            format!("Failed to sync all data to disk before the stop: {cause}. Check the files saved last.")
        });
        let pre_stop = outcome.pre_stop.as_ref().filter(|pre_stop| !pre_stop.is_success());
        let pre_stop = pre_stop.map(|pre_stop: &Outcome| format!("preStop {pre_stop}. The stop was continued."));
        // A possible loss of data takes precedence.
        let reason = if sync_error.is_some() { Reason::DataNotSynced } else { Reason::PreStopFailed };
        let messages: Vec<String> = sync_error.into_iter().chain(pre_stop).collect();
        let log = outcome.pre_stop_log.as_ref().map(ToString::to_string);
        (!messages.is_empty()).then(|| Self { at, reason, message: messages.join(" "), log })
    }

    pub(super) fn event(&self) -> Event {
        Event { warning: true, reason: self.reason, action: "Stop", note: self.message.clone() }
    }

    /// Sets the last failure of the status, unless a newer one is stored.
    pub(super) fn record(&self, status: &mut DevServerStatus) {
        if self.is_newer_than(status) {
            let failure = Failure::new(self.reason, &self.message, to_api_precision(self.at), self.log.as_deref());
            status.last_failure = Some(Box::new(failure));
        }
    }

    fn is_newer_than(&self, status: &DevServerStatus) -> bool {
        status.last_failure.as_ref().is_none_or(|failure| failure.time.0 < to_api_precision(self.at).0)
    }
}

impl Reconcile<'_> {
    /// Returns the newest failure reported by an agent.
    pub(super) fn quiesce_failure(&self) -> Option<&QuiesceFailure> {
        let failures = self.pods.all().filter_map(|pod| self.agent(pod)?.quiesce_failure.as_ref());
        failures.max_by_key(|failure| failure.at)
    }

    /// Returns the newest failure if it is not stored yet.
    pub(super) fn unreported_quiesce_failure(&self) -> Option<&QuiesceFailure> {
        self.quiesce_failure().filter(|failure| self.stored().is_none_or(|status| failure.is_newer_than(status)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devserver::fixtures::at;

    fn done() -> Quiesced {
        Quiesced { pre_stop: Some(Outcome::Code(0)), pre_stop_log: None, synced: true, sync_error: None, home: None }
    }

    #[test]
    fn successful_quiesce_is_no_failure() {
        assert_eq!(QuiesceFailure::from_outcome(&done(), at(1)), None);
        assert_eq!(QuiesceFailure::from_outcome(&Quiesced { pre_stop: None, ..done() }, at(1)), None);
    }

    #[test]
    fn pre_stop_failure_has_log_tail() {
        let failed = Quiesced { pre_stop: Some(Outcome::Code(3)), pre_stop_log: Some("no space".into()), ..done() };
        let failure = QuiesceFailure::from_outcome(&failed, at(1)).unwrap();
        assert_eq!(failure.reason, Reason::PreStopFailed);
        assert_eq!(failure.message, "preStop exited with code 3. The stop was continued.");
        assert_eq!(failure.log.as_deref(), Some("no space"));
    }

    #[test]
    fn sync_failure_takes_precedence() {
        let sync_error = Some("/home/dev: Input/output error".into());
        let failed = Quiesced { pre_stop: Some(Outcome::TimedOut), synced: false, sync_error, ..done() };
        let failure = QuiesceFailure::from_outcome(&failed, at(1)).unwrap();
        assert_eq!(failure.reason, Reason::DataNotSynced);
        assert_eq!(
            failure.message,
            "Failed to sync all data to disk before the stop: /home/dev: Input/output error. Check the files saved last. \
             preStop timed out and was killed. The stop was continued."
        );
    }

    #[test]
    fn newer_failure_is_kept() {
        let failure = QuiesceFailure::from_outcome(&Quiesced { synced: false, ..done() }, at(10)).unwrap();
        let mut status = DevServerStatus::default();
        failure.record(&mut status);
        assert_eq!(status.last_failure.as_ref().unwrap().reason, "DataNotSynced");
        let newer = Box::new(Failure::new(Reason::NodeLost, "gone", to_api_precision(at(11)), None));
        status.last_failure = Some(newer.clone());
        failure.record(&mut status);
        assert_eq!(status.last_failure, Some(newer));
    }
}
