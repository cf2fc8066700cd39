//! The real `devctl` on a real API server, with the rights of a user and no more: what it prints, how it ends, what it
//! asks. Where only its words matter, statuses are written by the test; where its deeds do, the operator answers.

mod change;
mod look;
mod oracle;
mod queue;
mod scene;
mod terminal;
mod trouble;
mod watch;
