//! The content of a cluster's etcd, which is restored between tests.
//!
//! Restoring takes a fraction of the CPU time of a new control plane. The API server, the controllers and the scheduler see
//! the changes as watch events, as if another API server had made them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use http::Request;
use k8s_openapi::ByteString;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const START: &str = "/registry/";
/// The first key after those that start with [`START`]: `0` follows `/`.
const END: &str = "/registry0";
/// Written by the API server for itself.
const EXCLUDED_PREFIXES: [&str; 3] = ["/registry/masterleases/", "/registry/leases/kube-system/", "/registry/ranges/"];
/// Keeps responses below the size limit of gRPC messages.
const PAGE_SIZE: u32 = 200;
/// Default limit of etcd.
const MAX_TRANSACTION_OPERATIONS: usize = 128;

/// All objects of a cluster at one time, by key.
pub struct EtcdSnapshot {
    etcd: Etcd,
    objects: Objects,
}

type Objects = BTreeMap<Vec<u8>, ByteString>;

impl EtcdSnapshot {
    /// Reads the content of the cluster with this state directory.
    pub async fn take(directory: &Path) -> anyhow::Result<Self> {
        let etcd = Etcd::new(directory).await?;
        let objects = etcd.read().await?;
        Ok(Self { etcd, objects })
    }

    /// Deletes objects created since the snapshot, and writes back those that were changed or deleted.
    pub async fn restore(&self) -> anyhow::Result<()> {
        let current = self.etcd.read().await?;
        let created = current.keys().filter(|key| !self.objects.contains_key(*key));
        let changed = self.objects.iter().filter(|(key, value)| current.get(*key) != Some(*value));
        let deletes = created.map(|key| json!({"requestDeleteRange": {"key": ByteString(key.clone())}}));
        let puts = changed.map(|(key, value)| json!({"requestPut": {"key": ByteString(key.clone()), "value": value}}));
        let operations: Vec<Value> = deletes.chain(puts).collect();
        for some in operations.chunks(MAX_TRANSACTION_OPERATIONS) {
            self.etcd.post::<Value>("txn", &json!({"success": some})).await?;
        }
        Ok(())
    }
}

/// The JSON API of etcd.
struct Etcd {
    client: Client,
}

#[derive(Deserialize)]
struct Range {
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

#[derive(Deserialize)]
struct KeyValue {
    key: ByteString,
    value: ByteString,
}

impl Etcd {
    async fn new(directory: &Path) -> anyhow::Result<Self> {
        let kubeconfig = Kubeconfig::from_yaml(&odc_local::etcd::kubeconfig(directory)?)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self { client: Client::try_from(config)? })
    }

    /// Returns all objects at one revision.
    async fn read(&self) -> anyhow::Result<Objects> {
        let mut objects = BTreeMap::new();
        let mut start = START.as_bytes().to_vec();
        let mut revision = "0".to_owned();
        loop {
            let body = json!({"key": ByteString(start), "range_end": ByteString(END.as_bytes().to_vec()),
                "limit": PAGE_SIZE, "revision": revision});
            let page: Range = self.post("range", &body).await?;
            let next = page.kvs.last().map(|last| [last.key.0.as_slice(), &[0]].concat());
            for pair in page.kvs {
                if !EXCLUDED_PREFIXES.iter().any(|prefix| pair.key.0.starts_with(prefix.as_bytes())) {
                    objects.insert(pair.key.0, pair.value);
                }
            }
            let Some(next) = next.filter(|_| page.more) else { return Ok(objects) };
            (start, revision) = (next, page.header.revision);
        }
    }

    async fn post<T: DeserializeOwned>(&self, method: &str, body: &Value) -> anyhow::Result<T> {
        let request = Request::post(format!("/v3/kv/{method}")).body(serde_json::to_vec(body)?)?;
        self.client.request(request).await.with_context(|| format!("requesting {method} from etcd"))
    }
}
