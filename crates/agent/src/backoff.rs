//! Exponential back-off between restarts of a process, as the kubelet's `CrashLoopBackOff`.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    reset_after: Duration,
    immediate_first_retry: bool,
    /// Consecutive failures.
    failures: u32,
}

impl Backoff {
    /// The delay starts at `initial`, doubles up to `max`, and starts over after an uptime of `reset_after`.
    pub const fn new(initial: Duration, max: Duration, reset_after: Duration) -> Self {
        Self { initial, max, reset_after, immediate_first_retry: false, failures: 0 }
    }

    /// Makes the first retry immediate; the delay starts with the second one.
    #[must_use]
    pub const fn with_immediate_first_retry(self) -> Self {
        Self { immediate_first_retry: true, ..self }
    }

    /// Records that the process failed after `uptime`, and returns the delay before the next start.
    pub fn next_delay(&mut self, uptime: Duration) -> Duration {
        if uptime >= self.reset_after {
            self.reset();
        }
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        let doublings = if self.immediate_first_retry { failures.checked_sub(1) } else { Some(failures) };
        doublings.map_or(Duration::ZERO, |doublings| self.initial.saturating_mul(1 << doublings.min(16)).min(self.max))
    }

    /// Forgets earlier failures.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESET_AFTER: Duration = Duration::from_secs(60);

    fn backoff() -> Backoff {
        Backoff::new(Duration::from_secs(1), Duration::from_secs(10), RESET_AFTER)
    }

    fn delays(mut backoff: Backoff) -> Vec<u64> {
        (0..8).map(|_| backoff.next_delay(Duration::from_secs(1)).as_secs()).collect()
    }

    #[test]
    fn delay_doubles_up_to_the_maximum() {
        assert_eq!(delays(backoff()), [1, 2, 4, 8, 10, 10, 10, 10]);
        let slow = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), RESET_AFTER);
        assert_eq!(delays(slow), [1, 2, 4, 8, 16, 32, 60, 60]);
        let mut backoff = slow;
        assert_eq!((0..100).map(|_| backoff.next_delay(Duration::ZERO)).max(), Some(Duration::from_secs(60)));
    }

    #[test]
    fn first_retry_is_immediate_on_request() {
        assert_eq!(delays(backoff().with_immediate_first_retry()), [0, 1, 2, 4, 8, 10, 10, 10]);
    }

    #[test]
    fn long_uptime_resets_the_delay() {
        let mut backoff = backoff().with_immediate_first_retry();
        for _ in 0..5 {
            backoff.next_delay(Duration::ZERO);
        }
        assert_eq!(backoff.next_delay(RESET_AFTER), Duration::ZERO);
        assert_eq!(backoff.next_delay(Duration::from_secs(1)), Duration::from_secs(1));
    }
}
