//! The ports of ODC.

/// SSH into a server.
pub const AGENT: u16 = 2222;
/// SSH into the gateway.
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
/// Where the nodes of a gang meet, as `MASTER_PORT`.
pub const MASTER: u16 = 29500;
