//! Runs the driver on a pool in a file, as root: over gRPC, without Kubernetes.

#![expect(clippy::unwrap_used, reason = "a failed call fails the test")]

mod crash;
mod harness;
mod pool_space;
mod registration;
mod sanity;
mod shared_pool;
mod startup;
mod volume;
