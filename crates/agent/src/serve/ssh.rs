//! The SSH transport and its channels, on top of `russh`.

pub mod channel_writer;
pub mod config;
pub mod connection;
pub mod direct_tcpip;
pub mod flow_control;
pub mod handler;
pub mod pre_auth;
pub mod receive_buffer;
pub mod russh_log;
pub mod session_channel;
pub mod throttled_stream;
