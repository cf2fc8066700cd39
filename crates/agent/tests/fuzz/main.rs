//! Everything that strangers or people can send and that we read ourselves, with inputs nobody would think of.
//!
//! Each target begins with the inputs in `corpus/`, changes them by chance, and keeps those that made something new happen,
//! to change them further. A target says in a word what happened; that is all the guidance there is without a compiler that
//! counts branches, and with it blind chance comes far enough to get behind the first check. In the usual tests the inputs
//! are few and the same each time; see CONTRIBUTING.md for long runs.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]
#![expect(clippy::print_stderr, reason = "a long run says what it did")]

mod access;
mod campaign;
mod certificate;
mod control;
mod mutate;
mod sftp;
