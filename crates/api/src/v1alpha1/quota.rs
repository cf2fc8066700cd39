//! Limits on what a user or team may hold at once.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quota {
    /// How many servers may exist that have not ended, sleeping ones included. Leave it out for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub servers: Option<u32>,

    /// How many devices (GPUs) running servers may hold together. Leave it out for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub devices: Option<u32>,

    /// How many devices of one flavor running servers may hold together, by the flavor's name. Flavors that are left out
    /// have no limit of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "by_flavor_schema")]
    pub flavors: BTreeMap<String, u32>,

    /// How much CPU running servers may request together, such as 64. Leave it out for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,

    /// How much memory running servers may request together, such as 512Gi. Leave it out for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,

    /// How much disk space may be claimed together, such as 2Ti. Leave it out for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Quantity>,
}

/// A bounded map. Keys have no pattern, as those of label maps; one that is no flavor's name limits nothing.
fn by_flavor_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1_000_000},
    })
}
