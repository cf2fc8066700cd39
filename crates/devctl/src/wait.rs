//! Waiting for a server, pleasantly.

use std::time::Duration;

use crate::app::App;
use crate::failure::{Failure, Result};
use crate::glance::Glance;

/// What Ctrl-C means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// This command made the server: it asks whether to end it, or ends it where nobody can be asked.
    Cancels,
    /// It only stops waiting.
    Leaves,
}

/// Waits until the server can be used, showing what happens meanwhile.
pub async fn until_ready(_app: &App, _name: &str, _interrupt: Interrupt, _limit: Option<Duration>) -> Result<Glance> {
    Err(Failure::failed("this is not built yet"))
}
