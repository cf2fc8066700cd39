//! The devices of one node and their health, as values.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::args::is_subdomain;
use crate::proto;

/// The kubelet's limit on a device id.
const LONGEST_ID: usize = 63;
const LONGEST_NODE: usize = LONGEST_ID - "GPU-".len() - "-00".len();

/// The devices that are ill; all others are healthy.
pub type Ill = BTreeSet<DeviceId>;

/// `GPU-<node>-<index>`. The index has two digits, so the order of ids is the order of indexes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId(String);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for DeviceId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// All devices of the node, by index.
#[derive(Debug)]
pub struct Devices(Vec<DeviceId>);

impl Devices {
    pub fn new(node: &Node, count: Count) -> Self {
        Self((0..count.0).map(|index| DeviceId(format!("GPU-{}-{index:02}", node.0))).collect())
    }

    pub fn ids(&self) -> &[DeviceId] {
        &self.0
    }

    pub fn find(&self, id: &str) -> Option<&DeviceId> {
        self.0.iter().find(|device| device.0 == id)
    }

    /// The devices among `names`. Other names are no concern of ours: nodes may share one
    /// directory.
    pub fn named(&self, names: impl IntoIterator<Item = String>) -> Ill {
        names.into_iter().filter_map(|name| self.find(&name).cloned()).collect()
    }

    /// The full list as the kubelet wants it at every change.
    pub fn report(&self, ill: &Ill) -> proto::ListAndWatchResponse {
        let device = |id: &DeviceId| proto::Device {
            id: id.to_string(),
            health: if ill.contains(id) { "Unhealthy" } else { "Healthy" }.to_owned(),
        };
        proto::ListAndWatchResponse { devices: self.0.iter().map(device).collect() }
    }
}

/// How many devices a node has: at least one, and no more than two digits can count from zero.
#[derive(Debug, Clone, Copy)]
pub struct Count(u8);

#[derive(Debug, thiserror::Error)]
#[error("give a number of devices, 1 to 100")]
pub struct NotACount;

impl FromStr for Count {
    type Err = NotACount;

    fn from_str(text: &str) -> Result<Self, NotACount> {
        text.parse().ok().filter(|count| (1..=100).contains(count)).map(Self).ok_or(NotACount)
    }
}

/// A node's name, short enough to be part of a device id.
#[derive(Debug, Clone)]
pub struct Node(String);

#[derive(Debug, thiserror::Error)]
pub enum NotANode {
    #[error(
        "a node name has small letters, digits, '-' and '.' only; \
         give the name the kubelet registered"
    )]
    Characters,
    #[error("{length} characters do not fit into a device id; use a node name of at most {LONGEST_NODE}")]
    TooLong { length: usize },
}

impl FromStr for Node {
    type Err = NotANode;

    fn from_str(text: &str) -> Result<Self, NotANode> {
        if !is_subdomain(text) {
            return Err(NotANode::Characters);
        }
        if text.len() > LONGEST_NODE {
            return Err(NotANode::TooLong { length: text.len() });
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
impl Devices {
    pub(crate) fn test(node: &str, count: u8) -> Self {
        Self::new(&Node(node.to_owned()), Count(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_node_and_index() {
        let devices = Devices::test("n1", 12);
        assert_eq!(devices.ids()[0].to_string(), "GPU-n1-00");
        assert_eq!(devices.ids()[11].to_string(), "GPU-n1-11");
        assert!(devices.ids().is_sorted());
    }

    #[test]
    fn longest_node_name_gives_the_longest_id() {
        let node: Node = "n".repeat(LONGEST_NODE).parse().unwrap();
        let devices = Devices::new(&node, Count(100));
        assert!(devices.ids().iter().all(|id| id.0.len() == LONGEST_ID));
        assert!(matches!("n".repeat(LONGEST_NODE + 1).parse::<Node>(), Err(NotANode::TooLong { length: 57 })));
    }

    #[test]
    fn node_names_are_dns_names() {
        for bad in ["", "N1", "n_1", "n1-", ".n1", "n1/x", "../n1"] {
            assert!(bad.parse::<Node>().is_err(), "{bad}");
        }
        assert!("ip-10-0-0-1.local".parse::<Node>().is_ok());
    }

    #[test]
    fn report_has_every_device_with_its_health() {
        let devices = Devices::test("n1", 3);
        let ill = devices.named(["GPU-n1-01", "GPU-n2-00", "README"].map(String::from));
        let health: Vec<_> =
            devices.report(&ill).devices.into_iter().map(|device| (device.id, device.health)).collect();
        let expect = [("GPU-n1-00", "Healthy"), ("GPU-n1-01", "Unhealthy"), ("GPU-n1-02", "Healthy")];
        assert_eq!(health, expect.map(|(id, health)| (id.to_owned(), health.to_owned())));
    }
}
