//! Access information of a server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::text::Text;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerAccess {
    /// SSH host name. Reserved; not implemented yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Text<253>>,

    /// SSH port. Reserved; not implemented yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,

    /// SSH host key of the server. It does not change during the lifetime of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<Text<512>>,

    /// URL of Jupyter Lab. Reserved; not implemented yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jupyter_url: Option<Text<2048>>,

    /// Links that open the server in an editor. Reserved; not implemented yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Box<Links>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Links {
    /// Link for VS Code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vscode: Option<Text<2048>>,

    /// Link for Cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Text<2048>>,

    /// Link for JetBrains Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jetbrains: Option<Text<2048>>,
}
