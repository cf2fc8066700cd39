//! The network policy of a user's namespace.
//!
//! Ingress is allowed from the control plane to the agent port, and between the user's own servers. Egress is allowed to
//! DNS, the user's own servers and the internet, except for cloud metadata services, which return credentials, and the
//! blocked ranges of the installation. All API server defaults are set, so that the stored object compares equal.

use std::collections::BTreeSet;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use odc_api::name::UserName;
use odc_api::port;

use super::{Cidr, OBJECT_NAME, Settings};
use crate::manifest::{Kind, Object};

/// Cloud metadata services: the IPv4 link-local range and the IPv6 address of AWS.
const METADATA_CIDRS: [&str; 2] = ["169.254.0.0/16", "fd00:ec2::/32"];

/// The label that Kubernetes sets on all namespaces.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) fn object(user: &UserName, settings: &Settings) -> Object {
    let own = || NetworkPolicyPeer { pod_selector: Some(LabelSelector::default()), ..NetworkPolicyPeer::default() };
    let ingress = vec![
        NetworkPolicyIngressRule { from: Some(vec![own()]), ports: None },
        NetworkPolicyIngressRule {
            from: Some(vec![all_of(&settings.namespace)]),
            ports: Some(vec![to_port("TCP", port::AGENT)]),
        },
    ];
    let mut egress = vec![
        // To any address: some clouds and node-local caches serve DNS from addresses that are blocked below.
        NetworkPolicyEgressRule { to: None, ports: Some(vec![to_port("UDP", 53), to_port("TCP", 53)]) },
        NetworkPolicyEgressRule { to: Some(vec![own()]), ports: None },
    ];
    let internet: Vec<_> =
        [true, false].into_iter().filter_map(|ipv4| internet(ipv4, &settings.blocked_cidrs)).collect();
    // A rule without peers would allow all destinations.
    if !internet.is_empty() {
        egress.push(NetworkPolicyEgressRule { to: Some(internet), ports: None });
    }
    let spec = NetworkPolicySpec {
        pod_selector: Some(LabelSelector::default()),
        policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
        ingress: Some(ingress),
        egress: Some(egress),
    };
    let policy = NetworkPolicy { metadata: super::metadata(user, OBJECT_NAME), spec: Some(spec) };
    Object::new(Kind::NetworkPolicy, &policy)
}

fn all_of(namespace: &str) -> NetworkPolicyPeer {
    let named = [(NAMESPACE_NAME_LABEL.to_owned(), namespace.to_owned())];
    NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector { match_labels: Some(named.into()), match_expressions: None }),
        ..NetworkPolicyPeer::default()
    }
}

fn to_port(protocol: &str, port: u16) -> NetworkPolicyPort {
    NetworkPolicyPort { protocol: Some(protocol.into()), port: Some(IntOrString::Int(port.into())), end_port: None }
}

