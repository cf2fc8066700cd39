//! Annotations that ODC sets.

/// The `status.admission.run` for which a pod was created.
pub const RUN: &str = "odc.dev/run";

/// Prevent the Cluster Autoscaler and Karpenter from removing a server's node.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// The uid of the `DevServer` for which a pod was created, in case its owner reference is removed.
pub const SERVER_UID: &str = "odc.dev/server-uid";

/// The server's public SSH host key, so that it can be read from the pods.
pub const HOST_KEY: &str = "odc.dev/host-key";
