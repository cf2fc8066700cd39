//! Installs persistent volumes with snapshots into a local cluster: the CSI driver, its sidecars, the snapshot controller
//! and the CRDs of snapshots.
//!
//! All nodes share one pool, a file in the state directory that the driver formats and mounts. The pods start after those
//! of ODC; `up` does not wait for them.

use anyhow::Context as _;

use crate::components::Blueprint;
use crate::{image, manifests};

/// Runs the job `storage`.
pub async fn install(blueprint: &Blueprint) -> anyhow::Result<()> {
    let driver = image::load_csi(blueprint).await?;
    let sidecars = image::load_binary(blueprint, &blueprint.executables.csi_sidecars, None).await?;
    let crds = &blueprint.executables.snapshot_crds;
    let text = std::fs::read_to_string(crds).with_context(|| format!("reading {}", crds.display()))?;
    let mut objects = manifests::parse(&text).with_context(|| format!("parsing {}", crds.display()))?;
    objects.extend(manifests::render(blueprint, "local/csi").await?);
    manifests::substitute_images(&mut objects, &[("odc-csi-image", driver), ("csi-sidecars-image", sidecars)]);
    manifests::apply_all(&crate::cluster::client(&blueprint.layout.kubeconfig()).await?, &objects).await
}
