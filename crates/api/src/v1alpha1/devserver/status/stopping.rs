//! Why a server is being stopped for good.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Written together with the phase Stopping and kept until a terminal phase is reached. A cause that does not follow from
/// the spec (Expired, Idle) is written before any pod is stopped. The cause never changes: a stop that has begun is
/// completed for the reason it began with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stopping {
    /// Why the server is being stopped: Expired (its lifetime is exceeded), User (spec.desired is Ended, or the object
    /// was deleted), Idle (its idle timeout passed and idle.action is End), or QueueTimeout (it was not admitted in
    /// time).
    pub cause: StopCause,

    /// When the stop began.
    pub since: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StopCause {
    /// The lifetime is exceeded. The server ends as Expired.
    Expired,
    /// The owner or an administrator deleted the server. It ends as Cancelled.
    User,
    /// The idle timeout passed and `idle.action` is End. The server ends as Cancelled.
    Idle,
    /// The server was not admitted within the cluster's queue timeout. It ends as Cancelled.
    QueueTimeout,
}
