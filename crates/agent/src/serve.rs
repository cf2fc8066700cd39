//! Lets people in and looks after the server.

pub mod access;
pub mod activity;
pub mod served;
pub mod terminals;
