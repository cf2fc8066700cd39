//! Pods and what belongs to them: logs and PVCs. Connections to pods need the Kubernetes API.

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use http_body_util::BodyExt as _;
use odc_api::http::{Claim, Page};

use super::ApiClient;
use super::http::{Request, encode};
use crate::client::status::with_object;
use crate::client::{Connection, LogRequest, LogStream, Pods, SERVER_CONTAINER};
use crate::error::Result;

#[async_trait]
impl Pods for ApiClient {
    async fn logs(&self, request: LogRequest) -> Result<LogStream> {
        let LogRequest { pod, container, follow, tail, since, timestamps, previous } = request;
        // The name of a pod is that of its server and a number.
        let server = pod.rsplit_once('-').map_or(&pod[..], |(server, _)| server);
        let logs = Request::get(format!("/devservers/{}/logs", encode(server)))
            .parameter("pod", &*pod)
            .parameter("container", container.as_deref().unwrap_or(SERVER_CONTAINER))
            .flag("follow", follow)
            .flag("timestamps", timestamps)
            .flag("previous", previous);
        let logs = tail.into_iter().fold(logs, |logs, tail| logs.parameter("tail", tail.to_string()));
        let since = since.map(|since| format!("{}s", since.as_secs().max(1)));
        let logs = since.into_iter().fold(logs, |logs, since| logs.parameter("since", since));
        let body = self.http.stream(&self.own(logs)).await;
        let body = body.map_err(|error| with_object(error, &format!("pod {pod}")))?;
        Ok(Box::pin(body.into_data_stream().map_err(std::io::Error::other).into_async_read()))
    }

    async fn connect(&self, pod: &str, port: u16) -> Result<Box<dyn Connection>> {
        self.kubernetes("a connection to a pod").await?.connect(pod, port).await
    }

    async fn claims(&self) -> Result<Vec<(String, String)>> {
        let page: Page<Claim> = self.http.get(&self.own(Request::get("/claims"))).await?;
        Ok(page.items.into_iter().map(|claim| (claim.name, claim.size)).collect())
    }
}
