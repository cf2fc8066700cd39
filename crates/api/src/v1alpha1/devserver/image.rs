//! Which image a server runs.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::name::ObjectName;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.ref) && has(self.build))")
    .message("an image comes from a ref or from a build, not both: remove one of them"))]
pub struct Image {
    /// The image to pull, such as registry.example.org/team/image:tag. With a digest it stays what it is.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$"))]
    pub reference: Option<String>,

    /// The ImageBuild in your namespace whose result to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<ObjectName>,

    /// Run the image's own entrypoint and command beside the server's agent. By default they are not run.
    #[serde(default)]
    pub keep_entrypoint: bool,

    /// The Secret in your namespace with the login for the image's registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<ObjectName>,
}
