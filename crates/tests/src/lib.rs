//! What the tests of ODC stand on. Every test gets real servers, and leaves nothing behind.
//!
//! | a test needs | it takes | and gets | in about |
//! |---|---|---|---|
//! | SQL | [`with_database`] | its own PostgreSQL | 1 s |
//! | an API server | [`with_namespace`] | a namespace on a control plane all such tests share | 5 s once |
//! | cluster-scoped kinds, an operator | [`with_control_plane`] | its own control plane, simulated nodes, a pod player | 5 s |
//! | pods that run | [`with_cluster`] | a namespace on real nodes all such tests share | 20 s once |
//! | a cloud to take apart | [`with_own_cloud`] | a directory for one, cleared afterwards | as it likes |
//!
//! Shared servers are kept by `odc-testbed`, which ends them when the last test has let go; see [`bed`].

pub mod apifault;
pub mod audit;
pub mod bed;
mod cluster;
mod control_plane;
mod database;
pub mod finally;
mod namespace;
pub mod odc;
mod own_cloud;
pub mod person;
pub mod pod;
mod pod_player;
pub mod terminal;
pub mod wait;

pub use cluster::{Cluster, with_cluster, with_cluster_alone};
pub use control_plane::{ControlPlane, with_control_plane};
pub use database::{Database, with_database};
pub use namespace::{Namespace, with_namespace};
pub use own_cloud::{OwnCloud, with_own_cloud};
pub use pod_player::PLAYER;

/// What every test does first.
pub fn begin() {
    // Installed already by an earlier test of the same process: just as well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
