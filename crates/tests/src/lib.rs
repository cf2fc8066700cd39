//! Test harness of ODC. Every fixture runs real servers and removes everything it created.
//!
//! | needed | fixture | provides | start-up |
//! |---|---|---|---|
//! | SQL | [`with_database`], [`with_migrated_database`] | a dedicated PostgreSQL, empty or with the schema | below 1 s |
//! | an API server | [`with_namespace`] | a namespace on a shared control plane | 5 s once |
//! | cluster-scoped objects, an operator | [`with_control_plane`] | a control plane with ODC installed, for this test alone; simulated nodes, a fake kubelet | once, then below 1 s |
//! | the HTTP API, the worker | [`with_service`] | as above, with a database; starts `odc api` and `odc worker` on demand | 1 s |
//! | a new control plane | [`with_new_control_plane`] | as above, without ODC and with an empty history | 5 s |
//! | running pods | [`with_cluster`] | a namespace on shared real nodes | 20 s once |
//! | a cluster to start and stop | [`with_scratch_cluster`] | a state directory, reset afterwards | depends on the test |
//!
//! Shared clusters are run by `odc-testbed`, which stops them after the last user has left; see [`shared_cluster`].

pub mod api_client;
pub mod apifault;
pub mod audit;
mod certificate;
pub mod cleanup;
mod cluster;
pub mod command;
mod control_plane;
pub mod database;
pub mod dbfault;
pub mod devctl_user;
pub mod etcd_snapshot;
pub mod fake_kubelet;
pub mod manifests;
pub mod namespace;
pub mod operator;
pub mod pod;
mod scratch_cluster;
pub mod service;
pub mod shared_cluster;
pub mod sql;
pub mod storage;
pub mod terminal;
pub mod tree;
pub mod user;
pub mod wait;

pub use cluster::{Cluster, with_cluster, with_exclusive_cluster};
pub use control_plane::{ControlPlane, with_control_plane, with_new_control_plane};
pub use database::{Database, DatabaseRole, with_database, with_migrated_database};
pub use namespace::{Namespace, with_namespace};
pub use scratch_cluster::{ScratchCluster, with_scratch_cluster};
pub use service::{Service, with_service};

/// Installs the process-wide TLS provider. Every fixture calls it first.
pub fn init() {
    // Fails if an earlier fixture of this process has installed it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
