//! Servers and flavors.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use odc_api::http::Page;
use odc_api::v1alpha1::{DevServer, DevServerFlavor};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ApiClient;
use super::change::Executed;
use super::event_stream;
use super::http::{Request, encode};
use super::resource::{Object, ResourceOf};
use crate::client::status::with_object;
use crate::client::{Flavors, Scope, Servers, WatchEvent};
use crate::error::{Error, Kind, Result};
use crate::model::server::ServerSummary;

/// The largest page of the API.
const PAGE_SIZE: &str = "500";

/// How often flavors are read for a watch.
const FLAVOR_INTERVAL: Duration = Duration::from_secs(2);

impl ApiClient {
    /// Returns all pages of a list.
    pub(super) fn pages<T: DeserializeOwned + Send + 'static>(
        &self,
        request: Request,
    ) -> BoxStream<'static, Result<Vec<T>>> {
        let http = self.http.clone();
        let first = Some(request.clone().parameter("limit", PAGE_SIZE));
        let pages = stream::unfold(first, move |next| {
            let (http, request) = (http.clone(), request.clone());
            async move {
                let page = http.get::<Page<T>>(&next?).await;
                Some(match page {
                    Ok(Page { items, next_cursor }) => {
                        let next = |cursor: String| request.parameter("limit", PAGE_SIZE).parameter("cursor", cursor);
                        (Ok(items), next_cursor.map(next))
                    }
                    Err(error) => (Err(error), None),
                })
            }
        });
        pages.boxed()
    }

    /// Returns all objects of a list.
    pub(super) async fn list_all<K: Object>(&self, request: Request) -> Result<Vec<K>>
    where
        ResourceOf<K>: Send + 'static,
    {
        let (mut pages, mut objects) = (self.pages::<ResourceOf<K>>(request), vec![]);
        while let Some(page) = pages.next().await {
            objects.extend(page?.into_iter().map(K::from_resource));
        }
        Ok(objects)
    }

    async fn get_server<K: Object>(&self, name: &str) -> Result<Option<K>> {
        let request = self.own(Request::get(path(name)));
        Ok(self.http.get_opt::<ResourceOf<K>>(&request).await?.map(K::from_resource))
    }

    /// Sends a change of an object and returns the object after it.
    pub(super) async fn change_object<K: Object>(
        &self,
        request: Request,
        path: fn(&str) -> String,
        noun: &str,
    ) -> Result<K> {
        let Executed { name, object } = self.change(request).await?;
        if let Some(object) = object {
            return K::from_value(object);
        }
        let found = self.http.get_opt::<ResourceOf<K>>(&self.own(Request::get(path(&name)))).await?;
        found.map(K::from_resource).ok_or_else(|| {
            Error::not_found(format!("{noun} {name} was deleted")).with_hint("run `devctl list` to see your servers")
        })
    }
}

/// Returns the path of a server.
fn path(name: &str) -> String {
    format!("/devservers/{}", encode(name))
}

/// Returns the error of a list of all users. The message is that of the Kubernetes API.
fn denied_for_all(scope: &Scope, error: Error) -> Error {
    match (scope, error.kind) {
        (Scope::All, Kind::Denied) if error.message.starts_with("permission denied") => {
            Error { message: "permission denied: cannot list servers in this cluster".to_owned(), ..error }
        }
        _ => error,
    }
}

#[async_trait]
impl Servers for ApiClient {
    async fn get_summary(&self, name: &str) -> Result<Option<ServerSummary>> {
        self.get_server(name).await
    }

    async fn get(&self, name: &str) -> Result<Option<DevServer>> {
        self.get_server(name).await
    }

