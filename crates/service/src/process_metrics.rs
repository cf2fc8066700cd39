//! Metrics that every role of the service has, with the same names as those of the operator.

use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// Returns a registry with the version and the start of the process, which is now.
pub fn registry() -> Registry {
    let mut registry = Registry::with_prefix("odc");
    let start = Gauge::<f64, AtomicU64>::default();
    start.set(Timestamp::now().as_duration().as_secs_f64());
    registry.register("process_start_time_seconds", "Time at which this process started", start);
    let build = Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION") });
    registry.register("build", "Version of the executable", build);
    registry
}
