//! Kubernetes Events of a server and its pods.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use odc_api::http::{KubeEvent, Page};

use super::ApiClient;
use super::http::{Request, encode};
use crate::client::{Event, Events};
use crate::error::{Error, Kind, Result};

/// How often events are read for a watch. Each time, the API lists the events of the namespace.
const INTERVAL: Duration = Duration::from_secs(3);

impl From<KubeEvent> for Event {
    fn from(event: KubeEvent) -> Self {
        let KubeEvent { at, object, warning, reason, message, count } = event;
        Self { at: at.map(|at| at.0), object, warning, reason, message, count }
    }
}

#[async_trait]
impl Events for ApiClient {
    async fn events(&self, server: &str) -> Result<Vec<Event>> {
        let request = self.own(Request::get(format!("/devservers/{}/events", encode(server))));
        match self.http.get::<Page<KubeEvent>>(&request).await {
            Ok(page) => Ok(page.items.into_iter().map(Event::from).collect()),
            // It was deleted.
            Err(error) if error.kind == Kind::NotFound => Ok(vec![]),
            Err(error) => Err(error),
        }
    }

    fn watch_events(&self, server: &str) -> BoxStream<'static, Result<Event>> {
        struct Poll {
            client: ApiClient,
            server: String,
            known: Option<Vec<Event>>,
        }
        let poll = Poll { client: self.clone(), server: server.to_owned(), known: None };
        let changes = stream::unfold(poll, |mut poll| async move {
            if poll.known.is_some() {
                tokio::time::sleep(INTERVAL).await;
            }
            let new: Vec<Result<Event>> = match poll.client.events(&poll.server).await {
                Ok(events) => {
                    let known = poll.known.replace(events.clone()).unwrap_or_default();
                    events.into_iter().filter(|event| !known.contains(event)).map(Ok).collect()
                }
                Err(error) if is_temporary(&error) => {
                    poll.known.get_or_insert_default();
                    vec![]
                }
                Err(error) => {
                    poll.known.get_or_insert_default();
                    vec![Err(error)]
                }
            };
            Some((stream::iter(new), poll))
        });
        changes.flatten().boxed()
    }
}

fn is_temporary(error: &Error) -> bool {
    matches!(error.kind, Kind::Failed | Kind::Timeout)
}
