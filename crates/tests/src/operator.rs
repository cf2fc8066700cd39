//! The operator as a child process, with exactly the permissions of `deploy/base`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::command::{executable, http_get};
use crate::{user, wait};

const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Name of the leader election Lease.
pub const LEASE: &str = "odc-operator";
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(120);

/// Requests a token of the operator's service account.
pub async fn service_account_token(client: &Client) -> anyhow::Result<String> {
    user::service_account_token(client, "odc-system", "odc-operator").await
}

/// Writes a kubeconfig for the same API server that authenticates with this token only.
pub fn write_token_kubeconfig(kubeconfig: &Path, token: &str, output: &Path) -> anyhow::Result<()> {
    let mut config = kube::config::Kubeconfig::read_from(kubeconfig)?;
    for user in &mut config.auth_infos {
        user.auth_info = Some(serde_json::from_value(json!({"token": token})).context("building the credentials")?);
    }
    std::fs::write(output, serde_json::to_string(&config)?)?;
    Ok(())
}

/// Settings that shorten timeouts from minutes to seconds.
pub fn fast_timeouts() -> Vec<(&'static str, &'static str)> {
    vec![
        ("ODC_EXPIRY_GRACE", "1s"),
        ("ODC_NODE_LOST_TIMEOUT", "3s"),
        ("ODC_UNSCHEDULABLE_TIMEOUT", "5s"),
        ("ODC_IDLE_GRACE", "5s"),
    ]
}

/// Lets the operator of a local cluster use the timeouts of [`fast_timeouts`].
pub async fn shorten_timeouts(directory: &Path) -> anyhow::Result<()> {
    let client = odc_local::cluster::client(&directory.join("kubeconfig")).await?;
    let deployments: Api<Deployment> = Api::namespaced(client, "odc-system");
    let env: Vec<_> = fast_timeouts().iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let container = json!({"name": "operator", "env": env});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    deployments.patch("odc-operator", &PatchParams::default(), &Patch::Strategic(patch)).await?;
    let rolled_out = await_condition(deployments, "odc-operator", odc_local::odc_install::is_rolled_out);
    tokio::time::timeout(ROLLOUT_TIMEOUT, rolled_out).await??;
    Ok(())
}

/// Releases the leader election Lease of a killed operator, so that the next one need not wait for its expiry. The epoch
/// stays.
pub async fn release_lease(client: &Client) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "odc-system");
    let patch = Patch::Merge(json!({"spec": {"holderIdentity": null}}));
    leases.patch(LEASE, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// An operator process. Killed when dropped.
pub struct Operator {
    pub child: Child,
    /// Address of the metrics and health endpoints.
    pub address: String,
    pub log: PathBuf,
}

impl Operator {
    /// Starts an operator and waits until it leads and is ready. Its log goes to `directory`.
    pub async fn start(kubeconfig: &Path, directory: &Path, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let operator = Self::spawn(kubeconfig, directory, settings)?;
        operator.wait_ready().await?;
        Ok(operator)
    }

    pub fn spawn(kubeconfig: &Path, directory: &Path, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let port = odc_local::free_port::reserve()?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let log = directory.join(format!("operator-{port}.log"));
        // Benchmarks use a release build.
        let program = std::env::var_os("ODC_OPERATOR").map_or_else(|| executable("odc"), |path| Ok(path.into()))?;
        let child = Command::new(program)
            .arg("operator")
            .env("ODC_KUBECONFIG", kubeconfig)
            .env("ODC_METRICS_ADDRESS", &address)
            .env("ODC_AGENT_IMAGE", "agent")
            .env("ODC_DEFAULT_IMAGE", "base")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .context("starting odc operator")?;
        Ok(Self { child, address, log })
    }

    /// Waits until the operator leads and its caches are filled.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        wait::until("operator ready", READY_TIMEOUT, async || {
            let metrics = self.get("/metrics").await?;
            anyhow::ensure!(metrics.contains("odc_leader 1"), "the operator does not lead:\n{}", self.log_tail());
            let ready = self.get("/readyz").await?;
            anyhow::ensure!(ready.contains("200 OK"), "the operator is not ready:\n{}", self.log_tail());
            Ok(())
        })
        .await
    }

    /// Returns the response of an HTTP GET, with its head.
    pub async fn get(&self, path: &str) -> anyhow::Result<String> {
        http_get(&self.address, path).await
    }

    /// Returns the last lines of the log.
    pub fn log_tail(&self) -> String {
        odc_local::artifact::tail(&std::fs::read_to_string(&self.log).unwrap_or_default(), 30)
    }

    /// Sends SIGKILL and waits for the exit.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}
