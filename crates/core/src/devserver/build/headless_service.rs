//! The headless Service of a gang. It publishes addresses before the pods are ready.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use odc_api::{label, port};

use super::metadata;
use crate::devserver::validate::Valid;
use crate::manifest::{Kind, Object};

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

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::DevServer;
    use serde_json::json;

    use super::*;
    use crate::cluster::ManagedObject;
    use crate::devserver::fixtures::Request;

    #[test]
    fn service_publishes_unready_pods() {
        let service = Request::new(DevServer::test().size("flavor-gpu", 1, 2).ephemeral("1Gi")).valid(service);
        let spec = &service.body["spec"];
        assert_eq!((service.name.as_str(), &spec["clusterIP"]), ("server-1", &json!("None")));
        assert_eq!(spec["publishNotReadyAddresses"], true);
        assert_eq!(spec["selector"], json!({"odc.dev/server": "server-1"}));
    }

    #[test]
    fn defaulted_fields_are_not_a_difference() {
        let service = Request::new(DevServer::test().size("flavor-gpu", 1, 2).ephemeral("1Gi")).valid(service);
        let mut stored = service.body.clone();
        stored["metadata"]["uid"] = "uid-service".into();
        stored["spec"]["type"] = "ClusterIP".into();
        stored["spec"]["clusterIPs"] = json!(["None"]);
        stored["spec"]["ipFamilies"] = json!(["IPv4"]);
        assert!(ManagedObject::from_api(Kind::Service, stored.clone()).contains(&service));
        stored["spec"]["selector"]["odc.dev/server"] = "another".into();
        assert!(!ManagedObject::from_api(Kind::Service, stored).contains(&service));
    }
}
