//! A volume of a server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::mount_path::MountPath;
use crate::name::ObjectName;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Name of a PersistentVolumeClaim in the namespace of the server.
    pub claim: ObjectName,

    /// Mount path, such as /data. System directories and the home cannot be covered.
    pub path: MountPath,

    /// Mounts the volume read-only.
    #[serde(default)]
    pub read_only: bool,
}
