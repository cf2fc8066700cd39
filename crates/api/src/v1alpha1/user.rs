//! `DevServerUser`: a person, and what they may do.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Priority, Quota, Usage, condition};
use crate::name::{FlavorName, LABEL, TeamName, UserName};
use crate::rule;
use crate::ssh_key::PublicKey;
use crate::text::Text;

/// What an administrator decided about a person.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "odc.dev",
    version = "v1alpha1",
    kind = "DevServerUser",
    doc = "A DevServerUser is a person. The operator gives each a namespace dev-<name> with the rights to run \
           servers in it. Deleting a user takes the rights and the servers away; data stays until somebody deletes it.",
    status = "DevServerUserStatus",
    derive = "PartialEq",
    shortname = "dsu",
    category = "odc",
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role", description = "What the user may do."),
    printcolumn(
        name = "Namespace", type_ = "string", json_path = ".status.namespace",
        description = "Where the user's servers are."
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Display", type_ = "string", json_path = ".spec.displayName", priority = 1),
    printcolumn(name = "GitHub", type_ = "string", json_path = ".spec.github", priority = 1),
    validation = rule::name(
        LABEL,
        UserName::LONGEST,
        "a user's name becomes the namespace dev-<name>: use at most 59 small letters, digits and '-', \
         and neither begin nor end with '-'",
    ),
)]
#[serde(rename_all = "camelCase")]
pub struct DevServerUserSpec {
    /// What to show to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text<128>>,

    /// Who the user is to login providers. Somebody who proves one of these is this user; e-mail addresses never count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["issuer".into(), "subject".into()]))]
    pub identities: Vec<Identity>,

    /// SSH public keys that may log in to all of the user's servers. Each is the one line of an ed25519 .pub file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub keys: Vec<PublicKey>,

    /// The user's login name at GitHub, whose public ed25519 keys are accepted too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 39), regex(pattern = "^[A-Za-z0-9](-?[A-Za-z0-9])*$"))]
    pub github: Option<String>,

    /// What the user's servers may hold together.
    #[serde(default)]
    pub quota: Quota,

    /// The user's part of the cluster relative to others of the same team, or to others without one, when there is not
    /// enough for all.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: u32,

    /// The most urgent the user's requests may be: Low, Normal or High. Leave it out for what the team allows, or Normal
    /// without a team. In a team the lower of both ceilings counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_ceiling: Option<Priority>,

    /// What a server gets that leaves it open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Defaults>,

    /// What the user may do. User runs servers of their own. Admin also manages everybody's. Auditor reads everything
    /// and changes nothing.
    #[serde(default)]
    pub role: Role,
}

fn one() -> u32 {
    1
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The login provider, by its address, such as https://login.example.org.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https://[^\s]+$"))]
    pub issuer: String,

    /// The user's unchanging id there.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[^\s]+$"))]
    pub subject: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defaults {
    /// The flavor of servers that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<FlavorName>,

    /// The image of servers that name none.
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

/// What the operator made for a person.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevServerUserStatus {
    /// The generation of the spec this status speaks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// What is true right now: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<condition::Condition>,

    /// The user's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Text<63>>,

    /// The teams the user is a member of, by what the teams say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub teams: Vec<TeamName>,

    /// What the user used lately, for their fair share. Only the scheduler writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}
