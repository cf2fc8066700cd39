//! What the past says about a flavor, in histograms of fixed size.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// How much of the time they had reserved servers stayed: a histogram for each class of times, the shortest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub stays: Vec<Stays>,

    /// What became of the starts that the queue promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promises: Option<KeptPromises>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stays {
    /// How many left within each part of the time, the first part first.
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub counts: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptPromises {
    /// How many were given and came true, or not.
    pub given: u32,

    /// Of those, how many promises of 50 % were kept.
    pub kept50: u32,

    /// Of those, how many promises of 90 % were kept.
    pub kept90: u32,

    /// How long servers really waited, relative to what was expected: a histogram, the shortest waits first.
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub waits: Vec<u32>,

    /// Where in it the two promises are read, in thousandths. They follow the outcomes.
    #[schemars(length(max = 2))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub levels: Vec<u32>,
}
