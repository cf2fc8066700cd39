//! Prometheus metrics. Label values are bounded: no names of users or servers.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Controller {
    pub controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReconcileError {
    pub controller: &'static str,
    pub class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WriteLabels {
    pub verb: &'static str,
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AgentRequestLabels {
    pub request: &'static str,
    /// `success` or `error`.
    pub result: &'static str,
}

/// Flavors are named by administrators and few.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EtaLabels {
    pub flavor: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EtaQuantileLabels {
    pub flavor: String,
    /// `p50` or `p90`.
    pub quantile: &'static str,
}

/// Why a planned start was delayed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DelayLabels {
    pub cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    descriptions: Vec<MetricDescription>,
    pub reconciles: Family<Controller, Counter>,
    pub reconcile_errors: Family<ReconcileError, Counter>,
    pub writes: Family<WriteLabels, Counter>,
    pub agent_requests: Family<AgentRequestLabels, Counter>,
    pub invalid_objects: Family<KindLabels, Counter>,
    pub reconcile_seconds: Histogram,
    pub scheduling_cycle_seconds: Histogram,
    pub scheduler_cpu: Counter<f64, AtomicU64>,
    pub pending_servers: Gauge,
    pub eta_estimates: Family<EtaLabels, Counter>,
    pub eta_within: Family<EtaQuantileLabels, Counter>,
    pub delayed_starts: Family<DelayLabels, Counter>,
    leader: Gauge,
    leader_since: Gauge<f64, AtomicU64>,
    process_start: Gauge<f64, AtomicU64>,
    pub start_seconds: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registration::new();
        let seconds = |from: f64| Histogram::new(exponential_buckets(from, 2.0, 14));
        let metrics = Self {
            reconciles: Family::default(),
            reconcile_errors: Family::default(),
            writes: Family::default(),
            agent_requests: Family::default(),
            invalid_objects: Family::default(),
            reconcile_seconds: seconds(0.000_5),
            scheduling_cycle_seconds: seconds(0.000_5),
            scheduler_cpu: Counter::default(),
            pending_servers: Gauge::default(),
            eta_estimates: Family::default(),
            eta_within: Family::default(),
            delayed_starts: Family::default(),
            leader: Gauge::default(),
            leader_since: Gauge::default(),
            process_start: Gauge::default(),
            start_seconds: seconds(0.25),
            registry: Registry::default(),
            descriptions: Vec::new(),
        };
        registry.register("controller_reconcile", "Total reconciliations", metrics.reconciles.clone());
        registry.register(
            "controller_reconcile_errors",
            "Total failed reconciliations",
            metrics.reconcile_errors.clone(),
        );
        registry.register("writes", "Total writes to the API server", metrics.writes.clone());
        registry.register("agent_requests", "Total requests to agents", metrics.agent_requests.clone());
        registry.register(
            "invalid_objects",
            "Total objects that failed to deserialize",
            metrics.invalid_objects.clone(),
        );
        registry.register(
            "controller_reconcile_time_seconds",
            "Duration of a reconciliation, writes included",
            metrics.reconcile_seconds.clone(),
        );
        registry.register(
            "scheduling_cycle_seconds",
            "Duration of a scheduling cycle",
            metrics.scheduling_cycle_seconds.clone(),
        );
        registry.register("scheduler_cpu_seconds", "Total CPU time spent planning", metrics.scheduler_cpu.clone());
        registry.register("pending_servers", "Servers waiting for admission", metrics.pending_servers.clone());
        registry.register(
            "eta_estimates",
            "Total start estimates of servers that have started",
            metrics.eta_estimates.clone(),
        );
        registry.register(
            "eta_within",
            "Total servers that started within the estimate, by quantile",
            metrics.eta_within.clone(),
        );
        registry.register(
            "delayed_starts",
            "Total planned starts that were delayed, by cause",
            metrics.delayed_starts.clone(),
        );
        registry.register("leader", "Whether this process is the leader", metrics.leader.clone());
        registry.register(
            "leader_since_time_seconds",
            "Time at which this process became leader, or 0 if it is not",
            metrics.leader_since.clone(),
        );
        registry.register(
            "process_start_time_seconds",
            "Time at which this process started",
            metrics.process_start.clone(),
        );
        registry.register("build", "Version of the executable", Info::new(BuildLabels { version: VERSION }));
        registry.register("start_seconds", "Time from admission to ready", metrics.start_seconds.clone());
        Self { registry: registry.registry, descriptions: registry.descriptions, ..metrics }
    }
}

impl Metrics {
    /// Records when this process started.
    pub fn set_process_start(&self, time: Timestamp) {
        self.process_start.set(unix_seconds(time));
    }

    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Records that this process became leader, or lost leadership.
    pub fn set_leader_since(&self, since: Option<Timestamp>) {
        self.leader.set(i64::from(since.is_some()));
        self.leader_since.set(since.map_or(0.0, unix_seconds));
    }

    pub fn record_write(&self, verb: &'static str, kind: &'static str) {
        self.writes.get_or_create(&WriteLabels { verb, kind }).inc();
    }

    pub fn record_reconcile(&self, controller: &'static str, duration: Duration) {
        self.reconciles.get_or_create(&Controller { controller }).inc();
        self.reconcile_seconds.observe(duration.as_secs_f64());
    }
}

const PREFIX: &str = "odc";
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn unix_seconds(time: Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
}

/// What `/metrics` says about a metric, for the reference page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDescription {
    /// The name of its samples, without the suffixes of a histogram.
    pub name: String,
    pub kind: &'static str,
    pub help: &'static str,
}

/// Returns every metric of the operator in the order of registration.
pub fn metric_descriptions() -> Vec<MetricDescription> {
    Metrics::default().descriptions
}

/// Registers metrics and records their descriptions, because a registry cannot be enumerated and omits empty families.
struct Registration {
    registry: Registry,
    descriptions: Vec<MetricDescription>,
}

impl Registration {
    fn new() -> Self {
        Self { registry: Registry::with_prefix(PREFIX), descriptions: Vec::new() }
    }

    fn register(&mut self, name: &'static str, help: &'static str, metric: impl Metric) {
        let (kind, suffix) = match metric.metric_type() {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Gauge => ("gauge", ""),
            MetricType::Histogram => ("histogram", ""),
            MetricType::Info => ("info", "_info"),
            MetricType::Unknown => ("unknown", ""),
        };
        self.descriptions.push(MetricDescription { name: format!("{PREFIX}_{name}{suffix}"), kind, help });
        self.registry.register(name, help, metric);
    }
}
