//! Registers this process with the API server: the `EndpointSlice` of the Service, which has no selector because only the
//! leader serves, and the CA bundle of the `APIService`.

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

use super::{Credentials, SERVICE};
use crate::context::Context;
use crate::dynamic_api::with_timeout;
use crate::error_policy::backoff;
use crate::status_writer::FIELD_MANAGER;

/// How often the objects are checked. While they are wrong, the API is unavailable and no namespace can be deleted.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);

/// The label that assigns an `EndpointSlice` to a Service.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

pub(super) async fn run(ctx: Arc<Context>, address: SocketAddr, mut credentials: watch::Receiver<Credentials>) {
    let mut failures = 0;
    loop {
        let ca_bundle = {
            let credentials = credentials.borrow_and_update();
            credentials.client_auth.as_ref().and(credentials.serving_cert.as_ref()).map(|cert| cert.pem.clone())
        };
        let delay = match ca_bundle {
            None => Duration::MAX,
            Some(ca_bundle) => match ensure(&ctx, address, &ca_bundle).await {
                Ok(()) => {
                    failures = 0;
                    CHECK_INTERVAL
                }
                Err(error) => {
                    failures += 1;
                    let error = &error as &dyn std::error::Error;
                    tracing::info!(error, failures, "failed to register queue.odc.dev, retrying");
                    backoff(failures)
                }
            },
        };
        // A change ends the wait early.
        if let Ok(Err(_)) = tokio::time::timeout(delay, credentials.changed()).await {
            return;
        }
    }
}

async fn ensure(ctx: &Context, address: SocketAddr, ca_bundle: &str) -> kube::Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(ctx.client.clone(), &ctx.config.namespace);
    let slice = with_timeout(slices.get_opt(SERVICE)).await?;
    if slice.is_none_or(|slice| !points_to(&slice, address)) {
        apply(ctx, &slices, SERVICE, &endpoint_slice(address)).await?;
    }
    let services: Api<APIService> = Api::all(ctx.client.clone());
    let name = format!("{}.{}", queue::VERSION, queue::GROUP);
    let service = with_timeout(services.get_opt(&name)).await?;
    let ca_bundle = ByteString(ca_bundle.as_bytes().to_vec());
    match service.and_then(|service| service.spec) {
        // The APIService is part of the installation, so an administrator removed it.
        None => {
            tracing::debug!("APIService {name} does not exist");
            Ok(())
        }
        Some(spec) if spec.ca_bundle.as_ref() == Some(&ca_bundle) => Ok(()),
        Some(_) => {
            let object = json!({
                "apiVersion": APIService::API_VERSION, "kind": APIService::KIND, "metadata": {"name": name},
                "spec": {"caBundle": ca_bundle},
            });
            apply(ctx, &services, &name, &object).await
        }
    }
}

async fn apply<K>(ctx: &Context, api: &Api<K>, name: &str, object: &Value) -> kube::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    ctx.ensure_leader().map_err(|error| kube::Error::Service(error.into()))?;
    let params = PatchParams::apply(FIELD_MANAGER).force();
    with_timeout(api.patch(name, &params, &Patch::Apply(object))).await.map(drop)
}

fn endpoint_slice(address: SocketAddr) -> Value {
    json!({
        "apiVersion": EndpointSlice::API_VERSION, "kind": EndpointSlice::KIND,
        "metadata": {"name": SERVICE, "labels": {
            SERVICE_NAME_LABEL: SERVICE,
            "endpointslice.kubernetes.io/managed-by": label::OPERATOR,
            label::MANAGED_BY: label::OPERATOR,
        }},
        "addressType": address_type(address),
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "", "port": address.port(), "protocol": "TCP"}],
    })
}

const fn address_type(address: SocketAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Reports whether the slice belongs to the Service and contains exactly this address.
fn points_to(slice: &EndpointSlice, address: SocketAddr) -> bool {
    let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME_LABEL));
    let ready = |endpoint: &Endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        conditions.ready != Some(false) && conditions.serving != Some(false) && conditions.terminating != Some(true)
    };
    let has_address = |endpoint: &Endpoint| endpoint.addresses == [address.ip().to_string()] && ready(endpoint);
    let has_port = |port: &EndpointPort| {
        let is_unnamed = port.name.as_deref().unwrap_or_default().is_empty();
        is_unnamed
            && port.port == Some(address.port().into())
            && port.protocol.as_deref().is_none_or(|kind| kind == "TCP")
    };
    service.is_some_and(|service| service == SERVICE)
        && slice.address_type == address_type(address)
        && matches!(slice.endpoints.as_slice(), [only] if has_address(only))
        && matches!(slice.ports.as_deref(), Some([only]) if has_port(only))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_with_own_address_is_unchanged() {
        let address: SocketAddr = "10.1.2.3:9444".parse().unwrap();
        let slice: EndpointSlice = serde_json::from_value(endpoint_slice(address)).unwrap();
        assert!(points_to(&slice, address));
        assert!(!points_to(&slice, "10.1.2.4:9444".parse().unwrap()));
        assert!(!points_to(&slice, "10.1.2.3:9445".parse().unwrap()));
    }

    #[test]
    fn modified_slice_is_detected() {
        let address: SocketAddr = "10.1.2.3:9444".parse().unwrap();
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
            let mut slice = endpoint_slice(address);
            *slice.pointer_mut(pointer).unwrap() = value;
            assert!(!points_to(&serde_json::from_value(slice).unwrap(), address), "{pointer}");
        }
    }
}
