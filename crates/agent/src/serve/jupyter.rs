//! The Jupyter server of the user.

pub mod http;
pub mod launch;
pub mod supervisor;

/// Default port of Jupyter.
pub const PORT: u16 = 8888;
