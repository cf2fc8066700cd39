//! Runs a complete ODC installation on one machine: real Kubernetes with real nodes, PostgreSQL and an image registry,
//! all under one supervisor.
//!
//! Each node is a network namespace with its own kubelet, containerd and kube-proxy. This crate only provides the
//! cluster: ODC itself is installed from the same manifests as on any other cluster.

pub mod artifact;
mod backoff;
pub mod cgroup;
pub mod cluster;
pub mod command;
mod component;
mod components;
mod control;
mod daemon;
pub mod ephemeral;
pub mod error;
pub mod etcd;
mod external_cluster;
pub mod free_port;
mod fs;
mod host;
pub mod image;
pub mod layout;
mod manifests;
pub mod network;
pub mod odc_install;
mod pki;
mod preflight;
mod probe;
pub mod process;
pub mod progress;
mod service_install;
pub mod settings;
mod storage_install;
mod supervisor;
