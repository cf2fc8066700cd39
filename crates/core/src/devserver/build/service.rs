//! The headless Service by which the nodes of a gang find each other, also before they are ready.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use odc_api::{label, port};

use super::metadata;
use crate::devserver::validate::Valid;
use crate::object::{Kind, Object};

pub fn service(valid: &Valid<'_>) -> Object {
    let port = |name: &str, port: u16| ServicePort {
        name: Some(name.to_owned()),
        port: port.into(),
        protocol: Some("TCP".into()),
        target_port: Some(IntOrString::Int(port.into())),
        ..ServicePort::default()
    };
    let service = Service {
        metadata: metadata(valid, valid.name.as_str().to_owned()),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            publish_not_ready_addresses: Some(true),
            selector: Some(BTreeMap::from([(label::SERVER.to_owned(), valid.name.as_str().to_owned())])),
            ports: Some(vec![port("ssh", port::AGENT), port("master", port::MASTER)]),
            ..ServiceSpec::default()
        }),
        status: None,
    };
    Object::new(Kind::Service, &service)
}
