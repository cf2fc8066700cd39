//! The image of a server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::name::ObjectName;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.ref) && has(self.build))")
    .message("image.ref and image.build are mutually exclusive"))]
pub struct Image {
    /// Image reference, such as registry.example.org/team/image:tag.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$"))]
    pub reference: Option<String>,

    /// Name of an ImageBuild in the namespace of the server. Reserved; not implemented yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<ObjectName>,

    /// Runs the entrypoint and command of the image in addition to the agent.
    #[serde(default)]
    pub keep_entrypoint: bool,

    /// Name of a Secret in the namespace of the server with the credentials for the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<ObjectName>,
}
