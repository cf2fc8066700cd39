//! Warnings and messages to users in the server: on terminals, before shell prompts, and as files in the home
//! directory.

pub mod broadcast;
pub mod current_notices;
pub mod deadline;
pub mod expiry_warning;
