//! Fuzz targets for all input that the agent parses itself.
//!
//! Each target starts with the inputs in `corpus/`, mutates them, and keeps those with a new signature for further
//! mutation. The signature, a short description of the outcome, replaces coverage feedback, which stable compilers do
//! not offer to tests. By default the number of inputs is small and the seed fixed; see CONTRIBUTING.md for long runs.

#![expect(clippy::unwrap_used, reason = "test helpers panic on failure")]
#![expect(clippy::print_stderr, reason = "a run prints its statistics")]

mod access;
mod certificate;
mod control;
mod mutate;
mod runner;
mod sftp;
