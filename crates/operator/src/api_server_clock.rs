//! The API server's time, advanced by the local monotonic clock.
//!
//! Every response of the API server has a `Date` header in whole seconds. The clock is corrected only when it
//! contradicts such a header, so it neither jumps with the local wall clock nor jitters within a second.

use std::sync::Arc;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

#[derive(Clone, Debug)]
pub struct Clock(Arc<Mutex<Reading>>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    time: Timestamp,
}

impl Clock {
    /// Starts from the local wall clock until the first response.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Reading { at: Instant::now(), time: Timestamp::now() })))
    }

    pub fn now(&self) -> Timestamp {
        let reading = *self.0.lock();
        reading.now(Instant::now())
    }

    /// Corrects the clock by the date of a response that has just arrived.
    pub fn observe(&self, date: Timestamp) {
        let mut reading = self.0.lock();
        *reading = reading.corrected(Instant::now(), date);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// How old a response may be when it arrives without being taken as the current time.
const MAX_LATENCY: SignedDuration = SignedDuration::from_secs(1);

impl Reading {
    fn now(self, at: Instant) -> Timestamp {
        let elapsed = at.saturating_duration_since(self.at);
        self.time.saturating_add(elapsed).unwrap_or(self.time)
    }

    fn corrected(self, at: Instant, date: Timestamp) -> Self {
        let now = self.now(at);
        let latest = date.saturating_add(SignedDuration::from_secs(1) + MAX_LATENCY).unwrap_or(date);
        if now < date {
            Self { at, time: date }
        } else if now > latest {
            Self { at, time: latest }
        } else {
            self
        }
    }
}

/// Parses the `Date` header.
pub fn date_header(headers: &http::HeaderMap) -> Option<Timestamp> {
    let text = headers.get(http::header::DATE)?.to_str().ok()?;
    jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(second: i64, milli: i32) -> Timestamp {
        Timestamp::new(second, milli * 1_000_000).unwrap()
    }

    fn check(local: Timestamp, date: i64, expected: Timestamp) {
        let start = Instant::now();
        let reading = Reading { at: start, time: local };
        assert_eq!(reading.corrected(start, at(date, 0)).now(start), expected);
    }

    #[test]
    fn consistent_date_does_not_change_the_clock() {
        check(at(100, 0), 100, at(100, 0));
        check(at(100, 999), 100, at(100, 999));
        check(at(101, 900), 100, at(101, 900));
    }

    #[test]
    fn wrong_clock_follows_the_api_server() {
        check(at(40, 0), 100, at(100, 0));
        check(at(4_000, 0), 100, at(102, 0));
    }

    #[test]
    fn clock_advances_with_monotonic_time() {
        let start = Instant::now();
        let reading = Reading { at: start, time: at(100, 0) };
        assert_eq!(reading.now(start + Duration::from_millis(1_500)), at(101, 500));
    }

    #[test]
    fn date_header_is_parsed() {
        let mut headers = http::HeaderMap::new();
        assert_eq!(date_header(&headers), None);
        headers.insert(http::header::DATE, "Mon, 16 Nov 2026 00:24:57 GMT".parse().unwrap());
        assert_eq!(date_header(&headers), Some("2026-11-16T00:24:57Z".parse().unwrap()));
        headers.insert(http::header::DATE, "soon".parse().unwrap());
        assert_eq!(date_header(&headers), None);
    }
}
