//! The control protocol between the operator and the agent of a server: versioned JSON, one request per line, one reply
//! per line, in the same order. The helper commands inside a server use it as well.
//!
//! This crate only defines the messages and does no I/O. The agent decides who may send which request; `odc-core` decides
//! what follows from the replies. No message carries a time of day. Past events are given as seconds ago, so the clocks of
//! both sides do not have to agree.
//!
//! Within a version, fields and requests may be added, and readers ignore unknown fields. A new version is needed for
//! changes that an old reader would misinterpret.

pub mod bounded;
pub mod duration;
mod envelope;
pub mod line;
mod listing;
mod outcome;
mod reply;
mod request;
mod signals;
mod status;
mod tree_diff;

#[cfg(test)]
mod tests;

pub use bounded::{Bounded, Line, Text};
pub use envelope::{ProtocolError, VERSION, read_reply, read_request, write_reply, write_request};
pub use line::{LineDecoder, LineTooLong, MAX_LINE_BYTES};
pub use listing::{CompressedListing, HomeContent, Listing, ListingEntry};
pub use outcome::Outcome;
pub use reply::{Flushed, Jupyter, JupyterState, Quiesced, Reply, Stats};
pub use request::{Access, IdleAction, IdlePolicy, NoticeKind, Request};
pub use signals::{Busy, BusyTree, Forwarded, Gpu, JupyterSignal, KeepAlive, LastSeen, Sessions, Signals};
pub use status::Status;
pub use tree_diff::{InvalidTreeDiff, TreeDiff};
