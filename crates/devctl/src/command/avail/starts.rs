//! When servers of each size would start.

use jiff::Timestamp;
use odc_api::queue::{self, Start};
use serde::Serialize;

use crate::output::time::until;

/// A server of this size, if it were asked for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Size {
    /// On each node.
    pub gpus: u32,
    pub nodes: u32,
    pub now: bool,
    pub p50: Option<Timestamp>,
    pub p90: Option<Timestamp>,
    pub latest: Option<Timestamp>,
    /// Why not now.
    pub message: Option<String>,
}

impl From<&queue::Size> for Size {
    fn from(size: &queue::Size) -> Self {
        let queue::Size { count, nodes, start: Start { now, p50, p90, latest }, message } = size;
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

/// `1, 2 now; 4 ~40m; 8, 2×8 ~1h20m`: sizes with the same answer share it. Those of which nobody can say it are left out
/// here; what is in their way is in the JSON.
pub fn words(sizes: &[queue::Size], now: Timestamp) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for size in sizes {
        let starts = match (&size.start.p50, size.start.now) {
            (_, true) => "now".to_owned(),
            (Some(half), false) => format!("~{}", until(half.0, now)),
            (None, false) => continue,
        };
        let label = match (size.count, size.nodes) {
            (0, 1) => String::new(),
            (count, 1) => count.to_string(),
            (count, nodes) => format!("{nodes}×{count}"),
        };
        match groups.last_mut().filter(|(same, _)| *same == starts) {
            Some((_, labels)) => labels.push(label),
            None => groups.push((starts, vec![label])),
        }
    }
    let group = |(starts, labels): &(String, Vec<String>)| format!("{} {starts}", labels.join(", ")).trim().to_owned();
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(sizes: &Value) -> String {
        let sizes: Vec<queue::Size> = serde_json::from_value(sizes.clone()).unwrap();
        words(&sizes, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn sizes_with_the_same_answer_share_it() {
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
        assert_eq!(said(&sizes), "1, 2 now; 4 ~40m; 8, 2×8 ~2h30m");
        assert_eq!(said(&json!([size(0, 1, &now)])), "now");
    }
}