/// Returns all addresses of a family except the blocked ones, or `None` if the whole family is blocked.
fn internet(ipv4: bool, blocked: &[Cidr]) -> Option<NetworkPolicyPeer> {
    let metadata = METADATA_CIDRS.iter().filter_map(|range| range.parse::<Cidr>().ok());
    let except: BTreeSet<Cidr> =
        metadata.chain(blocked.iter().copied()).filter(|range| range.is_ipv4() == ipv4).collect();
    if except.iter().any(|range| range.is_unrestricted()) {
        return None;
    }
    let block = IPBlock {
        cidr: if ipv4 { "0.0.0.0/0" } else { "::/0" }.into(),
        except: Some(except.iter().map(ToString::to_string).collect()),
    };
    Some(NetworkPolicyPeer { ip_block: Some(block), ..NetworkPolicyPeer::default() })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use serde_json::Value;

    use super::*;

    fn policy(blocked: &[&str]) -> Value {
        let blocked_cidrs = blocked.iter().map(|range| range.parse().unwrap()).collect();
        let settings =
            Settings { namespace: "odc-system".into(), service_account: "odc-operator".into(), blocked_cidrs };
        object(&"ada".parse().unwrap(), &settings).body["spec"].clone()
    }

    /// The remote end of a connection.
    #[derive(Clone, Copy, Debug)]
    enum Peer {
        /// A pod in this namespace.
        Pod(&'static str),
        Address(&'static str),
    }
    use Peer::{Address, Pod};

    /// Reports whether the policy allows the connection.
    fn is_allowed(policy: &Value, direction: &str, remote: Peer, protocol: &str, port: u16) -> bool {
        let (rules, peers) = if direction == "in" { ("ingress", "from") } else { ("egress", "to") };
        policy[rules].as_array().unwrap().iter().any(|rule| {
            let to_port = rule["ports"].as_array().is_none_or(|ports| {
                ports.iter().any(|open| open["protocol"] == protocol && open["port"] == u64::from(port))
            });
            to_port && rule[peers].as_array().is_none_or(|peers| peers.iter().any(|peer| matches(peer, remote)))
        })
    }

    fn matches(peer: &Value, remote: Peer) -> bool {
        match remote {
            Pod(namespace) => match &peer["namespaceSelector"] {
                Value::Null => peer.get("podSelector").is_some() && namespace == "dev-ada",
                selector => selector["matchLabels"][NAMESPACE_NAME_LABEL] == namespace,
            },
            Address(address) => {
                let address: IpAddr = address.parse().unwrap();
                let block = &peer["ipBlock"];
                let within = |range: &Value| range.as_str().is_some_and(|range| contains(range, address));
                within(&block["cidr"]) && !block["except"].as_array().unwrap().iter().any(within)
            }
        }
    }

    fn contains(range: &str, address: IpAddr) -> bool {
        let range: Cidr = range.parse().unwrap();
        let length = range.to_string().split_once('/').unwrap().1.to_owned();
        range.is_ipv4() == address.is_ipv4() && format!("{address}/{length}").parse::<Cidr>().unwrap() == range
    }

    #[test]
    fn only_permitted_connections_are_allowed() {
        let policy = policy(&["10.0.0.0/8", "fd12::/16"]);
        for (direction, remote, protocol, port, expect) in [
            ("in", Pod("odc-system"), "TCP", 2222, true),
            ("in", Pod("odc-system"), "TCP", 8888, false),
            ("in", Pod("odc-system"), "UDP", 2222, false),
            ("in", Pod("dev-ada"), "TCP", 8888, true),
            ("in", Pod("dev-bob"), "TCP", 2222, false),
            ("in", Pod("kube-system"), "TCP", 2222, false),
            ("in", Address("8.8.8.8"), "TCP", 2222, false),
            ("out", Pod("dev-ada"), "TCP", 29500, true),
            ("out", Pod("dev-bob"), "TCP", 2222, false),
            ("out", Pod("odc-system"), "TCP", 9090, false),
            ("out", Address("8.8.8.8"), "TCP", 443, true),
            ("out", Address("2001:4860:4860::8888"), "TCP", 443, true),
            ("out", Address("10.96.0.1"), "TCP", 443, false),
            ("out", Address("10.96.0.10"), "UDP", 53, true),
            ("out", Address("10.96.0.10"), "TCP", 53, true),
            ("out", Address("fd12::1"), "TCP", 443, false),
            ("out", Address("fd13::1"), "TCP", 443, true),
            ("out", Address("169.254.169.254"), "TCP", 80, false),
            ("out", Address("169.254.170.2"), "TCP", 80, false),
            ("out", Address("169.254.169.254"), "UDP", 53, true),
            ("out", Address("fd00:ec2::254"), "TCP", 80, false),
        ] {
            let allowed = is_allowed(&policy, direction, remote, protocol, port);
            assert_eq!(allowed, expect, "{direction} {remote:?} {protocol} {port}");
        }
    }

    #[test]
    fn blocked_internet_has_no_egress_rule() {
        let policy = policy(&["0.0.0.0/0", "::/0"]);
        assert_eq!(policy["egress"].as_array().unwrap().len(), 2);
        assert!(!is_allowed(&policy, "out", Address("8.8.8.8"), "TCP", 443));
        assert!(is_allowed(&policy, "out", Pod("dev-ada"), "TCP", 443));
    }

    #[test]
    fn order_of_blocked_ranges_does_not_matter() {
        assert_eq!(policy(&["10.0.0.0/8", "fd12::/16", "10.0.0.0/8"]), policy(&["fd12::/16", "10.0.0.0/8"]));
    }
}
