//! How the time between the request to stop and the kill by Kubernetes is divided. All instants count from the start of
//! `init`.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timetable {
    /// The preStop script is given up.
    pub pre_stop_until: Duration,
    /// Whoever did not end on request is killed.
    pub kill_at: Duration,
    /// A process that not even this ends hangs in the kernel; it is not waited for any longer.
    pub flush_at: Duration,
    /// `init` ends, written or not. Before the grace is over, because Kubernetes counts from a moment earlier.
    pub leave_at: Duration,
}

impl Timetable {
    /// Short graces are divided in proportion. Of long ones the end is what a minute would give, so that the rest goes to
    /// the script.
    pub fn new(now: Duration, grace: Duration) -> Self {
        let end = now + grace;
        let before_end =
            |seconds: u32| end.saturating_sub((grace * seconds / 60).min(Duration::from_secs(seconds.into())));
        Self {
            pre_stop_until: before_end(20),
            kill_at: before_end(10),
            flush_at: before_end(7),
            leave_at: before_end(3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(grace: u64, expect: [u64; 4]) {
        let now = Duration::from_secs(1000);
        let Timetable { pre_stop_until, kill_at, flush_at, leave_at } = Timetable::new(now, Duration::from_secs(grace));
        let millis = [pre_stop_until, kill_at, flush_at, leave_at].map(|at| at.saturating_sub(now).as_millis());
        assert_eq!(millis, expect.map(u128::from), "grace {grace}");
    }

    #[test]
    fn a_minute_is_the_model() {
        check(60, [40_000, 50_000, 53_000, 57_000]);
    }

    #[test]
    fn a_short_grace_is_divided_in_proportion() {
        check(6, [4_000, 5_000, 5_300, 5_700]);
        check(1, [666, 833, 883, 950]);
    }

    #[test]
    fn of_a_long_grace_the_script_has_the_most() {
        check(3600, [3_580_000, 3_590_000, 3_593_000, 3_597_000]);
        check(u64::from(u32::MAX), [20, 10, 7, 3].map(|before| (u64::from(u32::MAX) - before) * 1000));
    }
}
