//! Tests with a dedicated PostgreSQL server.

mod accept;
mod audit_log;
mod connection_faults;
mod descriptions;
mod errors;
mod fixture;
mod keys;
mod migrations;
mod notifications;
mod privileges;
mod projection;
mod queue;
mod retention;
mod server;
mod usage;
