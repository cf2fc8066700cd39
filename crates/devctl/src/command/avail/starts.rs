//! The expected start times by size.

use jiff::Timestamp;
use odc_api::queue::{self, StartEstimate};
use serde::Serialize;

use crate::output::duration::format_until;

/// When a server of this size would start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SizeJson {
    /// Per node.
    pub gpus: u32,
    pub nodes: u32,
    pub now: bool,
    pub p50: Option<Timestamp>,
    pub p90: Option<Timestamp>,
    pub latest: Option<Timestamp>,
    /// Why it would not start now.
    pub message: Option<String>,
}

impl From<&queue::AvailableSize> for SizeJson {
    fn from(size: &queue::AvailableSize) -> Self {
        let queue::AvailableSize { count, nodes, start: StartEstimate { now, p50, p90, latest }, message } = size;
        let time = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| time.as_ref().map(|at| at.0);
        Self {
            gpus: *count,
            nodes: *nodes,
            now: *now,
            p50: time(p50),
            p90: time(p90),
            latest: time(latest),
            message: message.clone(),
        }
    }
}

/// `1, 2 now; 4 ~40m; 8, 2×8 ~1h20m`: sizes with the same start are grouped. Sizes without an estimate are omitted.
pub fn format_starts(sizes: &[queue::AvailableSize], now: Timestamp) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for size in sizes {
        let start = match (&size.start.p50, size.start.now) {
            (_, true) => "now".to_owned(),
            (Some(p50), false) => format!("~{}", format_until(p50.0, now)),
            (None, false) => continue,
        };
        let label = match (size.count, size.nodes) {
            (0, 1) => String::new(),
            (count, 1) => count.to_string(),
            (count, nodes) => format!("{nodes}×{count}"),
        };
        match groups.last_mut().filter(|(same, _)| *same == start) {
            Some((_, labels)) => labels.push(label),
            None => groups.push((start, vec![label])),
        }
    }
    let group = |(start, labels): &(String, Vec<String>)| format!("{} {start}", labels.join(", ")).trim().to_owned();
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn format_sizes(sizes: &Value) -> String {
        let sizes: Vec<queue::AvailableSize> = serde_json::from_value(sizes.clone()).unwrap();
        format_starts(&sizes, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn sizes_with_the_same_start_are_grouped() {
        let later = |seconds: i64| json!({"p50": Timestamp::from_second(seconds).unwrap().to_string()});
        let now = json!({"now": true});
        let size = |count: u32, nodes: u32, start: &Value| json!({"count": count, "nodes": nodes, "start": start});
        let sizes = json!([
            size(1, 1, &now),
            size(2, 1, &now),
            size(4, 1, &later(2400)),
            size(8, 1, &later(9000)),
            size(8, 2, &later(9000)),
            size(8, 4, &json!({})),
        ]);
        assert_eq!(format_sizes(&sizes), "1, 2 now; 4 ~40m; 8, 2×8 ~2h30m");
        assert_eq!(format_sizes(&json!([size(0, 1, &now)])), "now");
    }
}
