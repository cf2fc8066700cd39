//! When a process that ended is started again: at once, unless it ends again and again.

use std::time::Duration;

/// Who ran for so long did not end because it was started.
const LASTED: Duration = Duration::from_secs(10);

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comeback {
    /// How often it ended shortly after its start, without a pause.
    failures: u32,
    due: Option<Duration>,
}

impl Comeback {
    pub fn ended(&mut self, now: Duration, ran: Duration) {
        let pause = match self.failures {
            _ if ran >= LASTED => {
                self.failures = 0;
                Duration::ZERO
            }
            0 => Duration::ZERO,
            failures => FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(8)).min(LONGEST_PAUSE),
        };
        self.failures = self.failures.saturating_add(1);
        self.due = Some(now + pause);
    }

    pub fn started(&mut self) {
        self.due = None;
    }

    /// When it is to be started.
    pub fn due(&self) -> Option<Duration> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_end_costs_nothing_and_each_further_one_more_up_to_a_limit() {
        let mut comeback = Comeback::default();
        let pauses: Vec<u64> = (0..8)
            .map(|_| {
                comeback.ended(Duration::ZERO, Duration::from_secs(1));
                let due = comeback.due().unwrap();
                comeback.started();
                due.as_secs()
            })
            .collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 10, 10, 10]);
        assert_eq!(comeback.due(), None);
    }

    #[test]
    fn who_lasted_starts_with_a_clean_slate() {
        let mut comeback = Comeback::default();
        for _ in 0..5 {
            comeback.ended(Duration::ZERO, Duration::ZERO);
        }
        comeback.ended(Duration::from_secs(60), LASTED);
        assert_eq!(comeback.due(), Some(Duration::from_secs(60)));
        comeback.ended(Duration::from_secs(61), Duration::from_secs(1));
        assert_eq!(comeback.due(), Some(Duration::from_secs(62)));
    }
}
