//! Timestamps at the precision of the API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// Truncates a time to whole seconds, as the API server stores it. A status with a finer time would never equal the
/// stored one and would be written again and again.
pub fn to_api_precision(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_round_trips() {
        for text in ["2026-01-31T09:00:00.999999999Z", "2026-01-31T09:00:00Z", "1969-12-31T23:59:59.5Z"] {
            let time = to_api_precision(text.parse().unwrap());
            let read: Time = serde_json::from_value(serde_json::to_value(&time).unwrap()).unwrap();
            assert_eq!(read, time, "{text}");
        }
    }
}
