//! How to get into a server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::text::Text;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerAccess {
    /// The host to connect to with SSH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Text<253>>,

    /// The SSH port on that host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,

    /// The server's own SSH public key, the same for its whole life. Check it when you connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<Text<512>>,

    /// Where Jupyter Lab is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jupyter_url: Option<Text<2048>>,

    /// Links that open the server in an editor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Box<Links>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Links {
    /// Opens it in VS Code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vscode: Option<Text<2048>>,

    /// Opens it in Cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Text<2048>>,

    /// Opens it in JetBrains Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jetbrains: Option<Text<2048>>,
}
