//! A namespace of the test's own, on a control plane that all such tests share.

use k8s_openapi::api::core::v1::Namespace as Object;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt as _};
use rand::Rng as _;
use serde_json::json;

use crate::bed::{Bed, SHARED};
use crate::finally::finally;

#[derive(Clone)]
pub struct Namespace {
    pub name: String,
    /// With all rights.
    pub client: Client,
}

pub async fn with_namespace<T>(test: impl AsyncFnOnce(&Namespace) -> anyhow::Result<T>) -> anyhow::Result<T> {
    crate::begin();
    let bed = Bed::of(0);
    let _lease = bed.take(SHARED).await?;
    let client = odc_local::cluster::client(&bed.directory.join("kubeconfig")).await?;
    let namespace = Namespace::create(client).await?;
    finally(test(&namespace), async || namespace.delete().await).await
}

impl Namespace {
    pub(crate) async fn create(client: Client) -> anyhow::Result<Self> {
        let name = format!("test-{:08x}", rand::rng().next_u32());
        let object: Object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let made = Api::all(client.clone()).create(&PostParams::default(), &object).await?;
        odc_local::cluster::takes_pods(&client, &name).await?;
        Ok(Self { name: made.name_any(), client })
    }

    /// Asks for it; the control plane does the rest while others go on.
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
