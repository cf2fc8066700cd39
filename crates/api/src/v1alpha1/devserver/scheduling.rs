//! How the queue treats a server.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{label, rule};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rule::fixed_map("nodeLabels"))]
pub struct Scheduling {
    /// How urgent the request is: Low, Normal or High. The team may set a ceiling. Leave it out to get the team's
    /// default, or Normal without a team. It can change at any time and counts while the server waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,

    /// Let the server be stopped in order, with notice and its place in the queue kept, when someone with a better
    /// right needs its devices. Such a server may use idle quota of others.
    #[serde(default)]
    pub preemptible: bool,

    /// Labels every node of the server must have, besides what the flavor asks for. They are fixed at creation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "label::map_schema")]
    #[x_kube(validation = rule::label_keys())]
    pub node_labels: BTreeMap<String, String>,

    /// Do not start before this time: a booking. The queue keeps devices free for it from then on.
    // The API server takes a list for a time; only a rule that reads it as a time refuses that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new(
        "self > timestamp('2020-01-01T00:00:00Z') && self < timestamp('2200-01-01T00:00:00Z')"
    ).message("give a time between 2020 and 2200, like 2027-01-31T09:00:00Z"))]
    pub not_before: Option<Time>,
}

/// How urgent a request is; a later one is more urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
}
