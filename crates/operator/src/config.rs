//! What an administrator may set: flags, then `ODC_*` variables, then a file, then defaults.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use odc_api::duration::Duration;
use odc_api::{namespace, port};
use odc_core::user::Cidr;
use odc_core::{devserver, scheduler};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Keep what people asked for true: servers, users, teams, flavors and the queue
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// File with the settings below, in camelCase as YAML
    #[arg(long, env = "ODC_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kubeconfig to use instead of the pod's own account
    #[arg(long, env = "ODC_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Each may be left out wherever it can be given.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Settings {
    /// Image of odc-agent, brought into every server
    #[arg(long, env = "ODC_AGENT_IMAGE", value_name = "REF")]
    agent_image: Option<String>,
    /// Image of servers that name none
    #[arg(long, env = "ODC_DEFAULT_IMAGE", value_name = "REF")]
    default_image: Option<String>,
    /// Namespace of the control plane [default: odc-system]
    #[arg(long, env = "ODC_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,
    /// The operator's own service account, which gets its rights in users' namespaces [default: odc-operator]
    #[arg(long, env = "ODC_SERVICE_ACCOUNT", value_name = "NAME")]
    service_account: Option<String>,
    /// Address for /livez, /readyz and /metrics [default: [::]:9090]
    #[arg(long, env = "ODC_METRICS_ADDRESS", value_name = "ADDRESS")]
    metrics_address: Option<SocketAddr>,
    /// Own address at which the API server finds queue.odc.dev; without one it is not served
    #[arg(long, env = "ODC_QUEUE_IP", value_name = "IP")]
    queue_ip: Option<IpAddr>,
    /// Port for it [default: 9444]
    #[arg(long, env = "ODC_QUEUE_PORT", value_name = "PORT")]
    queue_port: Option<u16>,
    /// File with the rules of the queue as YAML, as `odc sim --policy` reads them [default: those of docs/scheduling.md]
    #[arg(long, env = "ODC_QUEUE_POLICY", value_name = "FILE")]
    queue_policy: Option<PathBuf>,
    /// Directory for a recording of the queue that `odc sim` reads [default: nothing is recorded]
    #[arg(long, env = "ODC_RECORD", value_name = "DIRECTORY")]
    record: Option<PathBuf>,
    /// How long a server may still be extended after its time is used up [default: 2m]
    #[arg(long, env = "ODC_EXPIRY_GRACE", value_name = "DURATION")]
    expiry_grace: Option<Duration>,
    /// How long a node may be silent before its servers move [default: 10m]
    #[arg(long, env = "ODC_NODE_LOST_AFTER", value_name = "DURATION")]
    node_lost_after: Option<Duration>,
    /// How long the kube-scheduler may find no place for a server's pod before it goes back to the queue [default: 30s]
    #[arg(long, env = "ODC_UNPLACED_AFTER", value_name = "DURATION")]
    unplaced_after: Option<Duration>,
    /// How long a server may take to start [default: 1h]
    #[arg(long, env = "ODC_START_LIMIT", value_name = "DURATION")]
    start_limit: Option<Duration>,
    /// How long a server may wait for its first start before it is cancelled, 0 for ever [default: 48h]
    #[arg(long, env = "ODC_QUEUE_LIMIT", value_name = "DURATION")]
    queue_limit: Option<Duration>,
    /// How long an ended server stays readable [default: 24h]
    #[arg(long, env = "ODC_KEEP_ENDED", value_name = "DURATION")]
    keep_ended: Option<Duration>,
    /// How long people are warned before a server that nobody uses is stopped [default: 5m]
    #[arg(long, env = "ODC_IDLE_GRACE", value_name = "DURATION")]
    idle_grace: Option<Duration>,
    /// What people read before they log in to any server, as the law may want it [default: nothing]
    #[arg(long, env = "ODC_SSH_BANNER", value_name = "TEXT")]
    ssh_banner: Option<String>,
    /// Ranges no server may reach (nodes, API servers, pods and Services of the cluster), separated by commas
    #[arg(long, env = "ODC_CLOSED_RANGES", value_name = "CIDR", value_delimiter = ',')]
    closed_ranges: Option<Vec<String>>,
    /// Image registries that are asked without TLS, as host:port, separated by commas
    #[arg(long, env = "ODC_PLAIN_REGISTRIES", value_name = "HOST", value_delimiter = ',')]
    plain_registries: Option<Vec<String>>,
}

const EVERYWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), port::METRICS);

/// Everything settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub kubeconfig: Option<PathBuf>,
    pub namespace: String,
    pub service_account: String,
    pub metrics_address: SocketAddr,
    /// Where `queue.odc.dev` is served.
    pub queue_api: Option<SocketAddr>,
    /// The rules of the queue.
    pub queue: scheduler::Policy,
    /// A pod for which there is no place for so long brings its server back to the queue.
    pub unplaced_after: std::time::Duration,
    /// Where the queue is recorded.
    pub record: Option<PathBuf>,
    pub server: devserver::Settings,
    pub closed_ranges: Vec<Cidr>,
    pub plain_registries: Vec<String>,
}