    fn list(&self, scope: Scope) -> BoxStream<'_, Result<Vec<ServerSummary>>> {
        let (parameter, value) = match self.scope_parameter(&scope) {
            Ok(parameter) => parameter,
            Err(error) => return stream::once(std::future::ready(Err(error))).boxed(),
        };
        let pages = self.pages::<ResourceOf<ServerSummary>>(Request::get("/devservers").parameter(parameter, value));
        let servers = pages.map(move |page| match page {
            Ok(items) => Ok(items.into_iter().map(ServerSummary::from_resource).collect()),
            Err(error) => Err(denied_for_all(&scope, error)),
        });
        servers.boxed()
    }

    fn watch(&self, scope: Scope, name: Option<&str>) -> BoxStream<'static, Result<WatchEvent>> {
        let (parameter, value) = match self.scope_parameter(&scope) {
            Ok(parameter) => parameter,
            Err(error) => return stream::once(std::future::ready(Err(error))).boxed(),
        };
        let request = Request::get("/events").flag("initial", true).parameter(parameter, value);
        let request = name.iter().fold(request, |request, name| request.parameter("server", *name));
        let events = event_stream::watch(self.http.clone(), request);
        events.map(move |event| event.map_err(|error| denied_for_all(&scope, error))).boxed()
    }

    async fn create(&self, server: &DevServer, dry_run: bool) -> Result<ServerSummary> {
        let name = server.metadata.name.as_deref().unwrap_or_default();
        let mut body = serde_json::to_value(&server.spec).map_err(|error| Error::failed(error.to_string()))?;
        body["name"] = json!(name);
        let request = self.own(Request::post("/devservers")).body(body);
        if dry_run {
            return self.dry_run(request).await;
        }
        self.change_object(request, path, "server").await
    }

    async fn patch(
        &self,
        name: &str,
        patch: Value,
        resource_version: Option<&str>,
        dry_run: bool,
    ) -> Result<ServerSummary> {
        let request = self.own(Request::patch(path(name))).body(patch["spec"].clone());
        let request = resource_version.iter().fold(request, |request, version| request.if_match(version));
        let patched =
            if dry_run { self.dry_run(request).await } else { self.change_object(request, path, "server").await };
        patched.map_err(|error| with_object(error, &format!("server {name}")))
    }

    async fn delete(&self, name: &str, uid: &str, dry_run: bool) -> Result<()> {
        let request = self.own(Request::delete(path(name))).parameter("uid", uid).flag("purge", true);
        let deleted = if dry_run {
            self.http.send(&request.flag("dryRun", true)).await.map(drop)
        } else {
            self.change(request).await.map(drop)
        };
        match deleted {
            Err(error) if error.kind == Kind::NotFound => Ok(()),
            result => result,
        }
    }
}

impl ApiClient {
    /// Validates a change. Returns the object as it would be.
    pub(super) async fn dry_run<K: Object>(&self, request: Request) -> Result<K> {
        self.http.get::<ResourceOf<K>>(&request.flag("dryRun", true)).await.map(K::from_resource)
    }
}

#[async_trait]
impl Flavors for ApiClient {
    async fn flavors(&self) -> Result<Vec<DevServerFlavor>> {
        self.list_all(Request::get("/flavors")).await
    }

    /// Reads the flavors periodically: the API has no events of them.
    fn watch_flavors(&self) -> BoxStream<'static, Result<Vec<DevServerFlavor>>> {
        struct Poll {
            client: ApiClient,
            last: Option<Vec<DevServerFlavor>>,
        }
        let poll = Poll { client: self.clone(), last: None };
        let changes = stream::unfold(poll, |mut poll| async move {
            loop {
                if poll.last.is_some() {
                    tokio::time::sleep(FLAVOR_INTERVAL).await;
                }
                match poll.client.flavors().await {
                    Ok(flavors) if !is_same(poll.last.as_deref(), &flavors) => {
                        poll.last = Some(flavors.clone());
                        return Some((Ok(flavors), poll));
                    }
                    // As an interrupted watch: the next attempt may succeed.
                    Ok(_) => {}
                    Err(error) if error.kind == Kind::Failed && poll.last.is_some() => {}
                    Err(error) => return Some((Err(error), poll)),
                }
            }
        });
        changes.boxed()
    }
}

/// Reports whether two lists have the same versions of the same objects.
fn is_same(last: Option<&[DevServerFlavor]>, flavors: &[DevServerFlavor]) -> bool {
    let version = |flavor: &DevServerFlavor| (flavor.metadata.uid.clone(), flavor.metadata.resource_version.clone());
    last.is_some_and(|last| last.iter().map(version).eq(flavors.iter().map(version)))
}
