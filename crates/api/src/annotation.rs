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

/// The name of a `Disk`, set on the disk itself to confirm that it is deleted with all its data.
pub const CONFIRM_DELETE: &str = "odc.dev/confirm-delete";

/// On a `VolumeSnapshot`: the uid of the claim that it was taken of.
pub const CLAIM_UID: &str = "odc.dev/claim-uid";

/// On a `VolumeSnapshot`: its position among the restore points of its disk. It orders them without a clock.
pub const POINT_SEQUENCE: &str = "odc.dev/point-sequence";

/// On a `VolumeSnapshot`: why it was taken.
pub const POINT_REASON: &str = "odc.dev/point-reason";

/// On a `VolumeSnapshot`: whether a pod could write to the claim at the time.
pub const POINT_CONSISTENCY: &str = "odc.dev/point-consistency";

/// On a `VolumeSnapshot`: the note of the operation that took it.
pub const POINT_NOTE: &str = "odc.dev/point-note";

/// On a `VolumeSnapshot`, and on a claim that is created from a snapshot or from another claim: the node selector of the
/// source volume, as JSON. A copy of the data can be used on the same nodes.
pub const VOLUME_AFFINITY: &str = "odc.dev/volume-affinity";

/// On a `VolumeSnapshot`: the name of the `StorageClass` of the claim that it was taken of.
pub const STORAGE_CLASS: &str = "odc.dev/storage-class";

/// The uid of the `DiskOperation` for which an object was created.
pub const OPERATION_UID: &str = "odc.dev/operation-uid";

/// On a `VolumeSnapshot`: the id of the listing of its content that the agent reported before it was taken.
pub const LISTING_ID: &str = "odc.dev/listing-id";

/// On a `VolumeSnapshot`: the uid of the `ConfigMap` with the listing of its content, and what the listing adds up to, as
/// JSON. The `ConfigMap` has the same name.
pub const LISTING: &str = "odc.dev/listing";

/// The user or service account that requested an object through the HTTP API, or changed it last.
pub const REQUESTED_BY: &str = "odc.dev/requested-by";

/// The id of the last request of the HTTP API that created or changed an object.
pub const REQUEST_ID: &str = "odc.dev/request-id";

/// The ids of the last requests of the HTTP API that created or changed an object, newest first, separated by commas. The
/// worker recognizes a message that is delivered again by them.
pub const EXECUTED_REQUESTS: &str = "odc.dev/executed-requests";
