//! A namespace for one test, on a control plane that such tests share.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace as Object, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt as _};
use rand::Rng as _;
use serde_json::json;

use crate::cleanup::with_cleanup;
use crate::shared_cluster::{Mode, Purpose, SharedCluster};
use crate::wait;

/// Covers the restart of an API server that an earlier test has killed.
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(120);
const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Namespace {
    pub name: String,
    /// Kubeconfig of the administrator.
    pub kubeconfig: PathBuf,
    /// Client of the administrator.
    pub client: Client,
}

pub async fn with_namespace<T>(test: impl AsyncFnOnce(&Namespace) -> anyhow::Result<T>) -> anyhow::Result<T> {
    crate::init();
    let cluster = SharedCluster::new(Purpose::Nodes(0));
    let _guard = cluster.acquire(Mode::Shared).await?;
    let namespace = Namespace::create(cluster.directory.join("kubeconfig")).await?;
    with_cleanup(test(&namespace), async || namespace.delete().await).await
}

impl Namespace {
    /// Creates a namespace and waits until the control plane has filled it.
    pub(crate) async fn create(kubeconfig: PathBuf) -> anyhow::Result<Self> {
        let client = odc_local::cluster::client(&kubeconfig).await?;
        wait_api_server_ready(&client).await?;
        let name = format!("test-{:08x}", rand::rng().next_u32());
        let object: Object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let created = Api::all(client.clone()).create(&PostParams::default(), &object).await?;
        wait_ready(&client, &name).await?;
        Ok(Self { name: created.name_any(), kubeconfig, client })
    }

    /// Requests the deletion. The namespace controller completes it in the background.
    pub(crate) async fn delete(&self) -> anyhow::Result<()> {
        let namespaces: Api<Object> = Api::all(self.client.clone());
        namespaces.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }
}

/// Waits until the API server reports that it is ready.
pub async fn wait_api_server_ready(client: &Client) -> anyhow::Result<()> {
    wait::until("API server ready", API_SERVER_TIMEOUT, async || {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        client.request_text(request).await.context("GET /readyz")
    })
    .await
    .map(drop)
}

/// Waits until the control plane has created the default service account and the `kube-root-ca.crt` `ConfigMap` of a
/// namespace. Without the account the namespace rejects pods; a late `ConfigMap` is an event in the watches of a test.
pub async fn wait_ready(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let created = async {
        await_condition(accounts, "default", |account: Option<&ServiceAccount>| account.is_some()).await?;
        await_condition(maps, "kube-root-ca.crt", |map: Option<&ConfigMap>| map.is_some()).await?;
        anyhow::Ok(())
    };
    let finished = tokio::time::timeout(NAMESPACE_TIMEOUT, created).await;
    finished.with_context(|| format!("namespace {namespace} has no default service account or no kube-root-ca.crt"))?
}
