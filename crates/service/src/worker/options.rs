//! Options of `odc worker`. The variables without prefix have the names and defaults of the reservation processor.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use odc_store::queue::Queue;
use odc_store::retention::Retention;

use crate::database::DatabaseOptions;

const DEFAULT_METRICS_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 9090);
/// The maximum number of messages that are read from a queue at once.
const MAX_BATCH: u32 = 50;

/// Options of `odc worker`.
#[derive(Clone, clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub(crate) database: DatabaseOptions,
    /// Kubeconfig file to use instead of the pod's service account
    #[arg(long, env = "ODC_KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Listen address of /livez, /readyz and /metrics
    #[arg(long, env = "ODC_METRICS_ADDRESS", value_name = "ADDRESS", default_value_t = DEFAULT_METRICS_ADDRESS)]
    pub(crate) metrics_address: SocketAddr,
    /// Queues to consume, separated by commas [default: all]
    #[arg(long, env = "QUEUE_NAME", value_name = "QUEUES", value_delimiter = ',', value_parser = parse_queue)]
    queue_name: Vec<Queue>,
    /// How often the queues are read while notifications are unavailable, in seconds
    #[arg(long, env = "POLL_INTERVAL_SECONDS", value_name = "SECONDS", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=3600))]
    poll_interval_seconds: u32,
    /// How long a message stays invisible to other workers, in seconds; it is extended while the message is handled
    #[arg(long, env = "VISIBILITY_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = 300,
        value_parser = clap::value_parser!(u32).range(1..=86400))]
    visibility_timeout_seconds: u32,
    /// Number of messages that a read has room for at least; up to 50 are read if they wait. If above 1, results wait for
    /// each other for up to a second
    #[arg(long, env = "BATCH_SIZE", value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=500))]
    batch_size: u32,
    /// Number of deliveries without a result after which a message is archived as failed
    #[arg(long, env = "MAX_READS", value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_reads: u32,
    /// Number of requests that are executed at the same time
    #[arg(long, env = "ODC_WORKER_CONCURRENCY", value_name = "N", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    concurrency: u32,
    /// Time after which a request that still fails for temporary reasons is given up, in seconds
    #[arg(long, env = "ODC_WORKER_DEADLINE_SECONDS", value_name = "SECONDS", default_value_t = 900,
        value_parser = clap::value_parser!(u32).range(1..=86400))]
    deadline_seconds: u32,
    /// Number of days for which finished requests, archived messages and invalid API keys are kept
    #[arg(long, env = "ODC_REQUEST_RETENTION_DAYS", value_name = "DAYS", default_value_t = Retention::default().request_days,
        value_parser = clap::value_parser!(u16).range(1..))]
    request_retention_days: u16,
    /// Number of days for which audit entries are kept, at least 30
    #[arg(long, env = "ODC_AUDIT_RETENTION_DAYS", value_name = "DAYS", default_value_t = Retention::default().audit_days,
        value_parser = clap::value_parser!(u16).range(30..))]
    audit_retention_days: u16,
    /// Number of days for which deleted servers and disks are kept, with their phase transitions and usage
    #[arg(long, env = "ODC_HISTORY_RETENTION_DAYS", value_name = "DAYS", default_value_t = Retention::default().history_days,
        value_parser = clap::value_parser!(u16).range(1..))]
    history_retention_days: u16,
}

/// How messages are consumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub queues: Vec<Queue>,
    pub poll_interval: Duration,
    pub visibility_seconds: u32,
    pub batch_size: usize,
    pub max_reads: u32,
    pub concurrency: usize,
    pub deadline: Duration,
}

impl Options {
    pub(crate) fn settings(&self) -> Settings {
        let queues = if self.queue_name.is_empty() { Queue::ALL.to_vec() } else { self.queue_name.clone() };
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Settings {
            queues,
            poll_interval: Duration::from_secs(self.poll_interval_seconds.into()),
            visibility_seconds: self.visibility_timeout_seconds,
            batch_size: count(self.batch_size),
            max_reads: self.max_reads,
            // A batch must fit.
            concurrency: count(self.concurrency.max(self.batch_size)),
            deadline: Duration::from_secs(self.deadline_seconds.into()),
        }
    }

    pub(crate) const fn retention(&self) -> Retention {
        Retention {
            request_days: self.request_retention_days,
            audit_days: self.audit_retention_days,
            history_days: self.history_retention_days,
        }
    }
}

impl Settings {
    /// Returns the number of messages to read from a queue while others are in progress, or 0 if there is no room for a
    /// batch.
    pub fn read_limit(&self, queue: Queue, in_progress: usize) -> u32 {
        let room = self.concurrency.saturating_sub(in_progress);
        if room < self.batch_size || !self.queues.contains(&queue) {
            return 0;
        }
        let most = usize::try_from(MAX_BATCH).unwrap_or(usize::MAX).max(self.batch_size);
        u32::try_from(room.min(most)).unwrap_or(u32::MAX)
    }
}

fn parse_queue(name: &str) -> Result<Queue, String> {
    let known = Queue::ALL.map(Queue::as_str).join(", ");
    Queue::from_name(name.trim()).ok_or_else(|| format!("unknown queue; the queues are {known}"))
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Settings, clap::Error> {
        let command = Options::augment_args(clap::Command::new("worker").no_binary_name(true));
        Ok(Options::from_arg_matches(&command.try_get_matches_from(arguments)?)?.settings())
    }

    #[test]
    fn defaults_are_those_of_the_reservation_processor() {
        let settings = parse(&[]).unwrap();
        let expect = Settings {
            queues: Queue::ALL.to_vec(),
            poll_interval: Duration::from_secs(5),
            visibility_seconds: 300,
            batch_size: 1,
            max_reads: 5,
            concurrency: 50,
            deadline: Duration::from_secs(900),
        };
        assert_eq!(settings, expect);
    }

    #[test]
    fn queues_are_a_list_of_known_names() {
        let settings = parse(&["--queue-name", "gpu_reservations,disk_operations"]).unwrap();
        assert_eq!(settings.queues, [Queue::Reservations, Queue::DiskOperations]);
        let error = parse(&["--queue-name", "gpus"]).unwrap_err().to_string();
        assert!(error.contains("gpu_reservations, disk_operations, admin_operations"), "{error}");
    }

    #[test]
    fn read_takes_up_to_50_messages_and_at_least_a_batch() {
        let settings = parse(&[]).unwrap();
        let limit = |settings: &Settings, in_progress| settings.read_limit(Queue::Reservations, in_progress);
        assert_eq!([0, 20, 49, 50, 60].map(|used| limit(&settings, used)), [50, 30, 1, 0, 0]);
        let large = parse(&["--batch-size", "100"]).unwrap();
        assert_eq!([0, 1].map(|used| limit(&large, used)), [100, 0]);
        let other = parse(&["--queue-name", "disk_operations"]).unwrap();
        assert_eq!(limit(&other, 0), 0);
    }
}
