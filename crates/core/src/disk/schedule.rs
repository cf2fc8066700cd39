//! Restore points on a schedule, while a server uses the disk.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::{Consistency, PointReason};

use super::point::{self, MAX_SNAPSHOTS_BEFORE_STOPS, NewPoint};
use super::{State, Steps, flush};
use crate::cluster::ClaimPhase;

const HOUR: i64 = 60 * 60;
const DAY: i64 = 24 * HOUR;

/// Takes the points that are due. A point is due when its hour, day or week differs from that of the newest point of the
/// same kind, in whichever direction, so a clock that was ahead does not stop the schedule.
pub(super) fn take_due_points(state: &State<'_>, steps: &mut Steps) {
    let schedule = &state.disk.spec.schedule;
    let (Some(points), Some(claim)) = (&state.points, state.current_claim()) else { return };
    let is_held = state.stored.holder.as_ref().is_some_and(|holder| holder.releasing_since.is_none());
    if points.count_in_namespace() >= MAX_SNAPSHOTS_BEFORE_STOPS {
        return;
    }
    if !is_held || claim.phase != ClaimPhase::Bound || state.writers().next().is_none() {
        return;
    }
    for (reason, count, period) in [
        (PointReason::Hourly, schedule.hourly, HOUR),
        (PointReason::Daily, schedule.daily, DAY),
        (PointReason::Weekly, schedule.weekly, 7 * DAY),
    ] {
        if count == 0 {
            continue;
        }
        let second = state.now.as_second();
        let start = second - second.rem_euclid(period);
        let name = name(state.name, reason, start);
        let newest = points.own.iter().find(|snapshot| snapshot.reason == reason);
        let is_due = newest.is_none_or(|newest| newest.name != name) && !points.is_name_taken(&name);
        if is_due && flush::is_flushed(state, steps) {
            let consistency = Consistency::CrashConsistent;
            let new = NewPoint { name: &name, reason, consistency, operation_uid: None, note: None, temporary: None };
            steps.disk_writes.push(point::create(state, points, claim, &new));
        }
        let left = u64::try_from(start + period - second).unwrap_or(0);
        steps.requeue_after(Duration::from_secs(left.max(1)));
    }
}

/// Returns the name of the point of a period, such as `home-hourly-20260131-09`.
fn name(disk: &str, reason: PointReason, start: i64) -> String {
    let start = Timestamp::from_second(start).unwrap_or_default();
    let format = if reason == PointReason::Hourly { "%Y%m%d-%H" } else { "%Y%m%d" };
    format!("{disk}-{}-{}", reason.as_str().to_ascii_lowercase(), start.strftime(format))
}
