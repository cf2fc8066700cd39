//! Lets people in and looks after the server.

pub mod access;
pub mod activity;
pub mod board;
pub mod control;
pub mod deadline;
pub mod jupyter;
pub mod kept;
pub mod listing;
pub mod local;
pub mod prompt;
pub mod quiesce;
pub mod served;
pub mod steward;
pub mod terminals;
