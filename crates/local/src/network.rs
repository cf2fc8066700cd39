//! The addresses of one cloud, all derived from one `10.x.0.0/16`.
//!
//! ```text
//! 10.x.0.1          the host's end of the bridge: API server, registry, DNS, PostgreSQL
//! 10.x.0.11 …       nodes
//! 10.x.65.0/24 …    pods, one range per node
//! 10.x.128.0/17     Services
//! ```
//! A cloud without nodes needs no bridge and lives on loopback.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// More nodes than this do not fit the address plan (nor one machine).
pub const MAX_NODES: u8 = 32;

/// The second octets a cloud may take when nobody named a network.
pub const CANDIDATES: std::ops::RangeInclusive<u8> = 231..=250;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Network {
    /// Control plane only.
    Loopback,
    /// `10.<octet>.0.0/16` on a bridge of our own.
    Bridge(u8),
}

impl Network {
    /// Where the control plane listens.
    pub fn host(self) -> Ipv4Addr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Bridge(octet) => Ipv4Addr::new(10, octet, 0, 1),
        }
    }

    pub fn node(self, node: NodeIndex) -> Ipv4Addr {
        Ipv4Addr::new(10, self.octet(), 0, 10 + node.0)
    }

    pub fn pods_of(self, node: NodeIndex) -> Cidr {
        Cidr(Ipv4Addr::new(10, self.octet(), 64 + node.0, 0), 24)
    }

    /// All pod ranges together.
    pub fn pods(self) -> Cidr {
        Cidr(Ipv4Addr::new(10, self.octet(), 64, 0), 18)
    }

    pub fn services(self) -> Cidr {
        Cidr(Ipv4Addr::new(10, self.octet(), 128, 0), 17)
    }

    /// The Service `kubernetes`, by convention the first of the range.
    pub fn kubernetes_service(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.octet(), 128, 1)
    }

    pub fn dns_service(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.octet(), 128, 10)
    }

    pub fn whole(self) -> Cidr {
        Cidr(Ipv4Addr::new(10, self.octet(), 0, 0), 16)
    }

    fn octet(self) -> u8 {
        match self {
            // Services get addresses even where nothing can reach them; Kubernetes' usual range says "not routed".
            Self::Loopback => 96,
            Self::Bridge(octet) => octet,
        }
    }

    /// True if a route or address the host already has lies in this network or around it.
    pub fn overlaps(self, other: Cidr) -> bool {
        let whole = self.whole();
        let bits = whole.1.min(other.1);
        bits > 0 && (u32::from(whole.0) >> (32 - bits)) == (u32::from(other.0) >> (32 - bits))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("loopback"),
            Self::Bridge(_) => self.whole().fmt(f),
        }
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl TryFrom<String> for Network {
    type Error = BadNetwork;

    fn try_from(text: String) -> Result<Self, BadNetwork> {
        text.parse()
    }
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        if text == "loopback" {
            return Ok(Self::Loopback);
        }
        let cidr: Cidr = text.parse().map_err(|()| BadNetwork(text.into()))?;
        match (cidr.0.octets(), cidr.1) {
            ([10, octet, 0, 0], 16) => Ok(Self::Bridge(octet)),
            _ => Err(BadNetwork(text.into())),
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network for a local cloud: give a whole 10.x.0.0/16, such as 10.231.0.0/16")]
pub struct BadNetwork(String);

/// Nodes are counted from 1 and named `n1`, `n2`, …
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

    /// A bare address counts as a range of one.
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
    fn a_network_reads_back_as_it_was_written() {
        for network in [Network::Loopback, Network::Bridge(231)] {
            assert_eq!(network.to_string().parse(), Ok(network));
        }
    }

    #[test]
    fn only_a_whole_sixteen_of_ten_is_a_network() {
        for bad in ["10.231.0.0/24", "192.168.0.0/16", "10.1.2.0/16", "10.231.0.0", "fd00::/16", "", "10.999.0.0/16"] {
            assert_eq!(bad.parse::<Network>(), Err(BadNetwork(bad.into())), "{bad}");
        }
    }

    #[test]
    fn ranges_of_one_cloud_do_not_meet() {
        let network = Network::Bridge(231);
        let pods: Vec<_> = NodeIndex::all(MAX_NODES).map(|node| network.pods_of(node)).collect();
        for (i, range) in pods.iter().enumerate() {
            assert!(range.0.octets()[2] < 128, "pods reach into Services");
            assert!(range.0.octets()[2] >= network.pods().0.octets()[2]);
            assert!(!pods[..i].contains(range));
        }
        assert_eq!(network.node(NodeIndex(1)).to_string(), "10.231.0.11");
    }

    #[test]
    fn overlap_is_seen_from_both_sides() {
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
