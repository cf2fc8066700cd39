//! Custom resources as the API returns them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1alpha1::{
    DevServerFlavorSpec, DevServerFlavorStatus, DevServerSpec, DevServerStatus, DevServerUserSpec, DevServerUserStatus,
    DiskOperationSpec, DiskOperationStatus, DiskSpec, DiskStatus, TeamSpec, TeamStatus,
};

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Value of the parameter `cursor` for the next page. Unset on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

macro_rules! resource {
    ($(#[$doc:meta])* $name:ident, $schema:literal, $spec:ty, $status:ty) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        #[schemars(rename = $schema)]
        pub struct $name {
            pub name: String,
            /// User who owns the object. Unset for objects of the cluster.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub user: Option<String>,
            pub uid: String,
            pub created_at: Option<Time>,
            /// Time at which deletion was requested.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub deletion_requested_at: Option<Time>,
            /// Time at which the API knew this state to be current.
            pub observed_at: Time,
            /// Version of the object. It is also the ETag.
            pub resource_version: String,
            /// Generation of the spec.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub generation: Option<i64>,
            pub spec: $spec,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<$status>,
        }
    };
}

resource!(
    /// A development server.
    DevServerResource, "DevServer", DevServerSpec, DevServerStatus
);
resource!(
    /// A persistent volume with restore points.
    DiskResource, "Disk", DiskSpec, DiskStatus
);
resource!(
    /// An operation on a disk.
    DiskOperationResource, "DiskOperation", DiskOperationSpec, DiskOperationStatus
);
resource!(
    /// A kind of server that can be requested.
    FlavorResource, "Flavor", DevServerFlavorSpec, DevServerFlavorStatus
);
resource!(
    /// A user.
    UserResource, "User", DevServerUserSpec, DevServerUserStatus
);
resource!(
    /// A team.
    TeamResource, "Team", TeamSpec, TeamStatus
);
