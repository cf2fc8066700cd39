//! Who gets into a server, and by which doors.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{PortName, UserName};
use crate::port;
use crate::ssh_key::PublicKey;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// SSH public keys that may log in besides those of the owner and of the users named here. Each is the one line of
    /// an ed25519 .pub file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub keys: Vec<PublicKey>,

    /// Other users who may connect, by their DevServerUser's name. They act as the owner inside the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub users: Vec<UserName>,

    /// Run Jupyter Lab, on the first node of a gang.
    #[serde(default)]
    pub jupyter: bool,

    /// Web applications in the server that the gateway makes reachable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.all(port, self.exists_one(other, other.port == port.port))")
            .message("two entries have the same port; give each port one name"),
    )]
    pub ports: Vec<Port>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// What to call it; it is the first part of the address the gateway serves it under.
    pub name: PortName,

    /// The TCP port the application listens on.
    #[schemars(range(min = 1, max = 65535))]
    #[x_kube(validation = Rule::new(format!("self != {}", port::AGENT))
        .message("port 2222 is the server's own SSH door; let the application listen elsewhere"))]
    pub port: u16,

    /// Who may open it. Private is for the owner and the users named in access. Team adds the members of the server's
    /// team. Public is for everyone who can reach the gateway.
    #[serde(default)]
    pub share: Share,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Share {
    #[default]
    Private,
    Team,
    Public,
}
