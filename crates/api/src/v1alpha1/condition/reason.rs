//! The reasons of conditions.

use crate::open_enum::string_enum;

string_enum! {
    /// The reason of a condition, for programs. Failures, the timeline and the queue use the same reasons.
    pub enum Reason {
        // Accepted
        /// The request is valid.
        Valid,
        /// The flavor does not exist; `kubectl get dsf` lists the flavors.
        FlavorNotFound,
        /// spec.flavor is not set and no flavor is the default.
        NoDefaultFlavor,
        /// More than one flavor is marked as default.
        MultipleDefaultFlavors,
        /// The flavor does not offer this device count.
        InvalidCount,
        /// The owner is not a member of the team.
        NotTeamMember,
        /// The priority is above the ceiling of the user or the team.
        PriorityTooHigh,
        /// The flavor is in maintenance and the owner is not exempt.
        Maintenance,
        /// The request needs a feature that is not supported.
        NotSupported,
        /// The namespace does not belong to a DevServerUser.
        NoOwner,
        /// The object does not match the current schema. It must be corrected or recreated.
        Invalid,

        // ImageReady
        /// No build is required. Whether the image can be pulled shows only at start.
        ImageAvailable,
        /// Reserved; not implemented yet.
        Building,
        /// Reserved; not implemented yet.
        BuildNotFound,
        /// Reserved; not implemented yet.
        BuildFailed,

        // DiskReady
        /// The claim is bound.
        Bound,
        /// The claim is bound when the first pod is scheduled.
        WaitingForFirstConsumer,
        /// The home is ephemeral.
        Ephemeral,
        /// The disk or claim does not exist.
        DiskNotFound,
        /// The disk is not bound yet.
        DiskPending,
        /// Another server uses the disk.
        DiskInUse,
        /// The volume behind the disk is lost or cannot be attached.
        DiskUnavailable,

        // Disks
        /// The claim of the disk is created when the first server uses it.
        NotProvisioned,
        /// The claim of the disk is not bound yet, or its volume is not protected yet.
        Provisioning,
        /// The disk is marked as deleted by spec.deleted.
        Deleted,
        /// The data of the disk is being deleted.
        Deleting,
        /// The source of the disk does not exist or cannot be used.
        SourceUnavailable,
        /// The disk is smaller than the restore point or claim it is created from.
        SizeTooSmall,
        /// The volume has the size of the disk.
        Resized,
        /// The volume is being expanded.
        Resizing,
        /// The storage class does not allow expansion.
        ExpansionUnsupported,
        /// Several claims belong to the disk, and status.claim does not name one of them.
        ClaimAmbiguous,
        /// A server holds the disk.
        Held,
        /// The server that held the disk has stopped, and its restore point is being taken.
        Releasing,
        /// No server holds the disk.
        Released,
        /// The server that holds the disk has ended or is deleted, but one of its pods still exists.
        HolderStuck,
        /// Restore points can be taken.
        Available,
        /// The cluster has no VolumeSnapshot API.
        SnapshotsUnsupported,
        /// The last restore point failed.
        SnapshotFailed,

        // Operations on disks
        /// Another operation on the same disk is running.
        OperationPending,
        /// The operation is running.
        OperationRunning,
        /// The operation has succeeded.
        Succeeded,
        /// The restore point does not exist, belongs to another disk, or is not verified.
        PointUnavailable,
        /// The number of restore points in the namespace is too high for another one on demand.
        TooManyPoints,
        /// The disk was rolled back too often in 24 hours.
        TooManyRollbacks,
        /// The namespace has the maximum number of running Browse operations.
        TooManyBrowseOperations,
        /// The pod of the operation failed or was deleted.
        PodFailed,
        /// The operation did not finish in time.
        OperationTimeout,

        // Admitted
        /// Devices and nodes are assigned.
        Admitted,
        /// The server is not in the queue: its request is not accepted, its disk is not ready, or it does not run.
        NotQueued,
        /// The start time of the booking is in the future.
        Booked,
        /// The quota of the user or team is exceeded.
        QuotaExceeded,
        /// Too few devices are free.
        InsufficientCapacity,
        /// Capacity is free but reserved for servers ahead in the queue.
        Reserved,
        /// Enough devices are free, but not together on the required number of nodes.
        Fragmented,
        /// No node can ever satisfy the request.
        Unsatisfiable,
        /// The admission was revoked: the pods could not be scheduled on the assigned nodes.
        Unschedulable,
        /// The server is preempted by another server. It is stopped and returns to its previous position in the queue.
        Preempted,

        // PodsReady, Ready
        /// All pods are ready and the server can be used.
        Running,
        /// Pods are being created, images pulled, volumes attached.
        Starting,
        /// A pod was evicted. The server returns to its previous position in the queue.
        PodEvicted,
        /// A pod is terminating but still exists: a finalizer blocks it, or its node is unreachable.
        PodTerminationBlocked,
        /// A container exited and is being restarted.
        Restarting,
        /// The node of a pod is unreachable.
        NodeLost,
        /// Hibernated by spec.desired.
        HibernatedByUser,
        /// Hibernated after the idle timeout.
        HibernatedByIdleness,
        /// Reserved; not implemented yet.
        HibernatedByDrain,
        /// The server is being stopped.
        Stopping,

        // Idle
        /// The server is in use.
        Active,
        /// The server was not used for its idle timeout.
        Idle,
        /// idle.action is None.
        IdleDetectionDisabled,
        /// The agent is unreachable; the server is treated as active.
        AgentUnreachable,

        // Expiring, and the ends
        /// The lifetime does not end soon.
        LifetimeRemaining,
        /// The lifetime ends soon; raise `spec.lifetime` to extend it.
        ExpiringSoon,
        /// The lifetime has ended.
        LifetimeExceeded,
        /// Ended by spec.desired.
        Ended,
        /// Cancelled because it waited for its first start longer than the cluster allows.
        QueueTimeout,

        // Failures
        /// The image does not exist, or its registry is unreachable.
        ImageNotFound,
        /// The registry denies access; a pull Secret may be missing.
        ImageDenied,
        /// The container exits during startup; see status.lastFailure.logTail.
        CrashLoop,
        /// A Secret in spec.env does not exist, or lacks the key.
        SecretMissing,
        /// An object with a required name exists and has another owner.
        NameConflict,
        /// The server did not become ready within the start timeout.
        StartTimeout,
        /// The server repeatedly ran out of memory.
        OutOfMemory,
        /// The preStop script failed; the server was stopped nevertheless.
        PreStopFailed,
        /// Not all data was written to the volume before the stop.
        DataNotSynced,
        /// A read or write of the operator fails repeatedly, or the API server rejects a write; it is retried.
        WriteFailed,

        // Flavors, users, teams
        /// The object matches its spec.
        Reconciled,
        /// No node matches the flavor.
        NoNodes,
        /// The namespace of the user is being set up.
        Incomplete,
        /// A namespace of the user's name exists and was not created by the operator.
        NamespaceConflict,
        /// A member does not exist as a user.
        MemberNotFound,
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn reasons_are_camel_case() {
        let camel_case = Regex::new("^[A-Z][A-Za-z]{1,63}$").unwrap();
        assert!(Reason::ALL.iter().all(|reason| camel_case.is_match(reason.as_str())));
    }
}
