//! Lets people in and looks after the server.

pub mod access;
pub mod activity;
pub mod board;
pub mod deadline;
pub mod jupyter;
pub mod kept;
pub mod prompt;
pub mod served;
pub mod terminals;
