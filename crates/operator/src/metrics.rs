//! What the operator counts. Labels are few and bounded: no names of people or servers.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Controller {
    pub controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Failure {
    pub controller: &'static str,
    pub class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Written {
    pub verb: &'static str,
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Called {
    pub say: &'static str,
    pub ok: String,
}

/// Flavors are few, and an administrator names them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Promised {
    pub flavor: String,
    pub promises: &'static str,
}

/// Why a planned start became later.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Moved {
    pub cause: &'static str,
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub reconciles: Family<Controller, Counter>,
    pub failures: Family<Failure, Counter>,
    pub writes: Family<Written, Counter>,
    pub calls: Family<Called, Counter>,
    pub unreadable: Family<Controller, Counter>,
    pub reconcile_seconds: Histogram,
    pub pass_seconds: Histogram,
    pub queue_cpu: Counter<f64, AtomicU64>,
    pub waiting: Gauge,
    pub promises: Family<Promised, Gauge>,
    pub moved: Family<Moved, Counter>,
    pub leading: Gauge,
    pub start_seconds: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("odc");
        let seconds = |from: f64| Histogram::new(exponential_buckets(from, 2.0, 14));
        let metrics = Self {
            reconciles: Family::default(),
            failures: Family::default(),
            writes: Family::default(),
            calls: Family::default(),
            unreadable: Family::default(),
            reconcile_seconds: seconds(0.000_5),
            pass_seconds: seconds(0.000_5),
            queue_cpu: Counter::default(),
            waiting: Gauge::default(),
            promises: Family::default(),
            moved: Family::default(),
            leading: Gauge::default(),
            start_seconds: seconds(0.25),
            registry: Registry::default(),
        };
        registry.register("reconciles", "Looks at single objects", metrics.reconciles.clone());
        registry.register("failures", "Looks that failed", metrics.failures.clone());
        registry.register("writes", "Writes to the API server", metrics.writes.clone());
        registry.register("agent_calls", "Conversations with agents", metrics.calls.clone());
        registry.register("unreadable_objects", "Objects that could not be read", metrics.unreadable.clone());
        registry.register("reconcile_seconds", "Time of one look, with its writes", metrics.reconcile_seconds.clone());
        registry.register("queue_pass_seconds", "Time of one pass of the queue", metrics.pass_seconds.clone());
        registry.register("queue_cpu_seconds", "Processor time of deciding who runs", metrics.queue_cpu.clone());
        registry.register("queue_waiting", "Servers that wait for devices", metrics.waiting.clone());
        let promises = "Starts that were promised and came, and how many of the 50 % and 90 % promises were kept";
        registry.register("queue_promises", promises, metrics.promises.clone());
        registry.register("queue_moved_starts", "Planned starts that became later", metrics.moved.clone());
        registry.register("leading", "Whether this process leads", metrics.leading.clone());
        registry.register("start_seconds", "From the grant to ready", metrics.start_seconds.clone());
        Self { registry, ..metrics }
    }
}

impl Metrics {
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    pub fn wrote(&self, verb: &'static str, kind: &'static str) {
        self.writes.get_or_create(&Written { verb, kind }).inc();
    }

    pub fn looked(&self, controller: &'static str, took: Duration) {
        self.reconciles.get_or_create(&Controller { controller }).inc();
        self.reconcile_seconds.observe(took.as_secs_f64());
    }
}
