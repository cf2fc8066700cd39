//! The HTTP API, the worker and the projection as processes, under load and faults.

mod authorization;
mod counts;
mod fixture;
mod idempotency;
mod kubernetes_calls;
mod lives;
mod outage;
mod poison;
mod projection;
mod redelivery;
mod revocation;
