//! The agent of a dev server: one static executable that turns any container image into a server.
//!
//! A pod uses it in this order. [`install`] copies it from the agent's image into a shared directory. [`accounts`], run
//! as `prepare` in the user's image, writes account files that contain the user. [`init`] is PID 1 of the server
//! and supervises [`serve`], the SSH server. It first fills a new home by [`startup_files`]. [`probe`] reports readiness
//! to the kubelet, from the [`init_state`] that `init` writes.
//!
//! Nothing here may depend on the image: there may be no shell, no account, no home, and no writable directory except a
//! mounted one. The agent does not know Kubernetes; the operator that builds the pod chooses paths and flags.

pub mod accounts;
pub mod args;
pub mod atomic_write;
pub mod backoff;
pub mod boot_time;
pub mod bounded_read;
pub mod cli;
#[cfg(test)]
mod fixtures;
pub mod image_programs;
pub mod init;
pub mod init_state;
pub mod install;
pub mod log;
pub mod pre_stop_script;
pub mod probe;
pub mod process_id;
pub mod random;
pub mod script;
pub mod serve;
pub mod startup_files;
pub mod syncfs;
pub mod text_format;
pub mod tree;
