//! The quota of a user or team.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quota {
    /// Maximum number of servers that have not ended, including hibernated ones. Unlimited if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub servers: Option<u32>,

    /// Maximum number of devices (GPUs) of all running servers. Unlimited if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub devices: Option<u32>,

    /// Maximum number of devices per flavor of all running servers, by flavor name. Flavors that are not listed have no
    /// limit of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "by_flavor_schema")]
    pub flavors: BTreeMap<String, u32>,

    /// Maximum CPU requests of all running servers, such as 64. Unlimited if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,

    /// Maximum memory requests of all running servers, such as 512Gi. Unlimited if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,

    /// Maximum storage requests of all claims of a user, such as 2Ti. Unlimited if unset. Reserved in the quota of a
    /// team; not implemented yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Quantity>,
}

/// A bounded map. Keys have no pattern, as in label maps; a key that is not the name of a flavor has no effect.
fn by_flavor_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1_000_000},
    })
}
