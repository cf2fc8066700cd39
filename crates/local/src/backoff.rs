//! Exponential backoff between restarts of a component.

use std::time::Duration;

/// Doubles the delay with every failure. A run of at least `reset_after` starts again from the initial delay.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    reset_after: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(initial: Duration, max: Duration, reset_after: Duration) -> Self {
        Self { initial, max, reset_after, next: initial }
    }

    /// Returns the delay after a run that failed after `uptime`.
    pub fn next_delay(&mut self, uptime: Duration) -> Duration {
        if uptime >= self.reset_after {
            self.next = self.initial;
        }
        let delay = self.next;
        self.next = (delay * 2).min(self.max);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn delay_doubles_up_to_the_maximum() {
        let mut backoff = Backoff::new(seconds(1), seconds(5), seconds(60));
        let delays = [(); 5].map(|()| backoff.next_delay(Duration::ZERO));
        assert_eq!(delays, [1, 2, 4, 5, 5].map(seconds));
    }

    #[test]
    fn delay_resets_after_a_stable_run() {
        let mut backoff = Backoff::new(seconds(1), seconds(5), seconds(60));
        backoff.next_delay(Duration::ZERO);
        assert_eq!(backoff.next_delay(seconds(59)), seconds(2));
        assert_eq!(backoff.next_delay(seconds(60)), seconds(1));
    }
}
