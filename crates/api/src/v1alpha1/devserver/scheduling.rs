//! Scheduling options of a server.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{label, rule};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rule::immutable_map("nodeLabels"))]
pub struct Scheduling {
    /// Priority: Low, Normal or High. The ceilings of the user and the team apply. Defaults to the default of the team,
    /// or Normal without a team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,

    /// Allows the server to be preempted to reclaim borrowed quota or by a higher priority. It is stopped after a
    /// notice period and keeps its queue position. Only preemptible servers can borrow quota.
    #[serde(default)]
    pub preemptible: bool,

    /// Labels that all nodes of the server must have, in addition to the node selector of the flavor. Immutable.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "label::map_schema")]
    #[x_kube(validation = rule::label_keys())]
    pub node_labels: BTreeMap<String, String>,

    /// Earliest start time. If the booking is confirmed, nodes are reserved from this time on.
    // The API server accepts a list for a date-time; only a rule that uses the value as a time rejects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new(
        "self > timestamp('2020-01-01T00:00:00Z') && self < timestamp('2200-01-01T00:00:00Z')"
    ).message("notBefore must be between 2020 and 2200, such as 2027-01-31T09:00:00Z"))]
    pub not_before: Option<Time>,
}

/// Priority of a server, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
}
