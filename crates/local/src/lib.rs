//! A whole ODC cloud on one machine: real Kubernetes with real nodes, PostgreSQL and an image registry, supervised.
//!
//! Each node is a network namespace with its own kubelet, containerd and kube-proxy. Nothing here knows what runs *in*
//! the cluster: the roles of ODC are installed like on any other.

pub mod artifact;
pub mod bound;
pub mod cgroup;
pub mod cluster;
pub mod command;
mod control;
mod daemon;
mod existing;
mod file;
mod host;
pub mod image;
pub mod installation;
pub mod layout;
pub mod network;
mod part;
mod parts;
mod pki;
mod preflight;
mod probe;
pub mod problem;
pub mod process;
pub mod progress;
pub mod settings;
mod supervisor;
