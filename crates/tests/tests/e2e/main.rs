//! Tests on real nodes with real pods.

mod clouds;
mod demo;
mod devctl;
mod ended;
mod extend_api;
mod faults;
mod gpus;
mod host;
mod images;
mod pods;
mod servers;
mod ssh;
mod stops;
