//! How the API server finds us and knows us: the endpoints of our Service, which has no selector since only the leader
//! answers, and the authority in the registration of our API.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use k8s_openapi::{ByteString, Resource as _};
use kube::api::{Api, Patch, PatchParams};
use odc_api::{label, queue};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Known, SERVICE};
use crate::context::Context;
use crate::request::in_time;
use crate::requeue::back_off;

/// Nobody but us and an administrator writes these. While they are wrong the API is not available, and no namespace can be
/// deleted.
const LOOK_AGAIN: Duration = Duration::from_secs(20);

/// By this Kubernetes knows which Service endpoints belong to.
const OF_SERVICE: &str = "kubernetes.io/service-name";

pub(super) async fn run(ctx: Arc<Context>, at: SocketAddr, mut known: watch::Receiver<Known>) {
    let mut failures = 0;
    loop {
        let authority = {
            let known = known.borrow_and_update();
            known.front.as_ref().and(known.identity.as_ref()).map(|identity| identity.pem.clone())
        };
        let wait = match authority {
            None => Duration::MAX,
            Some(authority) => match ensure(&ctx, at, &authority).await {
                Ok(()) => {
                    failures = 0;
                    LOOK_AGAIN
                }
                Err(error) => {
                    failures += 1;
                    let error = &error as &dyn std::error::Error;
                    tracing::info!(error, failures, "queue.odc.dev is not announced; will try again");
                    back_off(failures)
                }
            },
        };
        // A change and the time to look again are equally good reasons.
        if let Ok(Err(_)) = tokio::time::timeout(wait, known.changed()).await {
            return;
        }
    }
}

async fn ensure(ctx: &Context, at: SocketAddr, authority: &str) -> kube::Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(ctx.client.clone(), &ctx.config.namespace);
    let there = in_time(slices.get_opt(SERVICE)).await?;
    if there.as_ref().is_none_or(|there| !leads_to(there, at)) {
        apply(ctx, &slices, SERVICE, &endpoints(at)).await?;
    }
    let services: Api<APIService> = Api::all(ctx.client.clone());
    let name = format!("{}.{}", queue::VERSION, queue::GROUP);
    let there = in_time(services.get_opt(&name)).await?;
    let trusted = ByteString(authority.as_bytes().to_vec());
    match there.and_then(|there| there.spec) {
        // It was taken away on purpose: it comes with the installation.
        None => {
            tracing::debug!("{name} is not registered");
            Ok(())
        }
        Some(spec) if spec.ca_bundle.as_ref() == Some(&trusted) => Ok(()),
        Some(_) => {
            let object = json!({
                "apiVersion": APIService::API_VERSION, "kind": APIService::KIND, "metadata": {"name": name},
                "spec": {"caBundle": trusted},
            });
            apply(ctx, &services, &name, &object).await
        }
    }
}

async fn apply<K>(ctx: &Context, api: &Api<K>, name: &str, object: &Value) -> kube::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    ctx.may_write().map_err(|_| kube::Error::Service("the lease is about to be over".into()))?;
    let ours = PatchParams::apply("odc-operator").force();
    in_time(api.patch(name, &ours, &Patch::Apply(object))).await.map(drop)
}

fn endpoints(at: SocketAddr) -> Value {
    json!({
        "apiVersion": EndpointSlice::API_VERSION, "kind": EndpointSlice::KIND,
        "metadata": {"name": SERVICE, "labels": {
            OF_SERVICE: SERVICE,
            "endpointslice.kubernetes.io/managed-by": "odc-operator",
            label::MANAGED_BY: "odc-operator",
        }},
        "addressType": address_type(at),
        "endpoints": [{"addresses": [at.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "", "port": at.port(), "protocol": "TCP"}],
    })
}

const fn address_type(at: SocketAddr) -> &'static str {
    if at.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Whether it says of our Service, and of nothing else, that we answer.
fn leads_to(slice: &EndpointSlice, at: SocketAddr) -> bool {
    let of_service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(OF_SERVICE));
    let ready = |endpoint: &Endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        conditions.ready != Some(false) && conditions.serving != Some(false) && conditions.terminating != Some(true)
    };
    let is_us = |endpoint: &Endpoint| endpoint.addresses == [at.ip().to_string()] && ready(endpoint);
    let is_ours = |port: &EndpointPort| {
        let plain = port.name.as_deref().unwrap_or_default().is_empty();
        plain && port.port == Some(at.port().into()) && port.protocol.as_deref().is_none_or(|kind| kind == "TCP")
    };
    of_service.is_some_and(|service| service == SERVICE)
        && slice.address_type == address_type(at)
        && matches!(slice.endpoints.as_slice(), [only] if is_us(only))
        && matches!(slice.ports.as_deref(), Some([only]) if is_ours(only))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_to_us_is_left_alone() {
        let at: SocketAddr = "10.1.2.3:9444".parse().unwrap();
        let slice: EndpointSlice = serde_json::from_value(endpoints(at)).unwrap();
        assert!(leads_to(&slice, at));
        assert!(!leads_to(&slice, "10.1.2.4:9444".parse().unwrap()));
        assert!(!leads_to(&slice, "10.1.2.3:9445".parse().unwrap()));
    }

    #[test]
    fn whatever_keeps_the_api_server_from_finding_us_is_seen() {
        let at: SocketAddr = "10.1.2.3:9444".parse().unwrap();
        for (pointer, value) in [
            ("/metadata/labels/kubernetes.io~1service-name", json!("other")),
            ("/metadata/labels", json!({})),
            ("/addressType", json!("IPv6")),
            ("/endpoints", json!([])),
            ("/endpoints/0/addresses", json!(["10.1.2.3", "10.1.2.4"])),
            ("/endpoints/0/conditions/ready", json!(false)),
            ("/endpoints/0/conditions", json!({"serving": false})),
            ("/endpoints/0/conditions", json!({"terminating": true})),
            ("/ports/0/name", json!("https")),
            ("/ports/0/protocol", json!("UDP")),
        ] {
            let mut slice = endpoints(at);
            *slice.pointer_mut(pointer).unwrap() = value;
            assert!(!leads_to(&serde_json::from_value(slice).unwrap(), at), "{pointer}");
        }
    }
}
