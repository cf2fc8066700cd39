//! Steps of a start that are processes of their own, so that the supervisor repeats them until they succeed.

use crate::layout::Layout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Objects every cluster has.
    Cluster,
    /// Images into the registry.
    Images,
    /// ODC into the cluster.
    Odc,
    /// Leases an earlier kwok holds.
    SimulatedLeases,
}

pub async fn job(layout: Layout, job: Job) -> anyhow::Result<()> {
    let blueprint = super::blueprint(layout)?;
    match job {
        Job::Cluster => crate::cluster::prepare(&blueprint).await,
        Job::Images => crate::image::push_cached(&blueprint).await,
        Job::Odc => crate::installation::install(&blueprint).await,
        Job::SimulatedLeases => crate::cluster::release_simulated(&blueprint).await,
    }
}
