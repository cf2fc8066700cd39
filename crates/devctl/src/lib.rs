//! `devctl`: the command people live with.
//!
//! What was typed (`args`) and written down (`config`) becomes a call of one `command`, which asks the `backend`, prints
//! data on standard output (`output`) and everything else on standard error (`talk`), and fails with a `failure` that
//! says what to do next.

pub mod app;
pub mod args;
pub mod backend;
pub mod command;
pub mod complete;
pub mod config;
pub mod failure;
pub mod find;
pub mod glance;
pub mod known;
pub mod output;
pub mod page;
pub mod panel;
pub mod pick;
pub mod prospect;
pub mod remote;
mod replace;
pub mod reserve;
pub mod ssh;
pub mod talk;
pub mod version;
pub mod view;
pub mod wait;
pub mod waking;
