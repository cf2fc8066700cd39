//! Access to a server.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{PortName, UserName};
use crate::port;
use crate::ssh_key::PublicKey;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// SSH public keys that can log in, in addition to those of the owner and of the users listed here, each as the
    /// line of an ed25519 .pub file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub keys: Vec<PublicKey>,

    /// Names of other DevServerUsers that can connect. In the server they have the permissions of the owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub users: Vec<UserName>,

    /// Runs Jupyter Lab, in a gang on the first node.
    #[serde(default)]
    pub jupyter: bool,

    /// Web applications to expose. Reserved; not implemented yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.all(port, self.exists_one(other, other.port == port.port))")
            .message("each port can be listed only once"),
    )]
    pub ports: Vec<Port>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Name of the port. It becomes the first part of the host name.
    pub name: PortName,

    /// TCP port of the application.
    #[schemars(range(min = 1, max = 65535))]
    #[x_kube(validation = Rule::new(format!("self != {}", port::AGENT))
        .message("port 2222 is reserved for SSH; use another port"))]
    pub port: u16,

    /// Who can open the port: Private (the owner and access.users), Team (also the members of the server's team) or
    /// Public (everyone).
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
