//! Environment variables of a server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::name::ObjectName;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.value) != has(self.secret)")
    .message("exactly one of value and secret must be set"))]
pub struct EnvVar {
    /// Name of the variable: letters, digits and '_', not starting with a digit. NVIDIA_VISIBLE_DEVICES and names
    /// starting with ODC_ are reserved.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(
        validation = Rule::new("self.matches('^[A-Za-z_][A-Za-z0-9_]*$')")
            .message("the name of a variable must consist of letters, digits and '_' and must not start with a digit"),
        validation = Rule::new("self != 'NVIDIA_VISIBLE_DEVICES'")
            .message("NVIDIA_VISIBLE_DEVICES is reserved; request devices with spec.count")
            .reason(Reason::FieldValueForbidden),
        validation = Rule::new("!self.startsWith('ODC_')")
            .message("names starting with ODC_ are reserved; use another name")
            .reason(Reason::FieldValueForbidden),
    )]
    pub name: String,

    /// Value of the variable. It is readable by everyone who can read the DevServer; use a Secret for credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub value: Option<String>,

    /// Reference to a key of a Secret in the namespace of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// Name of the Secret.
    pub name: ObjectName,

    /// Key in the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}
