//! Everything that happened to servers, pods and the Lease, revision by revision, as the API server's watches told it.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource, ResourceExt as _};
use odc_api::v1alpha1::DevServer;
use odc_tests::wait;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::stage::LIMIT;

/// One revision of one object.
#[derive(Clone, Debug)]
pub enum Happened {
    Server(Box<DevServer>),
    ServerGone(Box<DevServer>),
    Pod(Box<Pod>),
    PodGone(Box<Pod>),
    Lease(Box<Lease>),
}

/// Watches from the moment it is made.
pub struct History {
    client: Client,
    told: Arc<Mutex<Told>>,
    watches: [JoinHandle<()>; 3],
}

#[derive(Default)]
struct Told {
    happened: Vec<(u64, Happened)>,
    broken: Vec<String>,
}

impl History {
    pub fn begin(client: &Client) -> Self {
        let told = Arc::new(Mutex::new(Told::default()));
        let servers = watch(Api::all(client.clone()), told.clone(), |server: Box<DevServer>, there| {
            Some(if there { Happened::Server(server) } else { Happened::ServerGone(server) })
        });
        let pods = watch(Api::all(client.clone()), told.clone(), |pod: Box<Pod>, there| {
            Some(if there { Happened::Pod(pod) } else { Happened::PodGone(pod) })
        });
        let leases = Api::namespaced(client.clone(), "odc-system");
        let leases = watch(leases, told.clone(), |lease: Box<Lease>, there| there.then_some(Happened::Lease(lease)));
        Self { client: client.clone(), told, watches: [servers, pods, leases] }
    }

    /// All of it in the order in which it was stored, once every server was told as it is now.
    pub async fn end(self) -> anyhow::Result<Vec<(u64, Happened)>> {
        let servers: Api<DevServer> = Api::all(self.client.clone());
        let now = servers.list(&ListParams::default()).await?;
        wait::until("everything was told", LIMIT, async || {
            let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            for server in &now {
                let version = version(server)?;
                let known = told.happened.iter().any(|(at, _)| *at == version);
                anyhow::ensure!(known, "{} is not told as of {version}", server.name_any());
            }
            Ok(())
        })
        .await?;
        self.watches.iter().for_each(JoinHandle::abort);
        let Told { mut happened, broken } =
            std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        anyhow::ensure!(broken.is_empty(), "something was missed: {broken:#?}");
        happened.sort_by_key(|(version, _)| *version);
        Ok(happened)
    }
}

/// Versions are those of the one store behind all kinds, so they say what was first.
fn version<K: Resource>(object: &K) -> anyhow::Result<u64> {
    let version = object.meta().resource_version.as_deref().context("what is stored has a version")?;
    version.parse().with_context(|| format!("reading the version {version}"))
}

fn watch<K>(
    api: Api<K>,
    told: Arc<Mutex<Told>>,
    happened: impl Fn(Box<K>, bool) -> Option<Happened> + Send + 'static,
) -> JoinHandle<()>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    tokio::spawn(async move {
        let mut events = Box::pin(watcher::watcher(api, watcher::Config::default()));
        let mut lists = 0;
        while let Some(event) = events.next().await {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            let (object, there) = match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => (object, true),
                Ok(Event::Delete(object)) => (object, false),
                Ok(Event::Init) => {
                    lists += 1;
                    if lists > 1 {
                        told.broken.push("a watch began anew".into());
                    }
                    continue;
                }
                Ok(Event::InitDone) => continue,
                Err(error) => {
                    told.broken.push(format!("a watch broke: {error}"));
                    continue;
                }
            };
            match version(&object) {
                Ok(version) => {
                    told.happened.extend(happened(Box::new(object), there).map(|happened| (version, happened)));
                }
                Err(error) => told.broken.push(format!("{error:#}")),
            }
        }
    })
}
