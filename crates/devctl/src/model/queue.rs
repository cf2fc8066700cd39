//! Queue data and its text. If the queue API is unavailable, statuses have positions and estimates of the last 30
//! seconds.

use jiff::Timestamp;
use odc_api::queue::{DryRunSpec, DryRunStatus, Queue, QueueEntry, StartEstimate};
use odc_api::v1alpha1::{DevServerFlavor, DevServerSpec, Home, condition::Reason};

use crate::client::{QueueResult, QueueUnavailable, Scope};
use crate::context::ClusterContext;
use crate::error::Result;
use crate::model::server::{Admission, DelayedStart, Eta, ServerSummary};
use crate::output::duration::{format_bound, format_clock, format_estimate};
use crate::ui::warning;

/// The responses of the queue API; `None` where it is unavailable.
#[derive(Default)]
pub struct QueueData {
    pub entries: Option<Vec<QueueEntry>>,
    pub queues: Option<Vec<Queue>>,
}

impl QueueData {
    /// Fetches the entries of the user's own servers.
    pub async fn fetch_own(ctx: &ClusterContext) -> Result<Self> {
        let entries = fetch_or_warn(ctx, ctx.client.queue_entries(Scope::Own)).await?;
        Ok(Self { entries, queues: None })
    }

    /// Fetches the entries of the user's own servers and the anonymous queues.
    pub async fn fetch_own_and_queues(ctx: &ClusterContext) -> Result<Self> {
        let (own, queues) = tokio::try_join!(ctx.client.queue_entries(Scope::Own), ctx.client.queues())?;
        Ok(Self { entries: ok_or_warn(ctx, own), queues: ok_or_warn(ctx, queues) })
    }

    /// Fetches all entries, or what [`Self::fetch_own_and_queues`] fetches for users who may not see them.
    pub async fn fetch_all(ctx: &ClusterContext) -> Result<Self> {
        let (all, own, queues) = tokio::try_join!(
            ctx.client.queue_entries(Scope::All),
            ctx.client.queue_entries(Scope::Own),
            ctx.client.queues()
        )?;
        match all {
            Ok(entries) => Ok(Self { entries: Some(entries), queues: None }),
            Err(_) => Ok(Self { entries: ok_or_warn(ctx, own), queues: ok_or_warn(ctx, queues) }),
        }
    }

    /// Returns the number of pending servers of a flavor.
    pub fn queue_length(&self, flavor: &DevServerFlavor) -> Option<i64> {
        let queue = self.queues.iter().flatten().find(|queue| queue.metadata.name == flavor.metadata.name)?;
        i64::try_from(queue.pending.len()).ok()
    }
}

/// Awaits a queue request. Prints a warning once if the queue API is unavailable.
pub async fn fetch_or_warn<T>(
    ctx: &ClusterContext,
    request: impl Future<Output = Result<QueueResult<T>>>,
) -> Result<Option<T>> {
    Ok(ok_or_warn(ctx, request.await?))
}

pub fn ok_or_warn<T>(ctx: &ClusterContext, response: QueueResult<T>) -> Option<T> {
    response.map_err(|reason| ctx.ui.info_once(unavailable_message(&reason))).ok()
}

pub fn unavailable_message(reason: &QueueUnavailable) -> String {
    warning(format!("queue API unavailable ({}); showing data up to 30s old", reason.0))
}

/// Builds the dry-run request for a server.
pub fn dry_run_spec(spec: &DevServerSpec) -> DryRunSpec {
    let scheduling = &spec.scheduling;
    DryRunSpec {
        flavor: spec.flavor.clone(),
        count: spec.count,
        nodes: Some(spec.nodes),
        lifetime: Some(spec.lifetime),
        team: spec.team.clone(),
        priority: scheduling.priority,
        preemptible: scheduling.preemptible,
        node_labels: scheduling.node_labels.clone(),
        not_before: scheduling.not_before.clone(),
        home_claim: match &spec.home {
            Home::Claim(claim) => Some(claim.clone()),
            Home::Disk(_) | Home::Ephemeral(_) => None,
        },
        claims: spec.volumes.iter().map(|volume| volume.claim.clone()).collect(),
    }
}

/// Replaces the admission of a server by its current queue entry. Without an entry the server has just left the queue,
/// and its status will follow.
pub fn merge_live(server: &mut ServerSummary, entries: &[QueueEntry]) {
    let matches = |entry: &&QueueEntry| {
        entry.metadata.name == server.metadata.name && entry.metadata.namespace == server.metadata.namespace
    };
    let Some(entry) = entries.iter().find(matches).cloned() else { return };
    let old = server.status.admission.take().unwrap_or_default();
    server.status.admission = Some(Admission {
        position: entry.position,
        eta: eta(&entry.start),
        delayed: entry.delayed.map(DelayedStart::from),
        reason: entry.reason,
        message: entry.message,
        queued_at: entry.queued_at.or_else(|| old.queued_at.clone()),
        ..old
    });
}

