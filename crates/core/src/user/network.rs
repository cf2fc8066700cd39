//! Who may talk to a user's servers, and with whom they may talk.
//!
//! In come the control plane, to the agent only, and the user's own servers among themselves. Out go names, the user's
//! own servers, and the internet; not the metadata services of clouds, whose answers are credentials, nor the ranges
//! the installation closes. Every default of the API server is written out, so that what is stored compares equal.

use std::collections::BTreeSet;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use odc_api::name::UserName;
use odc_api::port;

use super::{Cidr, Settings, WALL};
use crate::object::{Kind, Object};

/// Where clouds answer questions of their machines: `169.254.169.254` and its neighbours, which also give out
/// credentials, and the same on IPv6.
const METADATA: [&str; 2] = ["169.254.0.0/16", "fd00:ec2::/32"];

/// By this label Kubernetes itself names every namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

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
        // To anywhere: some clouds and node-local caches answer names from the very addresses closed below.
        NetworkPolicyEgressRule { to: None, ports: Some(vec![to_port("UDP", 53), to_port("TCP", 53)]) },
        NetworkPolicyEgressRule { to: Some(vec![own()]), ports: None },
    ];
    let internet: Vec<_> = [true, false].into_iter().filter_map(|ipv4| internet(ipv4, &settings.closed)).collect();
    // A rule without peers would mean everywhere.
    if !internet.is_empty() {
        egress.push(NetworkPolicyEgressRule { to: Some(internet), ports: None });
    }
    let spec = NetworkPolicySpec {
        pod_selector: Some(LabelSelector::default()),
        policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
        ingress: Some(ingress),
        egress: Some(egress),
    };
    let policy = NetworkPolicy { metadata: super::metadata(user, WALL), spec: Some(spec) };
    Object::new(Kind::NetworkPolicy, &policy)
}

fn all_of(namespace: &str) -> NetworkPolicyPeer {
    let named = [(NAMESPACE_NAME.to_owned(), namespace.to_owned())];
    NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector { match_labels: Some(named.into()), match_expressions: None }),
        ..NetworkPolicyPeer::default()
    }
}

fn to_port(protocol: &str, port: u16) -> NetworkPolicyPort {
    NetworkPolicyPort { protocol: Some(protocol.into()), port: Some(IntOrString::Int(port.into())), end_port: None }
}

/// All addresses of a family but the closed ones; none if the whole family is closed.
fn internet(ipv4: bool, closed: &[Cidr]) -> Option<NetworkPolicyPeer> {
    let metadata = METADATA.iter().filter_map(|range| range.parse::<Cidr>().ok());
    let except: BTreeSet<Cidr> =
        metadata.chain(closed.iter().copied()).filter(|range| range.is_ipv4() == ipv4).collect();
    if except.iter().any(|range| range.is_everything()) {
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

    fn policy(closed: &[&str]) -> Value {
        let closed = closed.iter().map(|range| range.parse().unwrap()).collect();
        let settings = Settings { namespace: "odc-system".into(), account: "odc-operator".into(), closed };
        object(&"ada".parse().unwrap(), &settings).body["spec"].clone()
    }

    /// Who is at the other end.
    #[derive(Clone, Copy, Debug)]
    enum End {
        /// A pod of this namespace.
        Pod(&'static str),
        Address(&'static str),
    }
    use End::{Address, Pod};

    /// Whether the policy lets it pass, by the rules of Kubernetes.
    fn passes(policy: &Value, direction: &str, end: End, protocol: &str, port: u16) -> bool {
        let (rules, peers) = if direction == "in" { ("ingress", "from") } else { ("egress", "to") };
        policy[rules].as_array().unwrap().iter().any(|rule| {
            let to_port = rule["ports"].as_array().is_none_or(|ports| {
                ports.iter().any(|open| open["protocol"] == protocol && open["port"] == u64::from(port))
            });
            to_port && rule[peers].as_array().is_none_or(|peers| peers.iter().any(|peer| is(peer, end)))
        })
    }

    fn is(peer: &Value, end: End) -> bool {
        match end {
            Pod(namespace) => match &peer["namespaceSelector"] {
                Value::Null => peer.get("podSelector").is_some() && namespace == "dev-ada",
                selector => selector["matchLabels"][NAMESPACE_NAME] == namespace,
            },
            Address(address) => {
                let address: IpAddr = address.parse().unwrap();
                let block = &peer["ipBlock"];
                let within = |range: &Value| range.as_str().is_some_and(|range| holds(range, address));
                within(&block["cidr"]) && !block["except"].as_array().unwrap().iter().any(within)
            }
        }
    }

    /// The range that begins like the address is the range the address is in.
    fn holds(range: &str, address: IpAddr) -> bool {
        let range: Cidr = range.parse().unwrap();
        let length = range.to_string().split_once('/').unwrap().1.to_owned();
        range.is_ipv4() == address.is_ipv4() && format!("{address}/{length}").parse::<Cidr>().unwrap() == range
    }

    #[test]
    fn only_wanted_flows_pass() {
        let policy = policy(&["10.0.0.0/8", "fd12::/16"]);
        for (direction, end, protocol, port, expect) in [
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
            let found = passes(&policy, direction, end, protocol, port);
            assert_eq!(found, expect, "{direction} {end:?} {protocol} {port}");
        }
    }

    #[test]
    fn a_closed_internet_is_no_rule_rather_than_an_open_one() {
        let policy = policy(&["0.0.0.0/0", "::/0"]);
        assert_eq!(policy["egress"].as_array().unwrap().len(), 2);
        assert!(!passes(&policy, "out", Address("8.8.8.8"), "TCP", 443));
        assert!(passes(&policy, "out", Pod("dev-ada"), "TCP", 443));
    }

    #[test]
    fn the_order_of_closed_ranges_does_not_matter() {
        assert_eq!(policy(&["10.0.0.0/8", "fd12::/16", "10.0.0.0/8"]), policy(&["fd12::/16", "10.0.0.0/8"]));
    }
}
