//! Labels that ODC sets or selects by, and the schema of label maps.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The `DevServer` an object belongs to.
pub const SERVER: &str = "odc.dev/server";
/// The `DevServerUser` an object belongs to.
pub const OWNER: &str = "odc.dev/owner";
/// The `Team` whose quota an object uses.
pub const TEAM: &str = "odc.dev/team";
/// The `DevServerFlavor` an object runs on.
pub const FLAVOR: &str = "odc.dev/flavor";

/// The name of the `Disk` that a claim or snapshot belongs to.
pub const DISK: &str = "odc.dev/disk";
/// The uid of the `Disk` that a claim or snapshot belongs to. There is no owner reference, so that the data is not
/// deleted with the disk.
pub const DISK_UID: &str = "odc.dev/disk-uid";
/// The uid of the `DiskOperation` that a temporary pod, claim, Secret or snapshot was created for. It is deleted when the
/// operation has ended.
pub const OPERATION_UID: &str = "odc.dev/operation-uid";

/// The recommended labels of Kubernetes, on all created objects. They are not used in selectors.
pub const NAME: &str = "app.kubernetes.io/name";
pub const INSTANCE: &str = "app.kubernetes.io/instance";
pub const COMPONENT: &str = "app.kubernetes.io/component";
pub const PART_OF: &str = "app.kubernetes.io/part-of";
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The operator as [`MANAGED_BY`], field manager, user agent and service account.
pub const OPERATOR: &str = "odc-operator";

/// The worker of the service layer as field manager and user agent.
pub const WORKER: &str = "odc-worker";

/// The finalizer of a `Disk` with data: the operator deletes the data first, if the deletion is confirmed.
pub const DISK_FINALIZER: &str = "odc.dev/disk-data";

/// A bounded label map. Keys have no pattern, because the cost of matching map keys in CEL is unbounded; an invalid key
/// only means that no node matches.
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
