//! The TCP ports of ODC.

/// The SSH server of the agent in each server.
pub const AGENT: u16 = 2222;
/// The SSH server of the gateway.
pub const GATEWAY_SSH: u16 = 2222;
/// Web applications and tunnels through the gateway.
pub const GATEWAY_HTTP: u16 = 8443;
pub const API: u16 = 8080;
pub const WEBHOOK: u16 = 9443;
/// `queue.odc.dev`, for the API server.
pub const QUEUE: u16 = 9444;
pub const METRICS: u16 = 9090;
/// Jupyter Lab inside a server.
pub const JUPYTER: u16 = 8888;
/// The rendezvous port of a gang (`MASTER_PORT`).
pub const MASTER: u16 = 29500;
