//! The result of comparing two directory trees, which the agent writes as the termination message of its container.

use serde::{Deserialize, Serialize};

/// The number of paths that differ, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeDiff {
    pub added: u64,
    pub removed: u64,
    pub modified: u64,
    /// Each after `A`, `D` or `M` and a space. Control characters and bytes that are not UTF-8 are escaped.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Whether there are more paths than `paths` contains.
    #[serde(default)]
    pub truncated: bool,
}

impl TreeDiff {
    /// The kubelet truncates longer termination messages.
    pub const MAX_BYTES: usize = 4096;
}
