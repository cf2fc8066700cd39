//! The maintenance state of a flavor.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::name::UserName;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// Message for users, such as the reason and the expected end.
    #[schemars(length(min = 1, max = 512))]
    pub message: String,

    /// Users who can start servers nevertheless, for example to test the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub allow: Vec<UserName>,
}
