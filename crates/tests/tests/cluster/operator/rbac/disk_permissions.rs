//! Permissions for disks, which only an operator with volumes and snapshots uses.

use super::{FaultHarness, Permission, requests, unused_permissions};

/// Permissions for the listings of restore points. Only an agent makes listings: see the end-to-end test of disks.
const OF_LISTINGS: [(&str, &str); 4] = [
    ("configmaps", "create"),
    ("configmaps", "get"),
    ("configmaps", "delete"),
    ("volumesnapshots.snapshot.storage.k8s.io", "patch"),
];

/// Reports whether a permission is for disks.
pub fn is_of_disks(permission: &Permission) -> bool {
    let writes = ["create", "get", "patch", "delete"].contains(&permission.verb.as_str());
    match permission.resource.as_str() {
        "disks.odc.dev"
        | "disks.odc.dev/status"
        | "diskoperations.odc.dev"
        | "diskoperations.odc.dev/status"
        | "volumesnapshots.snapshot.storage.k8s.io"
        | "volumesnapshotcontents.snapshot.storage.k8s.io" => true,
        "persistentvolumeclaims" | "persistentvolumes" | "configmaps" => writes,
        _ => false,
    }
}

/// Fails if the operator has a permission for disks that it has not used. The operator must have ended.
pub async fn check_used(harness: &FaultHarness<'_>) -> anyhow::Result<()> {
    let mut unused = unused_permissions(harness.fixture, &requests(harness).await?).await?;
    let is_of_listings =
        |permission: &Permission| OF_LISTINGS.contains(&(permission.resource.as_str(), permission.verb.as_str()));
    unused.retain(|(_, _, permission)| is_of_disks(permission) && !is_of_listings(permission));
    anyhow::ensure!(unused.is_empty(), "{unused:#?}");
    Ok(())
}
