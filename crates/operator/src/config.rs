//! The operator's configuration: flags, then `ODC_*` environment variables, then a file, then defaults.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use odc_api::duration::Duration;
use odc_api::{label, namespace, port};
use odc_core::user::Cidr;
use odc_core::{devserver, scheduler};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Run the operator: the controllers for servers, users, teams and flavors, and the scheduler
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// YAML file with the settings below, in camelCase
    #[arg(long, env = "ODC_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kubeconfig file to use instead of the pod's service account
    #[arg(long, env = "ODC_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Settings that can be given as flag, environment variable or in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Settings {
    /// Image with odc-agent, which is copied into every server (required)
    #[arg(long, env = "ODC_AGENT_IMAGE", value_name = "REF")]
    agent_image: Option<String>,
    /// Image of servers without spec.image (required)
    #[arg(long, env = "ODC_DEFAULT_IMAGE", value_name = "REF")]
    default_image: Option<String>,
    /// Namespace of the operator [default: odc-system]
    #[arg(long, env = "ODC_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,
    /// Service account of the operator, which is granted its role in users' namespaces [default: odc-operator]
    #[arg(long, env = "ODC_SERVICE_ACCOUNT", value_name = "NAME")]
    service_account: Option<String>,
    /// Listen address of /livez, /readyz and /metrics [default: [::]:9090]
    #[arg(long, env = "ODC_METRICS_ADDRESS", value_name = "ADDRESS")]
    metrics_address: Option<SocketAddr>,
    /// IP address at which the API server reaches queue.odc.dev; the API is disabled if unset
    #[arg(long, env = "ODC_QUEUE_IP", value_name = "IP")]
    queue_ip: Option<IpAddr>,
    /// Port of queue.odc.dev [default: 9444]
    #[arg(long, env = "ODC_QUEUE_PORT", value_name = "PORT")]
    queue_port: Option<u16>,
    /// YAML file with the scheduling policy, in the format of `odc sim --policy` [default: built-in policy]
    #[arg(long, env = "ODC_SCHEDULER_POLICY", value_name = "FILE")]
    scheduler_policy: Option<PathBuf>,
    /// Directory for scheduler traces, which `odc sim` replays [default: tracing is disabled]
    #[arg(long, env = "ODC_TRACE_DIR", value_name = "DIRECTORY")]
    trace_dir: Option<PathBuf>,
    /// How long a server can still be extended after its lifetime has ended [default: 2m]
    #[arg(long, env = "ODC_EXPIRY_GRACE", value_name = "DURATION")]
    expiry_grace: Option<Duration>,
    /// How long a node may be unreachable before it is considered lost and its servers are rescheduled [default: 10m]
    #[arg(long, env = "ODC_NODE_LOST_TIMEOUT", value_name = "DURATION")]
    node_lost_timeout: Option<Duration>,
    /// How long a pod may be unschedulable before its server returns to the queue [default: 30s]
    #[arg(long, env = "ODC_UNSCHEDULABLE_TIMEOUT", value_name = "DURATION")]
    unschedulable_timeout: Option<Duration>,
    /// How long a server may take to start before it fails [default: 1h]
    #[arg(long, env = "ODC_START_TIMEOUT", value_name = "DURATION")]
    start_timeout: Option<Duration>,
    /// How long a server may wait in the queue for its first start before it is cancelled; 0 means no limit [default:
    /// 48h]
    #[arg(long, env = "ODC_QUEUE_TIMEOUT", value_name = "DURATION")]
    queue_timeout: Option<Duration>,
    /// How long an ended server is kept before it is deleted [default: 24h]
    #[arg(long, env = "ODC_TTL_AFTER_FINISHED", value_name = "DURATION")]
    ttl_after_finished: Option<Duration>,
    /// How long before an idle server is stopped its users are warned [default: 5m]
    #[arg(long, env = "ODC_IDLE_GRACE", value_name = "DURATION")]
    idle_grace: Option<Duration>,
    /// SSH banner shown before authentication [default: none]
    #[arg(long, env = "ODC_SSH_BANNER", value_name = "TEXT")]
    ssh_banner: Option<String>,
    /// Comma-separated CIDR ranges that servers cannot reach, such as the nodes, pods and Services of the cluster
    #[arg(long, env = "ODC_BLOCKED_CIDRS", value_name = "CIDR", value_delimiter = ',')]
    blocked_cidrs: Option<Vec<String>>,
    /// Comma-separated image registries (host:port) that are accessed without TLS
    #[arg(long, env = "ODC_INSECURE_REGISTRIES", value_name = "HOST", value_delimiter = ',')]
    insecure_registries: Option<Vec<String>>,
}

const DEFAULT_METRICS_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), port::METRICS);

/// The resolved configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub kubeconfig: Option<PathBuf>,
    pub namespace: String,
    pub service_account: String,
    pub metrics_address: SocketAddr,
    /// The listen address of `queue.odc.dev`, if it is served.
    pub queue_api: Option<SocketAddr>,
    pub scheduler_policy: scheduler::Policy,
    pub unschedulable_timeout: std::time::Duration,
    pub trace_dir: Option<PathBuf>,
    pub server: devserver::Settings,
    pub blocked_cidrs: Vec<Cidr>,
    pub insecure_registries: Vec<String>,
}

impl Options {
    /// Reads the file, if one is given, and applies the defaults.
    pub fn into_config(self) -> anyhow::Result<Config> {
        let file = self.config.as_deref().map(read).transpose()?.unwrap_or_default();
        Config::new(self.kubeconfig, self.settings, file)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("parsing {}", path.display()))
}

