//! A flavor out of service.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::name::UserName;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// Why, and until when, for people who wanted the flavor.
    #[schemars(length(min = 1, max = 512))]
    pub message: String,

    /// Users who may start servers nevertheless, to try whether it works again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub allow: Vec<UserName>,
}
