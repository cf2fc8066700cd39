//! Annotations we set.

/// The `status.admission.run` a pod was made for.
pub const RUN: &str = "odc.dev/run";

/// Ask the two usual node autoscalers to leave a server's node alone.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// The uid of the `DevServer` a pod was made for, should somebody take its owner reference away.
pub const SERVER_UID: &str = "odc.dev/server-uid";

/// The server's public SSH host key, so that it is known from the pods alone.
pub const HOST_KEY: &str = "odc.dev/host-key";
