//! What runs inside every dev server: one static executable that makes any image a server.
//!
//! A pod uses it in this order. [`install`] brings it from the agent's image into a shared directory. [`prepare`], in the
//! user's image, writes account files that know the user. [`init`] is process 1 of the server, and keeps [`serve`]
//! running, which lets people in. [`probe`] tells the kubelet whether the server is ready, from the [`state`] that `init` writes.
//!
//! Nothing here may count on the image: there may be no shell, no account, no home, and no place to write but a mounted one.
//! The agent knows nothing of Kubernetes; whoever builds the pod chooses paths and flags.

pub mod args;
pub mod clock;
#[cfg(test)]
mod fixtures;
pub mod helper;
pub mod init;
pub mod install;
pub mod pre_stop;
pub mod prepare;
pub mod probe;
pub mod random;
pub mod replace;
pub mod run_script;
pub mod serve;
pub mod shell;
pub mod state;