impl Options {
    /// Reads the file, if one is named, and fills in the defaults.
    pub fn settle(self) -> anyhow::Result<Config> {
        let file = self.config.as_deref().map(read).transpose()?.unwrap_or_default();
        Config::of(self.kubeconfig, self.settings, file)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))
}

impl Config {
    fn of(kubeconfig: Option<PathBuf>, first: Settings, second: Settings) -> anyhow::Result<Self> {
        let needed = |value: Option<String>, flag: &str, variable: &str| {
            value.with_context(|| format!("name an image: give --{flag}, or set {variable}"))
        };
        let ranges = first.closed_ranges.or(second.closed_ranges).unwrap_or_default();
        // An empty variable is no range.
        let ranges = ranges.iter().filter(|range| !range.is_empty()).map(|range| range.parse());
        let ranges: Result<Vec<Cidr>, _> = ranges.collect();
        let span = |one: Option<Duration>, two: Option<Duration>, or: Duration| one.or(two).unwrap_or(or).as_std();
        let server = devserver::Settings {
            agent_image: needed(first.agent_image.or(second.agent_image), "agent-image", "ODC_AGENT_IMAGE")?,
            default_image: needed(first.default_image.or(second.default_image), "default-image", "ODC_DEFAULT_IMAGE")?,
            expiry_grace: span(first.expiry_grace, second.expiry_grace, Duration::minutes(2)),
            lost_after: span(first.node_lost_after, second.node_lost_after, Duration::minutes(10)),
            start_limit: span(first.start_limit, second.start_limit, Duration::hours(1)),
            queue_limit: Some(span(first.queue_limit, second.queue_limit, Duration::hours(48)))
                .filter(|limit| !limit.is_zero()),
            keep_ended: span(first.keep_ended, second.keep_ended, Duration::hours(24)),
            idle_grace: span(first.idle_grace, second.idle_grace, Duration::minutes(5)),
            // An empty variable is no text.
            banner: first.ssh_banner.or(second.ssh_banner).filter(|text| !text.trim().is_empty()),
        };
        let policy = first.queue_policy.or(second.queue_policy);
        Ok(Self {
            queue: policy.as_deref().map(read).transpose()?.unwrap_or_default(),
            record: first.record.or(second.record),
            unplaced_after: span(first.unplaced_after, second.unplaced_after, Duration::seconds(30)),
            kubeconfig,
            namespace: first.namespace.or(second.namespace).unwrap_or_else(|| namespace::SYSTEM.into()),
            service_account: first.service_account.or(second.service_account).unwrap_or_else(|| "odc-operator".into()),
            metrics_address: first.metrics_address.or(second.metrics_address).unwrap_or(EVERYWHERE),
            queue_api: first
                .queue_ip
                .or(second.queue_ip)
                .map(|ip| SocketAddr::new(ip, first.queue_port.or(second.queue_port).unwrap_or(port::QUEUE))),
            server,
            plain_registries: first.plain_registries.or(second.plain_registries).unwrap_or_default(),
            closed_ranges: ranges.context("reading the closed ranges")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images() -> Settings {
        Settings { agent_image: Some("agent".into()), default_image: Some("base".into()), ..Settings::default() }
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let flags = Settings { expiry_grace: Some(Duration::seconds(5)), ..Settings::default() };
        let file = Settings {
            expiry_grace: Some(Duration::seconds(9)),
            node_lost_after: Some(Duration::minutes(1)),
            ..images()
        };
        let config = Config::of(None, flags, file).unwrap();
        assert_eq!(config.server.expiry_grace.as_secs(), 5);
        assert_eq!(config.server.lost_after.as_secs(), 60);
        assert_eq!(config.server.start_limit.as_secs(), 3600);
        assert_eq!(config.unplaced_after, odc_core::grants::Policy::default().refused_after);
    }

    #[test]
    fn whoever_waits_is_given_up_after_two_days_unless_told_otherwise() {
        for (given, expect) in [(None, Some(48 * 3600)), (Some("90m"), Some(5400)), (Some("0"), None)] {
            let flags = Settings { queue_limit: given.map(|text| text.parse().unwrap()), ..images() };
            let limit = Config::of(None, flags, Settings::default()).unwrap().server.queue_limit;
            assert_eq!(limit.map(|limit| limit.as_secs()), expect, "{given:?}");
        }
    }

    #[test]
    fn a_missing_image_is_named() {
        let error = Config::of(None, Settings::default(), Settings::default()).unwrap_err();
        assert_eq!(error.to_string(), "name an image: give --agent-image, or set ODC_AGENT_IMAGE");
    }

    #[test]
    fn a_file_is_read_strictly() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, "agentImage: a\ndefaultImage: b\nexpiryGrace: 30s\nclosedRanges: [10.0.0.0/8]\n")
            .unwrap();
        let options = Options { config: Some(path.clone()), ..Options::default() };
        assert_eq!(options.settle().unwrap().closed_ranges, ["10.0.0.0/8".parse().unwrap()]);
        std::fs::write(&path, "agentImages: a\n").unwrap();
        let options = Options { config: Some(path), ..Options::default() };
        assert!(format!("{:#}", options.settle().unwrap_err()).contains("agentImages"));
    }
}
