//! Pods and what belongs to them: logs, ports, PVCs.

use std::collections::BTreeMap;

use ::kube::api::{Api, ListParams, LogParams};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::KubeClient;
use crate::client::status::with_object;
use crate::client::{Connection, LogRequest, LogStream, Pods, SERVER_CONTAINER};
use crate::error::Result;
use crate::ssh::tunnel;

#[async_trait]
impl Pods for KubeClient {
    async fn logs(&self, request: LogRequest) -> Result<LogStream> {
        let pods: Api<Pod> = self.own_api();
        let params = LogParams {
            container: Some(request.container.unwrap_or_else(|| SERVER_CONTAINER.to_owned())),
            follow: request.follow,
            tail_lines: request.tail,
            since_seconds: request.since.and_then(|since| i64::try_from(since.as_secs().max(1)).ok()),
            timestamps: request.timestamps,
            previous: request.previous,
            ..LogParams::default()
        };
        let stream = pods.log_stream(&request.pod, &params).await;
        Ok(Box::pin(stream.map_err(|error| with_object(self.error(error), &format!("pod {}", request.pod)))?))
    }

    async fn connect(&self, pod: &str, port: u16) -> Result<Box<dyn Connection>> {
        let tunnel = tunnel::open(&self.client, &self.target.namespace, pod, port).await;
        Ok(Box::new(tunnel.map_err(|error| with_object(self.error(error), &format!("pod {pod}")))?))
    }

    async fn claims(&self) -> Result<Vec<(String, String)>> {
        let api: Api<PersistentVolumeClaim> = self.own_api();
        let list = api.list(&ListParams::default()).await.map_err(|error| self.error(error))?;
        let name_and_size =
            |claim: &PersistentVolumeClaim| (claim.metadata.name.clone().unwrap_or_default(), size(claim));
        Ok(list.items.iter().map(name_and_size).collect())
    }
}

/// Returns the capacity of a PVC, or the requested size while it is not bound.
fn size(claim: &PersistentVolumeClaim) -> String {
    let storage = |amounts: &BTreeMap<String, Quantity>| amounts.get("storage").map(|amount| amount.0.clone());
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref()).and_then(storage);
    let requested = || claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref().and_then(storage);
    capacity.or_else(requested).unwrap_or_default()
}
