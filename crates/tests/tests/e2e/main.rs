//! Tests with real nodes and real pods.

mod aggregated_api;
mod devctl;
mod devservers;
mod disks;
mod faults;
mod finished_servers;
mod gpus;
mod host;
mod images;
mod local_clusters;
mod pods;
mod service;
mod ssh;
mod stop_failures;
mod storage;
mod tenant;
