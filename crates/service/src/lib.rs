//! The service layer: an HTTP API that accepts requests and answers reads, and a worker that executes the requests and
//! copies the custom resources into PostgreSQL.
//!
//! The API never creates pods and the worker writes only custom resources; controllers do the work. Both roles tolerate
//! that the database or the API server is unavailable, and a crash after any write.

pub mod api;
pub mod database;
pub mod key;
mod kube_client;
pub mod message;
pub mod migrate;
mod process_metrics;
mod projection;
pub mod worker;
