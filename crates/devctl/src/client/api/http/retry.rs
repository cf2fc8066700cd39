//! Decides whether and when a failed request is repeated. Without I/O.

use std::time::{Duration, Instant};

use ::http::{HeaderMap, header};

use super::request::Retries;
use crate::error::Error;

/// Attempts of a request that is not answered.
const MAX_ATTEMPTS: u32 = 4;

/// The time between the first two attempts; it doubles.
const FIRST_DELAY: Duration = Duration::from_millis(200);

/// How long to repeat requests while the API says when to try again.
const MAX_RETRY_TIME: Duration = Duration::from_secs(20);

/// A request that failed.
pub struct Failure {
    pub error: Error,
    is_temporary: bool,
    /// When the API suggests to repeat the request. Unset if it did not answer.
    retry_after: Option<Duration>,
}

impl Failure {
    pub const fn permanent(error: Error) -> Self {
        Self { error, is_temporary: false, retry_after: None }
    }

    pub const fn temporary(error: Error, retry_after: Option<Duration>) -> Self {
        Self { error, is_temporary: true, retry_after }
    }
}

/// The attempts of one request.
pub struct Retry {
    retries: Retries,
    failures: u32,
    first_failure: Option<Instant>,
}

impl Retry {
    pub const fn new(retries: Retries) -> Self {
        Self { retries, failures: 0, first_failure: None }
    }

    /// Returns after which time to repeat a request, or nothing to give up.
    pub fn next_delay(&mut self, failure: &Failure, now: Instant) -> Option<Duration> {
        self.failures += 1;
        let first = *self.first_failure.get_or_insert(now);
        let is_allowed = match self.retries {
            Retries::Unavailable => true,
            Retries::Unreachable => failure.retry_after.is_none(),
            Retries::Never => false,
        };
        if !failure.is_temporary || !is_allowed {
            return None;
        }
        match failure.retry_after {
            Some(delay) => (now.duration_since(first) + delay <= MAX_RETRY_TIME).then_some(delay),
            None => (self.failures < MAX_ATTEMPTS).then(|| FIRST_DELAY * (1 << (self.failures - 1))),
        }
    }
}

/// Returns the delay that the header `Retry-After` asks for, in its form with seconds.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u32 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.max(1).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(retries: Retries, failure: &Failure) -> Vec<u128> {
        let (mut retry, mut now, mut delays) = (Retry::new(retries), Instant::now(), vec![]);
        while let Some(delay) = retry.next_delay(failure, now) {
            delays.push(delay.as_millis());
            now += delay;
        }
        delays
    }

    fn unreachable() -> Failure {
        Failure::temporary(Error::failed("connection refused"), None)
    }

    fn unavailable(seconds: u64) -> Failure {
        Failure::temporary(Error::failed("unavailable"), Some(Duration::from_secs(seconds)))
    }

    #[test]
    fn unanswered_request_is_repeated_three_times() {
        assert_eq!(delays(Retries::Unavailable, &unreachable()), [200, 400, 800]);
        assert_eq!(delays(Retries::Unreachable, &unreachable()), [200, 400, 800]);
        assert!(delays(Retries::Never, &unreachable()).is_empty());
    }

    #[test]
    fn suggested_delay_is_honored_for_a_bounded_time() {
        assert_eq!(delays(Retries::Unavailable, &unavailable(5)), [5_000; 4]);
        assert!(delays(Retries::Unavailable, &unavailable(30)).is_empty());
        assert!(delays(Retries::Unreachable, &unavailable(1)).is_empty());
    }

    #[test]
    fn rejected_request_is_not_repeated() {
        assert!(delays(Retries::Unavailable, &Failure::permanent(Error::denied("no"))).is_empty());
    }

    #[test]
    fn retry_after_is_a_number_of_seconds() {
        let parse = |value: &'static str| {
            retry_after(&HeaderMap::from_iter([(header::RETRY_AFTER, ::http::HeaderValue::from_static(value))]))
        };
        assert_eq!(parse("5"), Some(Duration::from_secs(5)));
        assert_eq!(parse("0"), Some(Duration::from_secs(1)));
        assert_eq!(parse("Wed, 21 Oct 2026 07:28:00 GMT"), None);
    }
}
