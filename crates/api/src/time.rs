//! Times as they are stored.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// The time as the API server will give it back: in whole seconds, cut. A status computed from finer times would never
/// equal the stored one, and be written for ever.
pub fn stored(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_what_was_meant() {
        for text in ["2026-01-31T09:00:00.999999999Z", "2026-01-31T09:00:00Z", "1969-12-31T23:59:59.5Z"] {
            let time = stored(text.parse().unwrap());
            let read: Time = serde_json::from_value(serde_json::to_value(&time).unwrap()).unwrap();
            assert_eq!(read, time, "{text}");
        }
    }
}
