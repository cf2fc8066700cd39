//! Servers and flavors.

use std::collections::BTreeMap;
use std::fmt::Debug;

use ::kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use ::kube::core::{NamespaceResourceScope, Request};
use ::kube::runtime::{WatchStreamExt as _, watcher};
use ::kube::{Resource, ResourceExt as _};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use odc_api::v1alpha1::{DevServer, DevServerFlavor};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use super::error::lost_watch;
use super::{Kube, MANAGER};
use crate::backend::{Change, Scope};
use crate::failure::{Failure, Result};
use crate::glance::Glance;

/// Large enough that few requests are made, small enough that the first rows are there soon.
const PAGE: u32 = 500;

/// One page is read while the next is under way.
const AHEAD: usize = 2;

#[derive(Deserialize)]
struct Page<T> {
    metadata: ListMeta,
    items: T,
}

impl Kube {
    fn api<K>(&self, scope: &Scope) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match scope {
            Scope::Own => Api::namespaced(self.client.clone(), &self.place.namespace),
            Scope::Namespace(namespace) => Api::namespaced(self.client.clone(), namespace),
            Scope::Everybody => Api::all(self.client.clone()),
        }
    }

    pub(super) fn own<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        self.api(&Scope::Own)
    }

    pub(super) async fn one<K>(&self, name: &str) -> Result<Option<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        // A name that cannot be one would be an error of the client; there is no such server, that is all.
        if name.parse::<odc_api::name::ObjectName>().is_err() {
            return Ok(None);
        }
        self.own::<K>().get_opt(name).await.map_err(|error| self.failure(error))
    }

    /// While one page is read into servers, on another thread, the next one is asked for.
    pub(super) fn pages(&self, scope: &Scope) -> BoxStream<'_, Result<Vec<Glance>>> {
        let api: Api<Glance> = self.api(scope);
        let requests = Request::new(api.resource_url());
        let first = Some(ListParams::default().limit(PAGE));
        let texts = stream::unfold((requests, first), move |(requests, next)| async move {
            let parameters = next?;
            match self.page(&requests, &parameters).await {
                Ok((text, more)) => Some((Ok(text), (requests, more.map(|token| parameters.continue_token(&token))))),
                Err(error) => Some((Err(error), (requests, None))),
            }
        });
        let servers = texts.map(move |text: Result<String>| async move {
            let text = text?;
            let reading = tokio::task::spawn_blocking(move || serde_json::from_str::<Page<Vec<Glance>>>(&text));
            let page = reading.await.map_err(|error| Failure::failed(format!("a page could not be read: {error}")))?;
            Ok(page.map_err(|error| self.failure(::kube::Error::SerdeError(error)))?.items)
        });
        servers.buffered(AHEAD).boxed()
    }

    /// A page as it came, and what asks for the next one.
    async fn page(&self, requests: &Request, parameters: &ListParams) -> Result<(String, Option<String>)> {
        let request = requests.list(parameters).map_err(|error| self.failure(::kube::Error::BuildRequest(error)))?;
        let text = self.client.request_text(request).await.map_err(|error| self.failure(error))?;
        let page: Page<IgnoredAny> =
            serde_json::from_str(&text).map_err(|error| self.failure(::kube::Error::SerdeError(error)))?;
        let more = page.metadata.continue_.filter(|token| !token.is_empty());
        Ok((text, more))
    }

    pub(super) fn changes(&self, scope: &Scope, name: Option<&str>) -> BoxStream<'static, Result<Change>> {
        let api: Api<Glance> = self.api(scope);
        let config = watcher::Config::default();
        let config = name.iter().fold(config, |config, name| config.fields(&format!("metadata.name={name}")));
        let place = self.place.clone();
        watcher(api, config)
            .default_backoff()
            .map(move |event| {
                Ok(match event {
                    Ok(watcher::Event::Init) => Change::Relisted,
                    Ok(watcher::Event::InitApply(server) | watcher::Event::Apply(server)) => {
                        Change::Put(Box::new(server))
                    }
                    Ok(watcher::Event::Delete(server)) => Change::Gone(Box::new(server)),
                    Ok(watcher::Event::InitDone) => Change::Listed,
                    Err(error) => Change::Interrupted(lost_watch(&place, error)?),
                })
            })
            .boxed()
    }

    pub(super) async fn create_server(&self, server: &DevServer, dry_run: bool) -> Result<Glance> {
        let how = PostParams { dry_run, field_manager: Some(MANAGER.to_owned()) };
        let made: DevServer =
            self.own::<DevServer>().create(&how, server).await.map_err(|error| self.failure(error))?;
        self.glance_of(&made)
    }

    pub(super) async fn patch_server(
        &self,
        name: &str,
        mut patch: Value,
        version: Option<&str>,
        dry_run: bool,
    ) -> Result<Glance> {
        if let Some(version) = version {
            patch["metadata"] = json!({"resourceVersion": version});
        }
        let how = PatchParams { dry_run, field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let changed = self.own::<Glance>().patch(name, &how, &Patch::Merge(&patch)).await;
        changed.map_err(|error| super::said_about(self.failure(error), &format!("server {name}")))
    }

    pub(super) async fn delete_server(&self, name: &str, uid: &str, dry_run: bool) -> Result<()> {
        let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let how = DeleteParams { dry_run, preconditions: Some(only), ..DeleteParams::default() };
        match self.own::<Glance>().delete(name, &how).await {
            Ok(_) => Ok(()),
            Err(::kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(self.failure(error)),
        }
    }

    fn glance_of(&self, server: &DevServer) -> Result<Glance> {
        Glance::try_from(server).map_err(|error| self.failure(::kube::Error::SerdeError(error)))
    }

    pub(super) async fn list_flavors(&self) -> Result<Vec<DevServerFlavor>> {
        let api: Api<DevServerFlavor> = Api::all(self.client.clone());
        let listed = api.list(&ListParams::default()).await.map_err(|error| self.failure(error))?;
        Ok(listed.items)
    }

    pub(super) fn flavor_changes(&self) -> BoxStream<'static, Result<Vec<DevServerFlavor>>> {
        let api: Api<DevServerFlavor> = Api::all(self.client.clone());
        let place = self.place.clone();
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let state = (BTreeMap::new(), false);
        let changes = events.scan(state, move |(known, complete), event| {
            let answer = match event {
                Ok(watcher::Event::Init) => {
                    (*known, *complete) = (BTreeMap::new(), false);
                    None
                }
                Ok(watcher::Event::InitApply(flavor) | watcher::Event::Apply(flavor)) => {
                    known.insert(flavor.name_any(), flavor);
                    complete.then_some(Ok(()))
                }
                Ok(watcher::Event::Delete(flavor)) => {
                    known.remove(&flavor.name_any());
                    complete.then_some(Ok(()))
                }
                Ok(watcher::Event::InitDone) => {
                    *complete = true;
                    Some(Ok(()))
                }
                Err(error) => lost_watch(&place, error).err().map(Err),
            };
            let answer = answer.map(|answer| answer.map(|()| known.values().cloned().collect()));
            std::future::ready(Some(answer))
        });
        changes.filter_map(std::future::ready).boxed()
    }
}
