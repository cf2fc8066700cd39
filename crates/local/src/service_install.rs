//! Installs the service layer into a local cluster: the HTTP API, the worker, the schema of the database, and an API key of
//! the demo user.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, DeleteParams};
use kube::runtime::wait::{await_condition, conditions};
use odc_api::duration::format_seconds;
use odc_api::namespace;
use serde_json::{Value, json};

use crate::components::{Blueprint, DatabaseRole};
use crate::odc_install::{DEMO_USER, is_rolled_out};
use crate::pki::{Ca, Pki};
use crate::{image, manifests};

/// The port of the API on every node.
const NODE_PORT: u16 = 30443;
const MIGRATION_JOB: &str = "odc-migrate";
/// Includes pulling the image and migrating the database on a busy machine.
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(180);
const DELETE_TIMEOUT: Duration = Duration::from_secs(60);
/// A key is replaced long before it expires.
const KEY_DAYS: u64 = 90;
const KEY_RENEWAL_DAYS: u64 = 30;

/// Runs the job `service`.
pub async fn install(blueprint: &Blueprint) -> anyhow::Result<()> {
    let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
    let image = image::load_binary(blueprint, &blueprint.executables.odc, None).await?;
    let mut objects = secrets(blueprint)?;
    objects.extend(manifests::render(blueprint, "local/service").await?);
    manifests::substitute_images(&mut objects, &[("odc-image", image.clone())]);
    delete_outdated_job(&client, &image).await?;
    manifests::apply_all(&client, &objects).await
}

/// Returns the Secrets that an administrator creates in other clusters.
fn secrets(blueprint: &Blueprint) -> anyhow::Result<Vec<Value>> {
    let url = |role| blueprint.database_url(role);
    let database = BTreeMap::from([
        ("migrator-url", url(DatabaseRole::Migrator)?),
        ("api-url", url(DatabaseRole::Api)?),
        ("worker-url", url(DatabaseRole::Worker)?),
    ]);
    let certificate = Pki::new(&blueprint.layout).cert("api");
    let tls = BTreeMap::from([("tls.crt", read(&certificate.certificate)?), ("tls.key", read(&certificate.key)?)]);
    let secret = |name: &str, kind: &str, data: BTreeMap<&str, String>| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace::SYSTEM},
            "type": kind,
            "stringData": data,
        })
    };
    Ok(vec![secret("odc-database", "Opaque", database), secret("odc-api-tls", "kubernetes.io/tls", tls)])
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Deletes the migration of another build, because the image of a Job is immutable.
async fn delete_outdated_job(client: &Client, image: &str) -> anyhow::Result<()> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace::SYSTEM);
    let Some(job) = jobs.get_opt(MIGRATION_JOB).await? else { return Ok(()) };
    let pod = job.spec.and_then(|spec| spec.template.spec);
    if pod.is_some_and(|pod| pod.containers.iter().all(|container| container.image.as_deref() == Some(image))) {
        return Ok(());
    }
    let uid = job.metadata.uid.unwrap_or_default();
    jobs.delete(MIGRATION_JOB, &DeleteParams::background()).await?;
    let deleted = await_condition(jobs, MIGRATION_JOB, conditions::is_deleted(&uid));
    tokio::time::timeout(DELETE_TIMEOUT, deleted).await.context("the migration of another build was not deleted")??;
    Ok(())
}

/// Waits until the API and the worker are available, and creates a key of the demo user.
pub async fn wait_ready(blueprint: &Blueprint) -> anyhow::Result<()> {
    let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
    for name in ["odc-api", "odc-worker"] {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace::SYSTEM);
        let rolled_out = await_condition(deployments, name, is_rolled_out);
        tokio::time::timeout(ROLLOUT_TIMEOUT, rolled_out).await.with_context(|| {
            format!(
                "{name} did not start within {}\nhint: run `kubectl -n {} get pods`, `kubectl -n {} logs deploy/{name}`",
                format_seconds(ROLLOUT_TIMEOUT.as_secs()),
                namespace::SYSTEM,
                namespace::SYSTEM
            )
        })??;
    }
    ensure_demo_key(blueprint).await
}

async fn ensure_demo_key(blueprint: &Blueprint) -> anyhow::Result<()> {
    let path = blueprint.layout.demo_api_key();
    let written = std::fs::metadata(&path).and_then(|metadata| metadata.modified());
    let age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
    if age.is_some_and(|age| age < Duration::from_secs(KEY_RENEWAL_DAYS * 24 * 3600)) {
        return Ok(());
    }
    let url = blueprint.database_url(DatabaseRole::Api)?;
    let output = tokio::process::Command::new(&blueprint.executables.odc)
        .args(["key", "create", "--user", DEMO_USER, "--description", "odc local"])
        .args(["--valid-for", &format!("{}h", KEY_DAYS * 24)])
        .env("DATABASE_URL", url)
        .output()
        .await
        .context("creating an API key")?;
    anyhow::ensure!(
        output.status.success(),
        "creating an API key failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    crate::fs::write_atomic(&path, output.stdout, 0o600)
}

/// What a client needs to use the API as the demo user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiAccess {
    pub url: String,
    pub key: String,
    /// The path of the CA certificate.
    pub ca: std::path::PathBuf,
}

/// Returns the access of the demo user, if the service is installed.
pub fn api_access(blueprint: &Blueprint) -> Option<ApiAccess> {
    let node = blueprint.settings.running_nodes().next()?;
    let key = std::fs::read_to_string(blueprint.layout.demo_api_key()).ok()?;
    Some(ApiAccess {
        url: format!("https://{}:{NODE_PORT}", blueprint.settings.network.node_ip(node)),
        key: key.trim().to_owned(),
        ca: Pki::new(&blueprint.layout).ca(Ca::Cluster).certificate,
    })
}
