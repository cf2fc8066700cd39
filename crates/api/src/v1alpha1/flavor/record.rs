//! What the past says about a flavor, in two histograms of fixed size.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// How much of their reserved time servers used before they left, in percent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["upTo".into()]))]
    pub stays: Vec<Bucket>,

    /// How long servers really waited, in percent of what the queue had promised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["upTo".into()]))]
    pub promises: Vec<Bucket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bucket {
    /// The upper end of the bucket, in percent.
    #[schemars(range(min = 0, max = 100_000))]
    pub up_to: u32,

    /// How many fell into it and not into a smaller one.
    #[schemars(range(min = 0))]
    pub count: i64,
}
