//! Metrics of the worker. Label values are bounded: no names of users or objects.

use std::time::Duration;

use jiff::Timestamp;
use odc_store::queue::{Depth, FinishResult, Queue};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::answer::Outcome;
use crate::process_metrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueLabels {
    pub queue: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HandlerLabels {
    /// Such as `devserver.create`.
    pub action: &'static str,
    /// `succeeded`, `rejected`, `failed` or `retried`.
    pub result: &'static str,
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub queue_messages: Family<QueueLabels, Gauge>,
    pub oldest_message_seconds: Family<QueueLabels, Gauge>,
    pub retries: Family<QueueLabels, Counter>,
    pub stale_deliveries: Family<QueueLabels, Counter>,
    pub handler_seconds: Family<HandlerLabels, Histogram>,
    pub messages_in_progress: Gauge,
    pub listening: Gauge,
    pub projection_writer: Gauge,
    pub pending_objects: Gauge,
    pub projected_objects: Family<KindLabels, Counter>,
    pub skipped_objects: Family<KindLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 16));
        let mut metrics = Self {
            registry: process_metrics::registry(),
            queue_messages: Family::default(),
            oldest_message_seconds: Family::default(),
            retries: Family::default(),
            stale_deliveries: Family::default(),
            handler_seconds: Family::new_with_constructor(seconds),
            messages_in_progress: Gauge::default(),
            listening: Gauge::default(),
            projection_writer: Gauge::default(),
            pending_objects: Gauge::default(),
            projected_objects: Family::default(),
            skipped_objects: Family::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("queue_messages", "Messages in a queue", self.queue_messages.clone());
        registry.register(
            "queue_oldest_message_age_seconds",
            "Age of the oldest message of a queue",
            self.oldest_message_seconds.clone(),
        );
        registry.register("worker_retries", "Total temporary failures of requests", self.retries.clone());
        registry.register(
            "worker_stale_deliveries",
            "Total results of messages that were delivered again meanwhile",
            self.stale_deliveries.clone(),
        );
        registry.register(
            "worker_handler_seconds",
            "Duration of the execution of a request",
            self.handler_seconds.clone(),
        );
        registry.register(
            "worker_messages_in_progress",
            "Messages that were read and are not finished",
            self.messages_in_progress.clone(),
        );
        registry.register("worker_listening", "Whether new messages are notified", self.listening.clone());
        registry.register(
            "projection_writer",
            "Whether this process writes the projection",
            self.projection_writer.clone(),
        );
        registry.register(
            "projection_pending_objects",
            "Changed objects that are not written yet",
            self.pending_objects.clone(),
        );
        registry.register("projection_objects", "Total objects that were written", self.projected_objects.clone());
        registry.register(
            "projection_skipped_objects",
            "Total objects that could not be written",
            self.skipped_objects.clone(),
        );
    }

    /// Creates a sample of every family, because empty families are not encoded.
    fn create_samples(&self) {
        let queue = QueueLabels { queue: Queue::Reservations.as_str() };
        for family in [&self.queue_messages, &self.oldest_message_seconds] {
            drop(family.get_or_create(&queue));
        }
        for family in [&self.retries, &self.stale_deliveries] {
            drop(family.get_or_create(&queue));
        }
        for family in [&self.projected_objects, &self.skipped_objects] {
            drop(family.get_or_create(&KindLabels { kind: "DevServer" }));
        }
        let handler = HandlerLabels { action: "devserver.create", result: "succeeded" };
        drop(self.handler_seconds.get_or_create(&handler));
    }

    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    pub fn record_depths(&self, depths: &[Depth], now: Timestamp) {
        for depth in depths {
            let labels = QueueLabels { queue: depth.queue.as_str() };
            let age = depth.oldest.map(|oldest| now.as_second().saturating_sub(oldest.as_second()).max(0));
            self.queue_messages.get_or_create(&labels).set(i64::try_from(depth.messages).unwrap_or(i64::MAX));
            self.oldest_message_seconds.get_or_create(&labels).set(age.unwrap_or_default());
        }
    }

    pub fn record_handler(&self, queue: Queue, action: &'static str, outcome: &Outcome, duration: Duration) {
        let result = match outcome {
            Outcome::Finished(FinishResult::Succeeded) => "succeeded",
            Outcome::Finished(FinishResult::Rejected { .. }) => "rejected",
            Outcome::Finished(FinishResult::Failed { .. }) => "failed",
            Outcome::Retry { .. } => "retried",
        };
        if matches!(outcome, Outcome::Retry { .. }) {
            self.retries.get_or_create(&QueueLabels { queue: queue.as_str() }).inc();
        }
        let histogram = self.handler_seconds.get_or_create(&HandlerLabels { action, result });
        histogram.observe(duration.as_secs_f64());
    }
}

/// Returns the name, type, labels and help text of every metric of the worker, sorted by name.
pub fn metric_descriptions() -> Result<Vec<[String; 4]>, std::fmt::Error> {
    let metrics = Metrics::default();
    metrics.create_samples();
    let text = metrics.text()?;
    let mut descriptions: Vec<_> = text.split("# HELP ").skip(1).filter_map(parse_description).collect();
    descriptions.sort();
    Ok(descriptions)
}

/// Parses the text of one metric after `# HELP `.
fn parse_description(text: &str) -> Option<[String; 4]> {
    let mut lines = text.lines();
    let (name, help) = lines.next()?.split_once(' ')?;
    let kind = lines.next()?.rsplit_once(' ')?.1;
    let suffix = match kind {
        "counter" => "_total",
        "info" => "_info",
        _ => "",
    };
    let sample = lines.next()?;
    let labels = sample.split_once('{').map(|(_, labels)| labels.split(',').filter_map(|label| label.split_once('=')));
    let labels: Vec<&str> =
        labels.into_iter().flatten().map(|(label, _)| label).filter(|label| *label != "le").collect();
    Some([format!("{name}{suffix}"), kind.to_owned(), labels.join(" "), help.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_name_queue_action_and_result() {
        let metrics = Metrics::default();
        let second = |second| Timestamp::from_second(second).unwrap();
        let depth = Depth { queue: Queue::Reservations, messages: 3, oldest: Some(second(100)) };
        metrics.record_depths(&[depth], second(107));
        let retry = Outcome::Retry { after: None, message: String::new() };
        metrics.record_handler(Queue::Reservations, "devserver.create", &retry, Duration::from_millis(3));
        let text = metrics.text().unwrap();
        for line in [
            "odc_queue_messages{queue=\"gpu_reservations\"} 3",
            "odc_queue_oldest_message_age_seconds{queue=\"gpu_reservations\"} 7",
            "odc_worker_retries_total{queue=\"gpu_reservations\"} 1",
            "odc_worker_handler_seconds_count{action=\"devserver.create\",result=\"retried\"} 1",
            "odc_build_info{version=\"0.1.0\"} 1",
            "odc_process_start_time_seconds ",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn descriptions_have_type_labels_and_help() {
        let descriptions = metric_descriptions().unwrap();
        let handler =
            ["odc_worker_handler_seconds", "histogram", "action result", "Duration of the execution of a request."];
        assert!(descriptions.iter().any(|description| *description == handler), "{descriptions:?}");
        let registered = 13;
        assert_eq!(descriptions.len(), registered, "{descriptions:?}");
    }
}
