//! Forwarded connections: to ports and sockets in the server, from listeners in the server to the client, and to the
//! client's SSH agent.

pub mod agent_socket;
pub mod listener;
pub mod relay;
pub mod resolver;
