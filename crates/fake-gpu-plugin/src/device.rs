//! The devices of a node and their health.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::args::is_subdomain;
use crate::proto;

/// Limit of the kubelet.
const MAX_ID_LEN: usize = 63;
const MAX_NODE_LEN: usize = MAX_ID_LEN - "GPU-".len() - "-00".len();

/// The unhealthy devices; all others are healthy.
pub type UnhealthyDevices = BTreeSet<DeviceId>;

/// `GPU-<node>-<index>`. The index has two digits, so sorting ids sorts indexes.
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

/// All devices of the node, ordered by index.
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

    /// Returns the devices with these names. Unknown names are ignored, because nodes may share one
    /// directory.
    pub fn select(&self, names: impl IntoIterator<Item = String>) -> UnhealthyDevices {
        names.into_iter().filter_map(|name| self.find(&name).cloned()).collect()
    }

    /// Returns the complete list, which the kubelet expects at every change.
    pub fn list_response(&self, unhealthy: &UnhealthyDevices) -> proto::ListAndWatchResponse {
        let device = |id: &DeviceId| proto::Device {
            id: id.to_string(),
            health: if unhealthy.contains(id) { "Unhealthy" } else { "Healthy" }.to_owned(),
        };
        proto::ListAndWatchResponse { devices: self.0.iter().map(device).collect() }
    }
}

/// Number of devices of a node, limited by the two digits of the index.
#[derive(Debug, Clone, Copy)]
pub struct Count(u8);

#[derive(Debug, thiserror::Error)]
#[error("expected a number of devices from 1 to 100")]
pub struct ParseCountError;

impl FromStr for Count {
    type Err = ParseCountError;

    fn from_str(text: &str) -> Result<Self, ParseCountError> {
        text.parse().ok().filter(|count| (1..=100).contains(count)).map(Self).ok_or(ParseCountError)
    }
}

/// Name of a node, short enough for device ids.
#[derive(Debug, Clone)]
pub struct Node(String);

#[derive(Debug, thiserror::Error)]
pub enum ParseNodeError {
    #[error("a node name may contain only lowercase letters, digits, '-' and '.'")]
    Characters,
    #[error("a node name may have at most {MAX_NODE_LEN} characters to fit into device IDs; this one has {length}")]
    TooLong { length: usize },
}

impl FromStr for Node {
    type Err = ParseNodeError;

    fn from_str(text: &str) -> Result<Self, ParseNodeError> {
        if !is_subdomain(text) {
            return Err(ParseNodeError::Characters);
        }
        if text.len() > MAX_NODE_LEN {
            return Err(ParseNodeError::TooLong { length: text.len() });
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
    fn ids_contain_node_and_index() {
        let devices = Devices::test("n1", 12);
        assert_eq!(devices.ids()[0].to_string(), "GPU-n1-00");
        assert_eq!(devices.ids()[11].to_string(), "GPU-n1-11");
        assert!(devices.ids().is_sorted());
    }

    #[test]
    fn longest_node_name_yields_the_longest_id() {
        let node: Node = "n".repeat(MAX_NODE_LEN).parse().unwrap();
        let devices = Devices::new(&node, Count(100));
        assert!(devices.ids().iter().all(|id| id.0.len() == MAX_ID_LEN));
        assert!(matches!("n".repeat(MAX_NODE_LEN + 1).parse::<Node>(), Err(ParseNodeError::TooLong { length: 57 })));
    }

    #[test]
    fn node_names_are_dns_names() {
        for bad in ["", "N1", "n_1", "n1-", ".n1", "n1/x", "../n1"] {
            assert!(bad.parse::<Node>().is_err(), "{bad}");
        }
        assert!("ip-10-0-0-1.local".parse::<Node>().is_ok());
    }

    #[test]
    fn list_response_has_every_device_with_its_health() {
        let devices = Devices::test("n1", 3);
        let unhealthy = devices.select(["GPU-n1-01", "GPU-n2-00", "README"].map(String::from));
        let health: Vec<_> =
            devices.list_response(&unhealthy).devices.into_iter().map(|device| (device.id, device.health)).collect();
        let expect = [("GPU-n1-00", "Healthy"), ("GPU-n1-01", "Unhealthy"), ("GPU-n1-02", "Healthy")];
        assert_eq!(health, expect.map(|(id, health)| (id.to_owned(), health.to_owned())));
    }
}
