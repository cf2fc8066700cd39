//! What the operator and the agent of a server say to each other: versioned JSON, one request per line, one reply per
//! line, in the same order. The helpers inside a server speak it too.
//!
//! Only words are defined here. Who may say which, and what happens then, is the agent's business; what follows from the
//! answers is decided in `odc-core`. There is no I/O, and no time of day: everything that happened is told by how long
//! ago it was, so that nobody's clock has to be right.
//!
//! Within a version, fields and requests may be added, and whoever does not know a field passes over it. A new version is
//! for changes that an old reader would misunderstand.

pub mod bounded;
pub mod frame;
mod message;
mod outcome;
mod reply;
mod request;
mod signals;
pub mod span;
mod status;

#[cfg(test)]
mod tests;

pub use bounded::{Bounded, Line, Listing, Text};
pub use frame::{Frames, LONGEST, TooLong};
pub use message::{Misunderstood, VERSION, read_reply, read_request, write_reply, write_request};
pub use outcome::Outcome;
pub use reply::{Jupyter, JupyterState, Quiesced, Reply, Stats};
pub use request::{About, Access, IdleAction, IdleTerms, Request};
pub use signals::{Busy, BusyTree, Forwarded, Gpu, JupyterSignal, KeepAlive, Seen, Sessions, Signals};
pub use status::Status;
