//! `devctl`, the command-line client of the Open Developer Cloud: creates dev servers, connects to them and deletes them.
//!
//! `cli` parses the command line, `config` reads the settings, and both select one `command`. A command talks to the
//! cluster through `client`, prints data on standard output (`output`) and everything else on standard error (`ui`).
//! Every failure is an [`error::Error`] with an exit code and a hint.

pub mod cli;
pub mod client;
mod clock;
pub mod command;
pub mod completion;
pub mod config;
pub mod context;
pub mod docgen;
pub mod error;
mod fs;
mod live_view;
pub mod model;
pub mod output;
pub mod prompt;
pub mod request;
pub mod resolve;
mod shell;
mod signals;
pub mod ssh;
pub mod ui;
pub mod version;
pub mod wait;
mod watch_cache;
