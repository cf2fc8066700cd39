//! Labels we set and select by, and the schema of maps of labels.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The `DevServer` an object belongs to.
pub const SERVER: &str = "odc.dev/server";
/// The `DevServerUser` an object belongs to.
pub const OWNER: &str = "odc.dev/owner";
/// The `Team` whose quota an object uses.
pub const TEAM: &str = "odc.dev/team";
/// The `DevServerFlavor` an object runs on.
pub const FLAVOR: &str = "odc.dev/flavor";

/// Kubernetes' common labels, on everything we create. None of them is part of a selector.
pub const NAME: &str = "app.kubernetes.io/name";
pub const INSTANCE: &str = "app.kubernetes.io/instance";
pub const VERSION: &str = "app.kubernetes.io/version";
pub const COMPONENT: &str = "app.kubernetes.io/component";
pub const PART_OF: &str = "app.kubernetes.io/part-of";
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// A bounded map of labels. Keys have no pattern: the cost of matching a map's keys cannot be bounded in CEL, and a key
/// no node can have only means that no node fits.
pub(crate) fn map_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        },
    })
}
