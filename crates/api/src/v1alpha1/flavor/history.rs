//! The history of a flavor, as histograms of fixed size.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlavorHistory {
    /// Histograms of the actual runtime as a fraction of the lifetime, one for each class of lifetimes, the shortest
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub runtimes: Vec<RuntimeHistogram>,

    /// Accuracy of start estimates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_calibration: Option<EtaCalibration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeHistogram {
    /// Number of runs per fraction of the lifetime.
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub counts: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtaCalibration {
    /// Number of estimates whose server has started.
    pub estimates: u32,

    /// Number of starts before the p50 estimate.
    pub within_p50: u32,

    /// Number of starts before the p90 estimate.
    pub within_p90: u32,

    /// Histogram of the actual wait relative to the expected wait, the shortest first.
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub waits: Vec<u32>,

    /// Quantiles of the histogram that are used for p50 and p90, in thousandths. They are adjusted to the outcomes.
    #[schemars(length(max = 2))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub levels: Vec<u32>,
}
