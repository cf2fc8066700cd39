//! The address plan of a cluster, derived from one `10.x.0.0/16`.
//!
//! ```text
//! 10.x.0.1          host side of the bridge: API server, registry, DNS, PostgreSQL
//! 10.x.0.11 …       nodes
//! 10.x.65.0/24 …    pods, one CIDR per node
//! 10.x.128.0/17     Services
//! ```
//! A cluster without nodes needs no bridge and uses loopback.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Limited by the address plan.
pub const MAX_NODES: u8 = 32;

/// Second octets of the networks to choose from without `--network`.
pub const CANDIDATE_OCTETS: std::ops::RangeInclusive<u8> = 231..=250;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Network {
    /// Control plane only.
    Loopback,
    /// `10.<octet>.0.0/16` on a bridge of the cluster.
    Bridge(u8),
}

impl Network {
    /// Returns the address on which the control plane listens.
    pub fn host_ip(self) -> Ipv4Addr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Bridge(octet) => Ipv4Addr::new(10, octet, 0, 1),
        }
    }

    pub fn node_ip(self, node: NodeIndex) -> Ipv4Addr {
        Ipv4Addr::new(10, self.octet(), 0, 10 + node.0)
    }

    pub fn node_pod_cidr(self, node: NodeIndex) -> Cidr {
        Cidr(Ipv4Addr::new(10, self.octet(), 64 + node.0, 0), 24)
    }

    /// Returns the range that contains the pod CIDRs of all nodes.
    pub fn pod_cidr(self) -> Cidr {
        Cidr(Ipv4Addr::new(10, self.octet(), 64, 0), 18)
    }

    pub fn service_cidr(self) -> Cidr {
        Cidr(Ipv4Addr::new(10, self.octet(), 128, 0), 17)
    }

    /// Returns the address of the Service `kubernetes`, by convention the first of the range.
    pub fn kubernetes_service_ip(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.octet(), 128, 1)
    }

    pub fn dns_service_ip(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.octet(), 128, 10)
    }

    pub fn cidr(self) -> Cidr {
        Cidr(Ipv4Addr::new(10, self.octet(), 0, 0), 16)
    }

    fn octet(self) -> u8 {
        match self {
            // The API server requires a Service range even without nodes. Nothing routes to it.
            Self::Loopback => 96,
            Self::Bridge(octet) => octet,
        }
    }

    /// Reports whether a route or address of the host overlaps with this network.
    pub fn overlaps(self, other: Cidr) -> bool {
        let own = self.cidr();
        let bits = own.1.min(other.1);
        bits > 0 && (u32::from(own.0) >> (32 - bits)) == (u32::from(other.0) >> (32 - bits))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("loopback"),
            Self::Bridge(_) => self.cidr().fmt(f),
        }
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl TryFrom<String> for Network {
    type Error = ParseNetworkError;

    fn try_from(text: String) -> Result<Self, ParseNetworkError> {
        text.parse()
    }
}

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        if text == "loopback" {
            return Ok(Self::Loopback);
        }
        let cidr: Cidr = text.parse().map_err(|()| ParseNetworkError(text.into()))?;
        match (cidr.0.octets(), cidr.1) {
            ([10, octet, 0, 0], 16) => Ok(Self::Bridge(octet)),
            _ => Err(ParseNetworkError(text.into())),
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid cluster network; expected 10.x.0.0/16, for example 10.231.0.0/16")]
pub struct ParseNetworkError(String);

/// Number of a node, starting at 1. The nodes are named `n1`, `n2`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(u8);

impl NodeIndex {
    pub fn all(nodes: u8) -> impl Iterator<Item = Self> {
        (1..=nodes.min(MAX_NODES)).map(Self)
    }
}

impl fmt::Display for NodeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr(pub Ipv4Addr, pub u8);

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

impl FromStr for Cidr {
    type Err = ();

    /// An address without a prefix length is a /32.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
        let bits = bits.parse().map_err(|_| ())?;
        match address.parse().map_err(|_| ())? {
            IpAddr::V4(address) if bits <= 32 => Ok(Self(address, bits)),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_round_trips_through_text() {
        for network in [Network::Loopback, Network::Bridge(231)] {
            assert_eq!(network.to_string().parse(), Ok(network));
        }
    }

    #[test]
    fn only_ten_x_slash_sixteen_is_a_network() {
        for bad in ["10.231.0.0/24", "192.168.0.0/16", "10.1.2.0/16", "10.231.0.0", "fd00::/16", "", "10.999.0.0/16"] {
            assert_eq!(bad.parse::<Network>(), Err(ParseNetworkError(bad.into())), "{bad}");
        }
    }

    #[test]
    fn pod_and_service_cidrs_are_disjoint() {
        let network = Network::Bridge(231);
        let pods: Vec<_> = NodeIndex::all(MAX_NODES).map(|node| network.node_pod_cidr(node)).collect();
        for (i, range) in pods.iter().enumerate() {
            assert!(range.0.octets()[2] < 128, "pod CIDR overlaps with the Service CIDR");
            assert!(range.0.octets()[2] >= network.pod_cidr().0.octets()[2]);
            assert!(!pods[..i].contains(range));
        }
        assert_eq!(network.node_ip(NodeIndex(1)).to_string(), "10.231.0.11");
    }

    #[test]
    fn overlap_is_detected_for_larger_and_smaller_ranges() {
        let network = Network::Bridge(231);
        for (other, expect) in [
            ("10.231.4.0/24", true),
            ("10.231.0.1", true),
            ("10.0.0.0/8", true),
            ("10.232.0.0/16", false),
            ("192.168.0.0/16", false),
            ("0.0.0.0/0", false),
        ] {
            assert_eq!(network.overlaps(other.parse().unwrap()), expect, "{other}");
        }
    }
}
