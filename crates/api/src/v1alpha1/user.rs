//! `DevServerUser`: a user and their permissions.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Priority, Quota, Usage, condition};
use crate::name::{FlavorName, LABEL, TeamName, UserName};
use crate::rule;
use crate::ssh_key::PublicKey;
use crate::text::Text;

/// DevServerUserSpec is the desired state of a DevServerUser.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "odc.dev",
    version = "v1alpha1",
    kind = "DevServerUser",
    doc = "DevServerUser is a user of ODC. The operator creates the namespace dev-<name> for each user and grants \
           the permissions to run servers in it. When a user is deleted, the permissions and servers are deleted, \
           and the namespace when it contains no claims; volumes are never deleted.",
    status = "DevServerUserStatus",
    derive = "PartialEq",
    shortname = "dsu",
    category = "odc",
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role", description = "Role of the user."),
    printcolumn(
        name = "Namespace", type_ = "string", json_path = ".status.namespace",
        description = "Namespace of the user."
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Display", type_ = "string", json_path = ".spec.displayName", priority = 1),
    printcolumn(name = "GitHub", type_ = "string", json_path = ".spec.github", priority = 1),
    validation = rule::name(
        LABEL,
        UserName::MAX_LENGTH,
        "the name of a user must be a DNS label, because the namespace is dev-<name>: at most 59 lower case letters, \
         digits and '-', starting and ending with a letter or digit",
    ),
)]
#[serde(rename_all = "camelCase")]
pub struct DevServerUserSpec {
    /// Name for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text<128>>,

    /// Identities of the user at login providers. Reserved; not implemented yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["issuer".into(), "subject".into()]))]
    pub identities: Vec<Identity>,

    /// SSH public keys that can log in to all servers of the user, each as the line of an ed25519 .pub file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub keys: Vec<PublicKey>,

    /// Login name of the user at GitHub. Reserved; not implemented yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 39), regex(pattern = "^[A-Za-z0-9](-?[A-Za-z0-9])*$"))]
    pub github: Option<String>,

    /// Quota of all servers of the user.
    #[serde(default)]
    pub quota: Quota,

    /// Weight of the user in fair sharing, relative to other users of the same team or, without a team, to other users
    /// without a team.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: u32,

    /// Highest priority that the user can request: Low, Normal or High. Defaults to the ceiling of the team, or Normal
    /// without a team. In a team the lower of both ceilings applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_ceiling: Option<Priority>,

    /// Defaults for the servers of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Defaults>,

    /// Role of the user. User can run servers in their own namespace. Auditor removes the user's access to their own
    /// namespace; its read-only role is not implemented yet. Admin equals User.
    #[serde(default)]
    pub role: Role,
}

fn one() -> u32 {
    1
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// URL of the login provider, such as https://login.example.org.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https://[^\s]+$"))]
    pub issuer: String,

    /// Subject of the user at the provider.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[^\s]+$"))]
    pub subject: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defaults {
    /// Flavor of servers that do not set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<FlavorName>,

    /// Image of servers that do not set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$"))]
    pub image: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Role {
    #[default]
    User,
    Admin,
    Auditor,
}

/// DevServerUserStatus is the observed state of a DevServerUser.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevServerUserStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Conditions of the user: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<condition::Condition>,

    /// Namespace of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Text<63>>,

    /// Teams that list the user as member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub teams: Vec<TeamName>,

    /// Decayed usage of the user, for fair sharing. Written by the scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}
