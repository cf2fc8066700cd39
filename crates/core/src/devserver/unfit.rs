//! What was not in order when a server was made fit for a stop: its preStop script failed, or not everything is on disk.
//! The stop goes on; but before the pod goes, and all that could be seen of it, the owner is told.

use k8s_openapi::jiff::Timestamp;
use odc_api::time::stored;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{DevServerStatus, Failure};
use odc_control::{Outcome, Quiesced};

use super::decide::Decision;
use crate::plan::Event;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// When it was heard of.
    pub at: Timestamp,
    pub reason: Reason,
    pub message: String,
    /// The end of what the script printed.
    pub log: Option<String>,
}

impl Unfit {
    /// Nothing, if all was in order.
    pub fn of(done: &Quiesced, at: Timestamp) -> Option<Self> {
        let not_written = (!done.synced).then(|| {
            let why = done.not_synced.as_deref().unwrap_or("its agent does not know why");
            format!("Not everything was written to disk before the stop: {why}. Look at what you saved last.")
        });
        let failed = done.pre_stop.as_ref().filter(|outcome| !outcome.is_success());
        let failed_script = failed.map(|outcome: &Outcome| format!("preStop {outcome}; the stop went on without it."));
        // What may be lost is worse than what was not done.
        let reason = if not_written.is_some() { Reason::NotWritten } else { Reason::PreStopFailed };
        let sentences: Vec<String> = not_written.into_iter().chain(failed_script).collect();
        let log = done.pre_stop_log.as_ref().map(ToString::to_string);
        (!sentences.is_empty()).then(|| Self { at, reason, message: sentences.join(" "), log })
    }

    pub(super) fn event(&self) -> Event {
        Event { serious: true, reason: self.reason, action: "Stop", note: self.message.clone() }
    }

    /// Into the status, unless something newer is there.
    pub(super) fn tell(&self, status: &mut DevServerStatus) {
        if self.is_news(status) {
            let failure = Failure::new(self.reason, &self.message, stored(self.at), self.log.as_deref());
            status.last_failure = Some(Box::new(failure));
        }
    }

    fn is_news(&self, status: &DevServerStatus) -> bool {
        status.last_failure.as_ref().is_none_or(|told| told.time.0 < stored(self.at).0)
    }
}

impl Decision<'_> {
    /// The newest of what its agents told.
    pub(super) fn unfit(&self) -> Option<&Unfit> {
        self.parts.all().filter_map(|pod| self.agent(pod)?.unfit.as_ref()).max_by_key(|unfit| unfit.at)
    }

    /// The same, if nobody was told.
    pub(super) fn untold(&self) -> Option<&Unfit> {
        self.unfit().filter(|unfit| self.stored().is_none_or(|status| unfit.is_news(status)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devserver::fixtures::at;

    fn done() -> Quiesced {
        Quiesced {
            pre_stop: Some(Outcome::Code(0)),
            pre_stop_log: None,
            synced: true,
            not_synced: None,
            listing: None,
            listing_cut: false,
        }
    }

    #[test]
    fn what_was_in_order_is_no_news() {
        assert_eq!(Unfit::of(&done(), at(1)), None);
        assert_eq!(Unfit::of(&Quiesced { pre_stop: None, ..done() }, at(1)), None);
    }

    #[test]
    fn a_script_that_failed_is_told_with_its_last_words() {
        let failed = Quiesced { pre_stop: Some(Outcome::Code(3)), pre_stop_log: Some("no space".into()), ..done() };
        let unfit = Unfit::of(&failed, at(1)).unwrap();
        assert_eq!(unfit.reason, Reason::PreStopFailed);
        assert_eq!(unfit.message, "preStop ended with exit code 3; the stop went on without it.");
        assert_eq!(unfit.log.as_deref(), Some("no space"));
    }

    #[test]
    fn what_is_not_on_disk_comes_first() {
        let why = Some("/home/dev: Input/output error".into());
        let failed = Quiesced { pre_stop: Some(Outcome::TimedOut), synced: false, not_synced: why, ..done() };
        let unfit = Unfit::of(&failed, at(1)).unwrap();
        assert_eq!(unfit.reason, Reason::NotWritten);
        assert_eq!(
            unfit.message,
            "Not everything was written to disk before the stop: /home/dev: Input/output error. Look at what you saved \
             last. preStop took too long and was killed; the stop went on without it."
        );
    }

    #[test]
    fn what_came_later_stays() {
        let unfit = Unfit::of(&Quiesced { synced: false, ..done() }, at(10)).unwrap();
        let mut status = DevServerStatus::default();
        unfit.tell(&mut status);
        assert_eq!(status.last_failure.as_ref().unwrap().reason, "NotWritten");
        let newer = Box::new(Failure::new(Reason::NodeLost, "gone", stored(at(11)), None));
        status.last_failure = Some(newer.clone());
        unfit.tell(&mut status);
        assert_eq!(status.last_failure, Some(newer));
    }
}
