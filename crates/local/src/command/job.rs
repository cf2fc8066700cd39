//! `odc local job`: the one-shot components that are implemented in this program.

use crate::layout::Layout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Applies the objects every cluster has.
    Cluster,
    /// Pushes the base images into the registry.
    Images,
    /// Installs ODC into the cluster.
    Odc,
    /// Installs the service layer into the cluster.
    Service,
    /// Deletes the leases of an earlier kwok process.
    SimulatedLeases,
    /// Installs persistent volumes into the cluster.
    Storage,
}

pub async fn job(layout: Layout, job: Job) -> anyhow::Result<()> {
    let blueprint = super::load_blueprint(layout)?;
    match job {
        Job::Cluster => crate::cluster::bootstrap(&blueprint).await,
        Job::Images => crate::image::push_base_images(&blueprint).await,
        Job::Odc => crate::odc_install::install(&blueprint).await,
        Job::Service => crate::service_install::install(&blueprint).await,
        Job::Storage => crate::storage_install::install(&blueprint).await,
        Job::SimulatedLeases => crate::cluster::delete_simulated_leases(&blueprint).await,
    }
}
