//! Divides the grace period between the stop request and the SIGKILL from the kubelet. Times are relative to the start
//! of `init`.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownSchedule {
    /// The preStop script is killed.
    pub pre_stop_deadline: Duration,
    /// Processes that ignored SIGTERM are killed.
    pub kill_at: Duration,
    /// File systems are synced even if processes remain; those hang in the kernel.
    pub sync_at: Duration,
    /// `init` exits even if the sync has not finished. Earlier than the end of the grace period, which the kubelet
    /// started to count a moment earlier.
    pub exit_at: Duration,
}

impl ShutdownSchedule {
    /// A grace period of up to one minute is divided proportionally. Beyond that, the additional time goes to the
    /// script.
    pub fn new(now: Duration, grace: Duration) -> Self {
        let end = now + grace;
        let before_end =
            |seconds: u32| end.saturating_sub((grace * seconds / 60).min(Duration::from_secs(seconds.into())));
        Self {
            pre_stop_deadline: before_end(20),
            kill_at: before_end(10),
            sync_at: before_end(7),
            exit_at: before_end(3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(grace: u64, expect: [u64; 4]) {
        let now = Duration::from_secs(1000);
        let ShutdownSchedule { pre_stop_deadline, kill_at, sync_at, exit_at } =
            ShutdownSchedule::new(now, Duration::from_secs(grace));
        let millis = [pre_stop_deadline, kill_at, sync_at, exit_at].map(|at| at.saturating_sub(now).as_millis());
        assert_eq!(millis, expect.map(u128::from), "grace {grace}");
    }

    #[test]
    fn one_minute_has_the_reference_schedule() {
        check(60, [40_000, 50_000, 53_000, 57_000]);
    }

    #[test]
    fn short_grace_period_is_divided_proportionally() {
        check(6, [4_000, 5_000, 5_300, 5_700]);
        check(1, [666, 833, 883, 950]);
    }

    #[test]
    fn additional_time_goes_to_the_script() {
        check(3600, [3_580_000, 3_590_000, 3_593_000, 3_597_000]);
        check(u64::from(u32::MAX), [20, 10, 7, 3].map(|before| (u64::from(u32::MAX) - before) * 1000));
    }
}
