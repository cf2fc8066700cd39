//! Environment variables of a server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::name::ObjectName;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.value) != has(self.secret)")
    .message("give each variable either a value or a secret, and not both"))]
pub struct EnvVar {
    /// The variable's name: letters, digits and '_', not beginning with a digit. NVIDIA_VISIBLE_DEVICES and names that
    /// begin with ODC_ are the operator's.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(
        validation = Rule::new("self.matches('^[A-Za-z_][A-Za-z0-9_]*$')")
            .message("an environment variable's name has letters, digits and '_', and does not begin with a digit"),
        validation = Rule::new("self != 'NVIDIA_VISIBLE_DEVICES'")
            .message("NVIDIA_VISIBLE_DEVICES is set by the cluster; ask for devices with spec.count")
            .reason(Reason::FieldValueForbidden),
        validation = Rule::new("!self.startsWith('ODC_')")
            .message("names that begin with ODC_ are set by the operator; choose another name")
            .reason(Reason::FieldValueForbidden),
    )]
    pub name: String,

    /// The variable's value. Everyone who may read the DevServer can read it, so put passwords into a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub value: Option<String>,

    /// Where the value lies in a Secret of your namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// The Secret's name.
    pub name: ObjectName,

    /// The key in its data.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}
