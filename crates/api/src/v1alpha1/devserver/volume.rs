//! A claim mounted into a server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::mount_path::MountPath;
use crate::name::ObjectName;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// The PersistentVolumeClaim, in the namespace of the server.
    pub claim: ObjectName,

    /// Where to mount it, such as /data. Directories of the system and the home itself cannot be covered.
    pub path: MountPath,

    /// Mount it so that nothing can be written.
    #[serde(default)]
    pub read_only: bool,
}