/// Returns the estimate; `None` without percentiles.
pub fn eta(start: &StartEstimate) -> Option<Eta> {
    Some(Eta { p50: start.p50.clone()?, p90: start.p90.clone()?, latest: start.latest.clone() })
}

/// `now` or `in about 1h20m`; `None` without an estimate.
pub fn format_start_short(start: &StartEstimate, now: Timestamp) -> Option<String> {
    if start.now {
        return Some("now".to_owned());
    }
    start.p50.as_ref().map(|p50| format!("in {}", format_estimate(p50.0, now)))
}

/// `in about 1h20m (90% within 3h)`.
pub fn format_eta(eta: &Eta, now: Timestamp) -> String {
    format!("in {} (90% within {})", format_estimate(eta.p50.0, now), format_bound(eta.p90.0, now))
}

/// `Latest start moved from 14:10 to 15:05: a running server was extended.`
pub fn format_delay(delay: &DelayedStart, now: Timestamp) -> String {
    let DelayedStart { from, to, message, .. } = delay;
    let to = to.as_ref().map_or_else(|| "unknown".to_owned(), |to| format_clock(to.0, now));
    format!("Latest start moved from {} to {to}. {message}", format_clock(from.0, now))
}

/// Formats the result of a dry run.
pub fn format_dry_run(status: &DryRunStatus, now: Timestamp) -> String {
    if status.start.now {
        return "Would start immediately.".to_owned();
    }
    let position = status.position.map(|position| format!(", queue position {position}")).unwrap_or_default();
    let is_booking = status.reason.as_deref() == Some(Reason::Booked.as_str());
    let start = match (&status.start.latest, eta(&status.start)) {
        // A booking has a time of day, not an estimate.
        (Some(start), _) if is_booking => format!("Would start at {}", format_clock(start.0, now)),
        (_, Some(eta)) => format!("Would start {}{position}", format_eta(&eta, now)),
        (Some(latest), None) => format!("Would start within {}{position}", format_bound(latest.0, now)),
        (None, None) => format!("Start time unknown{position}"),
    };
    match &status.message {
        Some(message) => format!("{start}. {message}"),
        None => format!("{start}."),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use odc_api::v1alpha1::{DevServer, Phase};
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn start(p50: i64, p90: i64) -> StartEstimate {
        StartEstimate { now: false, p50: Some(at(p50)), p90: Some(at(p90)), latest: Some(at(p90 + 60)) }
    }

    #[test]
    fn dry_run_reports_start_and_reason() {
        let now = at(0).0;
        let free =
            DryRunStatus { start: StartEstimate { now: true, ..StartEstimate::default() }, ..DryRunStatus::default() };
        assert_eq!(format_dry_run(&free, now), "Would start immediately.");
        let later = DryRunStatus {
            start: start(4800, 10_800),
            position: Some(3),
            reason: Some("InsufficientCapacity".into()),
            message: Some("Needs 8 gpu on one node; none is free.".into()),
        };
        assert_eq!(
            format_dry_run(&later, now),
            "Would start in about 1h20m (90% within 3h), queue position 3. Needs 8 gpu on one node; none is free."
        );
        let never = DryRunStatus { message: Some("No node has more than 8.".into()), ..DryRunStatus::default() };
        assert_eq!(format_dry_run(&never, now), "Start time unknown. No node has more than 8.");
    }

    #[test]
    fn delay_without_a_new_start_is_unknown() {
        let lost = DelayedStart {
            from: at(0),
            to: None,
            reason: "CapacityReduced".into(),
            message: "A node was removed.".into(),
        };
        let text = format_delay(&lost, at(0).0);
        assert!(text.ends_with(" to unknown. A node was removed."), "{text}");
    }

    #[test]
    fn dry_run_of_a_booking_has_a_time_of_day() {
        let booking = DryRunStatus {
            start: start(86_400, 86_400),
            reason: Some("Booked".into()),
            message: Some("The start time is reserved.".into()),
            position: None,
        };
        let text = format_dry_run(&booking, at(0).0);
        // The day depends on the time zone.
        assert!(!text.contains("about") && text.contains(" Jan "), "{text}");
        assert!(text.ends_with(". The start time is reserved."), "{text}");
    }

    #[test]
    fn live_entry_overrides_the_status() {
        let mut server = ServerSummary::try_from(&DevServer::test().in_phase(Phase::Queued)).unwrap();
        let entry: QueueEntry = serde_json::from_value(json!({
            "metadata": {"name": server.name(), "namespace": server.namespace()}, "position": 2,
            "start": {"p50": at(60), "p90": at(90)}, "message": "None is free.",
        }))
        .unwrap();
        merge_live(&mut server, &[]);
        assert_eq!(server.position(), None);
        let other = QueueEntry { position: Some(9), ..QueueEntry::default() };
        merge_live(&mut server, &[other, entry]);
        assert_eq!(server.position(), Some(2));
        let admission = server.status.admission.unwrap();
        assert_eq!((admission.message.as_deref(), admission.eta.unwrap().p90), (Some("None is free."), at(90)));
    }
}
