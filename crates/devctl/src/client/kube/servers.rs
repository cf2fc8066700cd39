//! Servers and flavors.

use std::collections::BTreeMap;
use std::fmt::Debug;

use ::kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use ::kube::core::{NamespaceResourceScope, Request};
use ::kube::runtime::{WatchStreamExt as _, watcher};
use ::kube::{Resource, ResourceExt as _};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use odc_api::v1alpha1::{DevServer, DevServerFlavor};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use super::error::watch_error;
use super::{FIELD_MANAGER, KubeClient};
use crate::client::status::with_object;
use crate::client::{Flavors, Scope, Servers, WatchEvent};
use crate::error::{Error, Result};
use crate::model::server::ServerSummary;

/// Large enough for few requests, small enough that the first rows arrive soon.
const PAGE_SIZE: u32 = 500;

/// Pages in flight: one is parsed while the next is fetched.
const MAX_PAGES_IN_FLIGHT: usize = 2;

#[derive(Deserialize)]
struct Page<T> {
    metadata: ListMeta,
    items: T,
}

impl KubeClient {
    async fn get_own<K>(&self, name: &str) -> Result<Option<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        // An invalid name would be a client error; no server can have it.
        if name.parse::<odc_api::name::ObjectName>().is_err() {
            return Ok(None);
        }
        self.own_api::<K>().get_opt(name).await.map_err(|error| self.error(error))
    }

    /// Watches all objects of an API, or one of them.
    pub(super) fn watch_objects<K>(&self, api: Api<K>, name: Option<&str>) -> BoxStream<'static, Result<WatchEvent<K>>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let config = watcher::Config::default();
        let config = name.iter().fold(config, |config, name| config.fields(&format!("metadata.name={name}")));
        let target = self.target.clone();
        watcher(api, config)
            .default_backoff()
            .map(move |event| {
                Ok(match event {
                    Ok(watcher::Event::Init) => WatchEvent::Init,
                    Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                        WatchEvent::Apply(Box::new(object))
                    }
                    Ok(watcher::Event::Delete(object)) => WatchEvent::Delete(Box::new(object)),
                    Ok(watcher::Event::InitDone) => WatchEvent::InitDone,
                    Err(error) => WatchEvent::Interrupted(watch_error(&target, error)?),
                })
            })
            .boxed()
    }

    /// Deletes the object with this UID. Succeeds if it no longer exists.
    pub(super) async fn delete_own<K>(&self, name: &str, uid: &str, dry_run: bool) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { dry_run, preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.own_api::<K>().delete(name, &params).await {
            Ok(_) => Ok(()),
            Err(::kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Fetches one page. Returns its text and the continue token.
    async fn fetch_page(&self, requests: &Request, parameters: &ListParams) -> Result<(String, Option<String>)> {
        let request = requests.list(parameters).map_err(|error| self.error(::kube::Error::BuildRequest(error)))?;
        let text = self.client.request_text(request).await.map_err(|error| self.error(error))?;
        let page: Page<IgnoredAny> =
            serde_json::from_str(&text).map_err(|error| self.error(::kube::Error::SerdeError(error)))?;
        let token = page.metadata.continue_.filter(|token| !token.is_empty());
        Ok((text, token))
    }
}

#[async_trait]
impl Servers for KubeClient {
    async fn get_summary(&self, name: &str) -> Result<Option<ServerSummary>> {
        self.get_own(name).await
    }

    async fn get(&self, name: &str) -> Result<Option<DevServer>> {
        self.get_own(name).await
    }

    /// Parses each page on another thread while the next one is fetched.
    fn list(&self, scope: Scope) -> BoxStream<'_, Result<Vec<ServerSummary>>> {
        let api: Api<ServerSummary> = self.api(&scope);
        let requests = Request::new(api.resource_url());
        let first = Some(ListParams::default().limit(PAGE_SIZE));
        let texts = stream::unfold((requests, first), move |(requests, next)| async move {
            let parameters = next?;
            match self.fetch_page(&requests, &parameters).await {
                Ok((text, token)) => Some((Ok(text), (requests, token.map(|token| parameters.continue_token(&token))))),
                Err(error) => Some((Err(error), (requests, None))),
            }
        });
        let servers = texts.map(move |text: Result<String>| async move {
            let text = text?;
            let parse = tokio::task::spawn_blocking(move || serde_json::from_str::<Page<Vec<ServerSummary>>>(&text));
            let page = parse.await.map_err(|error| Error::failed(format!("could not parse a page: {error}")))?;
            Ok(page.map_err(|error| self.error(::kube::Error::SerdeError(error)))?.items)
        });
        servers.buffered(MAX_PAGES_IN_FLIGHT).boxed()
    }

    fn watch(&self, scope: Scope, name: Option<&str>) -> BoxStream<'static, Result<WatchEvent>> {
        self.watch_objects(self.api(&scope), name)
    }

    async fn create(&self, server: &DevServer, dry_run: bool) -> Result<ServerSummary> {
        let params = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
        let created: DevServer =
            self.own_api::<DevServer>().create(&params, server).await.map_err(|error| self.error(error))?;
        ServerSummary::try_from(&created).map_err(|error| self.error(::kube::Error::SerdeError(error)))
    }

    async fn patch(
        &self,
        name: &str,
        mut patch: Value,
        resource_version: Option<&str>,
        dry_run: bool,
    ) -> Result<ServerSummary> {
        if let Some(version) = resource_version {
            patch["metadata"] = json!({"resourceVersion": version});
        }
        let params = PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patched = self.own_api::<ServerSummary>().patch(name, &params, &Patch::Merge(&patch)).await;
        patched.map_err(|error| with_object(self.error(error), &format!("server {name}")))
    }

    async fn delete(&self, name: &str, uid: &str, dry_run: bool) -> Result<()> {
        self.delete_own::<ServerSummary>(name, uid, dry_run).await
    }
}

#[async_trait]
impl Flavors for KubeClient {
    async fn flavors(&self) -> Result<Vec<DevServerFlavor>> {
        let api: Api<DevServerFlavor> = Api::all(self.client.clone());
        let list = api.list(&ListParams::default()).await.map_err(|error| self.error(error))?;
        Ok(list.items)
    }

    fn watch_flavors(&self) -> BoxStream<'static, Result<Vec<DevServerFlavor>>> {
        let api: Api<DevServerFlavor> = Api::all(self.client.clone());
        let target = self.target.clone();
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let state = (BTreeMap::new(), false);
        let changes = events.scan(state, move |(flavors, complete), event| {
            let change = match event {
                Ok(watcher::Event::Init) => {
                    (*flavors, *complete) = (BTreeMap::new(), false);
                    None
                }
                Ok(watcher::Event::InitApply(flavor) | watcher::Event::Apply(flavor)) => {
                    flavors.insert(flavor.name_any(), flavor);
                    complete.then_some(Ok(()))
                }
                Ok(watcher::Event::Delete(flavor)) => {
                    flavors.remove(&flavor.name_any());
                    complete.then_some(Ok(()))
                }
                Ok(watcher::Event::InitDone) => {
                    *complete = true;
                    Some(Ok(()))
                }
                Err(error) => watch_error(&target, error).err().map(Err),
            };
            let change = change.map(|change| change.map(|()| flavors.values().cloned().collect()));
            std::future::ready(Some(change))
        });
        changes.filter_map(std::future::ready).boxed()
    }
}
