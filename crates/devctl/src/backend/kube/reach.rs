//! Into a server: its log, its ports, the claims it can have.

use ::kube::api::{Api, ListParams, LogParams};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::Kube;
use crate::backend::{Lines, LogRequest, Pipe, SERVER_CONTAINER};
use crate::failure::Result;

impl Kube {
    pub(super) async fn log_lines(&self, request: LogRequest) -> Result<Lines> {
        let pods: Api<Pod> = self.own();
        let parameters = LogParams {
            container: Some(request.container.unwrap_or_else(|| SERVER_CONTAINER.to_owned())),
            follow: request.follow,
            tail_lines: request.tail,
            since_seconds: request.since.and_then(|since| i64::try_from(since.as_secs().max(1)).ok()),
            timestamps: request.timestamps,
            previous: request.previous,
            ..LogParams::default()
        };
        let lines = pods.log_stream(&request.pod, &parameters).await;
        Ok(Box::pin(lines.map_err(|error| super::said_about(self.failure(error), &format!("pod {}", request.pod)))?))
    }

    pub(super) async fn pipe(&self, pod: &str, port: u16) -> Result<Box<dyn Pipe>> {
        let opened = crate::ssh::tunnel::open(&self.client, &self.place.namespace, pod, port).await;
        Ok(Box::new(opened.map_err(|error| super::said_about(self.failure(error), &format!("pod {pod}")))?))
    }

    pub(super) async fn list_claims(&self) -> Result<Vec<(String, String)>> {
        let claims: Api<PersistentVolumeClaim> = self.own();
        let listed = claims.list(&ListParams::default()).await.map_err(|error| self.failure(error))?;
        let size = |claim: &PersistentVolumeClaim| {
            let of = |amounts: &std::collections::BTreeMap<
                String,
                k8s_openapi::apimachinery::pkg::api::resource::Quantity,
            >| { amounts.get("storage").map(|amount| amount.0.clone()) };
            let bound = claim.status.as_ref().and_then(|status| status.capacity.as_ref()).and_then(of);
            let asked = || claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref().and_then(of);
            bound.or_else(asked).unwrap_or_default()
        };
        Ok(listed.items.iter().map(|claim| (claim.metadata.name.clone().unwrap_or_default(), size(claim))).collect())
    }
}
