//! The time decisions are made by: the API server's, carried on by this machine's monotonic clock.
//!
//! Every answer of the API server states its time in whole seconds. The clock is moved only when it contradicts such an
//! answer, so it neither jumps with this machine's wall clock nor wavers within a second.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

#[derive(Clone, Debug)]
pub struct Clock(Arc<Mutex<Reading>>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    time: Timestamp,
}

impl Clock {
    /// From this machine's clock until the first answer comes.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Reading { at: Instant::now(), time: Timestamp::now() })))
    }

    pub fn now(&self) -> Timestamp {
        let reading = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reading.now(Instant::now())
    }

    /// Learns from an answer that arrived just now and says it was made in this second.
    pub fn learn(&self, said: Timestamp) {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *reading = reading.corrected(Instant::now(), said);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// How much older than its arrival an answer may be before it is taken for the truth about now.
const TRAVEL: SignedDuration = SignedDuration::from_secs(1);

impl Reading {
    fn now(self, at: Instant) -> Timestamp {
        let passed = at.saturating_duration_since(self.at);
        self.time.saturating_add(passed).unwrap_or(self.time)
    }

    fn corrected(self, at: Instant, said: Timestamp) -> Self {
        let now = self.now(at);
        let latest = said.saturating_add(SignedDuration::from_secs(1) + TRAVEL).unwrap_or(said);
        if now < said {
            Self { at, time: said }
        } else if now > latest {
            Self { at, time: latest }
        } else {
            self
        }
    }
}

/// The date an answer carries, as HTTP writes it.
pub fn date(headers: &http::HeaderMap) -> Option<Timestamp> {
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

    fn check(own: Timestamp, said: i64, expect: Timestamp) {
        let start = Instant::now();
        let reading = Reading { at: start, time: own };
        assert_eq!(reading.corrected(start, at(said, 0)).now(start), expect);
    }

    #[test]
    fn an_answer_that_agrees_changes_nothing() {
        check(at(100, 0), 100, at(100, 0));
        check(at(100, 999), 100, at(100, 999));
        check(at(101, 900), 100, at(101, 900));
    }

    #[test]
    fn a_clock_that_is_wrong_follows_the_api_server() {
        check(at(40, 0), 100, at(100, 0));
        check(at(4_000, 0), 100, at(102, 0));
    }

    #[test]
    fn time_passes_by_the_monotonic_clock() {
        let start = Instant::now();
        let reading = Reading { at: start, time: at(100, 0) };
        assert_eq!(reading.now(start + Duration::from_millis(1_500)), at(101, 500));
    }

    #[test]
    fn a_date_header_is_read() {
        let mut headers = http::HeaderMap::new();
        assert_eq!(date(&headers), None);
        headers.insert(http::header::DATE, "Mon, 16 Nov 2026 00:24:57 GMT".parse().unwrap());
        assert_eq!(date(&headers), Some("2026-11-16T00:24:57Z".parse().unwrap()));
        headers.insert(http::header::DATE, "soon".parse().unwrap());
        assert_eq!(date(&headers), None);
    }
}
