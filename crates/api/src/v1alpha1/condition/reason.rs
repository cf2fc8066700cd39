//! Why a condition is as it is.

use crate::word::words;

words! {
    /// One word for programs; the message beside it says the same to people. Also used for failures, the timeline and
    /// the queue, so that one word means one thing everywhere.
    pub enum Reason {
        // Accepted
        /// Everything asked for exists and is allowed.
        Valid,
        /// The flavor does not exist: choose one of `kubectl get dsf`.
        UnknownFlavor,
        /// No flavor was named and none is the default: name one.
        NoDefaultFlavor,
        /// Several flavors claim to be the default: an administrator must leave one.
        SeveralDefaultFlavors,
        /// The flavor does not offer this number of devices.
        CountNotAllowed,
        /// The owner is not a member of the team.
        NotATeamMember,
        /// The priority is above the team's ceiling.
        PriorityTooHigh,
        /// The flavor is in maintenance, and the owner is not among the exempt.
        Maintenance,
        /// The cluster does not offer something the request needs.
        NotSupported,
        /// The namespace belongs to no user of ODC.
        NoOwner,
        /// It did not pass the rules of its kind, so it was made under older ones: correct it or create it anew.
        Invalid,

        // ImageReady
        /// The image is ready to be pulled.
        ImageAvailable,
        /// The build runs.
        Building,
        /// The build does not exist.
        BuildNotFound,
        /// The build failed; its log tail is in its status.
        BuildFailed,

        // DiskReady
        /// The claim is bound.
        Bound,
        /// The claim will be bound when the first pod is placed.
        WaitingForFirstConsumer,
        /// The home goes with the pod, so there is nothing to wait for.
        Ephemeral,
        /// The disk or claim does not exist.
        DiskNotFound,
        /// The disk is not ready to be used.
        DiskPending,
        /// Another server holds the disk.
        DiskInUse,
        /// The volume behind the disk is lost or cannot be attached.
        DiskUnavailable,

        // Admitted
        /// The queue granted the devices.
        Granted,
        /// Nothing was asked of the queue yet: the image or the disk is not ready.
        NotQueued,
        /// The booked time has not come.
        Booked,
        /// The quota of the user or team is used up.
        QuotaExceeded,
        /// Too few devices are free.
        InsufficientCapacity,
        /// Enough devices are free, but not on the nodes they would have to share.
        Fragmented,
        /// No node could ever hold the request.
        Unsatisfiable,
        /// The grant was taken back: its nodes could not take the pods.
        Unschedulable,
        /// Someone with a better right needs its place: it stops in order and waits again, in its old place.
        Preempted,

        // PodsReady, Ready
        /// All pods are ready and the server can be used.
        Running,
        /// Pods are being created, images pulled, disks attached.
        Starting,
        /// A pod went away and is being replaced.
        PodGone,
        /// A pod that was stopped is still there: a finalizer keeps it, or its node does not say that it is gone.
        PodHeld,
        /// A container died and is being restarted.
        Restarting,
        /// The node of a pod does not answer any more.
        NodeLost,
        /// Its owner put it to sleep, or will not have it run yet.
        HibernatedByUser,
        /// Nobody used it, so it was put to sleep; the next connection wakes it.
        HibernatedByIdleness,
        /// Its node had to be emptied, so it was put to sleep.
        HibernatedByDrain,
        /// A stop in order is under way.
        Stopping,

        // Idle
        /// Somebody uses it.
        Active,
        /// Nobody used it for its idle timeout.
        NobodyThere,
        /// Its idle action is None.
        NotWatched,
        /// Its agent cannot be asked; such a server is never idle.
        AgentUnreachable,

        // Expiring, and the ends
        /// There is time left.
        TimeLeft,
        /// The end is near: extend it by raising `spec.lifetime`.
        EndsSoon,
        /// The lifetime is used up.
        LifetimeUsedUp,
        /// Its owner or an administrator ended it.
        Ended,
        /// It waited for its first start for as long as this cluster lets anybody wait, so it was cancelled.
        QueuedTooLong,

        // Failures
        /// The image does not exist, or its registry does not answer.
        ImageNotFound,
        /// The registry wants a login: name a pull Secret.
        ImageDenied,
        /// The image's program ends right after its start; the log tail says why.
        DiesAtStart,
        /// A Secret the server's environment needs is missing, or lacks the key.
        SecretMissing,
        /// An object of the name the server needs is there and belongs to somebody else.
        NameTaken,
        /// It did not become ready in time.
        StartTimeout,
        /// It ran out of memory again and again.
        OutOfMemory,
        /// Its preStop script failed; the stop went on without it.
        PreStopFailed,
        /// Not everything could be written to disk before a stop.
        NotWritten,

        // Flavors, users, teams
        /// The object is as asked for.
        Reconciled,
        /// No node has what the flavor describes.
        NoNodes,
        /// Something the object needs could not be written; it is being retried.
        Incomplete,
        /// A namespace of the user's name exists and is not ours.
        NamespaceTaken,
        /// A member does not exist as a user.
        UnknownMember,
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn reasons_are_what_kubernetes_accepts() {
        let camel_case = Regex::new("^[A-Z][A-Za-z]{1,63}$").unwrap();
        assert!(Reason::ALL.iter().all(|reason| camel_case.is_match(reason.as_str())));
    }
}
