//! Metrics of the operator, as they are registered, with their labels.

use super::markdown::{code, sentence, start, table};

/// The labels of each metric that has some. Their values are documented in `crates/operator/src/metrics.rs`.
const LABELS: &[(&str, &[&str])] = &[
    ("odc_agent_requests_total", &["request", "result"]),
    ("odc_build_info", &["version"]),
    ("odc_controller_reconcile_errors_total", &["controller", "class"]),
    ("odc_controller_reconcile_total", &["controller"]),
    ("odc_delayed_starts_total", &["cause"]),
    ("odc_eta_estimates_total", &["flavor"]),
    ("odc_eta_within_total", &["flavor", "quantile"]),
    ("odc_invalid_objects_total", &["kind"]),
    ("odc_writes_total", &["verb", "kind"]),
];

const VALUES: &str = "
| label | values |
|---|---|
| `class` | `conflict` (modified concurrently, retried at once), `transient` (retried with backoff), `invalid` (waits for a change), `bug` |
| `result` | `success`, `error` |
| `quantile` | `p50`, `p90` |
| `cause` | the reasons of a delayed start; see [Scheduling](../concepts/scheduling.md) |
";

const WORKER: &str = "
## Worker

`odc worker` serves these metrics on `/metrics` of `ODC_METRICS_ADDRESS`, `odc api` those of the process
(`odc_build_info`, `odc_process_start_time_seconds`).
";

pub(super) fn page() -> anyhow::Result<String> {
    let introduction = "The operator serves these metrics in the OpenMetrics text format on `/metrics` of \
        `ODC_METRICS_ADDRESS`. A histogram has the usual `_bucket`, `_sum` and `_count` series; durations are in seconds. \
        A metric with labels appears with its first sample.\n\n[Monitoring](../admin/monitoring.md) describes what to \
        alert on.";
    let mut page =
        start("Metrics", "crates/operator/src/metrics.rs and crates/service/src/worker/metrics.rs", introduction);
    let mut metrics = odc_operator::metric_descriptions();
    metrics.sort_by(|one, other| one.name.cmp(&other.name));
    let rows = metrics
        .into_iter()
        .map(|metric| vec![code(&metric.name), metric.kind.into(), labels(&metric.name), sentence(metric.help)]);
    table(&mut page, &["metric", "type", "labels", "meaning"], rows);
    page.push_str(VALUES);
    page.push_str(WORKER);
    let rows = odc_service::worker::metric_descriptions()?.into_iter().map(|[name, kind, labels, help]| {
        let labels: Vec<String> = labels.split_whitespace().map(code).collect();
        vec![code(&name), kind, labels.join(", "), sentence(&help)]
    });
    table(&mut page, &["metric", "type", "labels", "meaning"], rows);
    Ok(page)
}

fn labels(metric: &str) -> String {
    let labels = LABELS.iter().find(|(name, _)| *name == metric).map(|(_, labels)| *labels).unwrap_or_default();
    labels.iter().map(|label| code(label)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_belong_to_existing_metrics() {
        let metrics = odc_operator::metric_descriptions();
        for (name, _) in LABELS {
            assert!(metrics.iter().any(|metric| metric.name == *name), "{name} does not exist");
        }
    }
}