impl Config {
    /// Merges the settings; flags and environment variables take precedence over the file.
    fn new(kubeconfig: Option<PathBuf>, flags: Settings, file: Settings) -> anyhow::Result<Self> {
        let required = |value: Option<String>, flag: &str, variable: &str| {
            value.with_context(|| format!("missing setting: set --{flag} or {variable}"))
        };
        let cidrs = flags.blocked_cidrs.or(file.blocked_cidrs).unwrap_or_default();
        // An empty variable yields one empty item.
        let cidrs = cidrs.iter().filter(|cidr| !cidr.is_empty()).map(|cidr| cidr.parse());
        let cidrs: Result<Vec<Cidr>, _> = cidrs.collect();
        let duration = |flag: Option<Duration>, file: Option<Duration>, default: Duration| {
            flag.or(file).unwrap_or(default).as_std()
        };
        let server = devserver::Settings {
            agent_image: required(flags.agent_image.or(file.agent_image), "agent-image", "ODC_AGENT_IMAGE")?,
            default_image: required(flags.default_image.or(file.default_image), "default-image", "ODC_DEFAULT_IMAGE")?,
            expiry_grace: duration(flags.expiry_grace, file.expiry_grace, Duration::minutes(2)),
            node_lost_timeout: duration(flags.node_lost_timeout, file.node_lost_timeout, Duration::minutes(10)),
            start_timeout: duration(flags.start_timeout, file.start_timeout, Duration::hours(1)),
            queue_timeout: Some(duration(flags.queue_timeout, file.queue_timeout, Duration::hours(48)))
                .filter(|limit| !limit.is_zero()),
            ttl_after_finished: duration(flags.ttl_after_finished, file.ttl_after_finished, Duration::hours(24)),
            idle_grace: duration(flags.idle_grace, file.idle_grace, Duration::minutes(5)),
            // An empty variable means no banner.
            banner: flags.ssh_banner.or(file.ssh_banner).filter(|text| !text.trim().is_empty()),
        };
        let policy = flags.scheduler_policy.or(file.scheduler_policy);
        Ok(Self {
            scheduler_policy: policy.as_deref().map(read).transpose()?.unwrap_or_default(),
            trace_dir: flags.trace_dir.or(file.trace_dir),
            unschedulable_timeout: duration(
                flags.unschedulable_timeout,
                file.unschedulable_timeout,
                Duration::seconds(30),
            ),
            kubeconfig,
            namespace: flags.namespace.or(file.namespace).unwrap_or_else(|| namespace::SYSTEM.into()),
            service_account: flags.service_account.or(file.service_account).unwrap_or_else(|| label::OPERATOR.into()),
            metrics_address: flags.metrics_address.or(file.metrics_address).unwrap_or(DEFAULT_METRICS_ADDRESS),
            queue_api: flags
                .queue_ip
                .or(file.queue_ip)
                .map(|ip| SocketAddr::new(ip, flags.queue_port.or(file.queue_port).unwrap_or(port::QUEUE))),
            server,
            insecure_registries: flags.insecure_registries.or(file.insecure_registries).unwrap_or_default(),
            blocked_cidrs: cidrs.context("invalid blocked-cidrs")?,
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
    fn flags_override_the_file_and_the_file_overrides_defaults() {
        let flags = Settings { expiry_grace: Some(Duration::seconds(5)), ..Settings::default() };
        let file = Settings {
            expiry_grace: Some(Duration::seconds(9)),
            node_lost_timeout: Some(Duration::minutes(1)),
            ..images()
        };
        let config = Config::new(None, flags, file).unwrap();
        assert_eq!(config.server.expiry_grace.as_secs(), 5);
        assert_eq!(config.server.node_lost_timeout.as_secs(), 60);
        assert_eq!(config.server.start_timeout.as_secs(), 3600);
        assert_eq!(config.unschedulable_timeout, odc_core::admission::Policy::default().unschedulable_timeout);
    }

    #[test]
    fn queue_timeout_is_two_days_by_default_and_zero_disables_it() {
        for (given, expect) in [(None, Some(48 * 3600)), (Some("90m"), Some(5400)), (Some("0"), None)] {
            let flags = Settings { queue_timeout: given.map(|text| text.parse().unwrap()), ..images() };
            let limit = Config::new(None, flags, Settings::default()).unwrap().server.queue_timeout;
            assert_eq!(limit.map(|limit| limit.as_secs()), expect, "{given:?}");
        }
    }

    #[test]
    fn missing_image_is_an_error() {
        let error = Config::new(None, Settings::default(), Settings::default()).unwrap_err();
        assert_eq!(error.to_string(), "missing setting: set --agent-image or ODC_AGENT_IMAGE");
    }

    #[test]
    fn unknown_settings_in_the_file_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, "agentImage: a\ndefaultImage: b\nexpiryGrace: 30s\nblockedCidrs: [10.0.0.0/8]\n")
            .unwrap();
        let options = Options { config: Some(path.clone()), ..Options::default() };
        assert_eq!(options.into_config().unwrap().blocked_cidrs, ["10.0.0.0/8".parse().unwrap()]);
        std::fs::write(&path, "agentImages: a\n").unwrap();
        let options = Options { config: Some(path), ..Options::default() };
        assert!(format!("{:#}", options.into_config().unwrap_err()).contains("agentImages"));
    }
}
