//! Choosing on a terminal.

use inquire::Select;

use crate::failure::Result;
use crate::glance::Glance;
use crate::talk::unanswered;

/// One of several servers.
pub fn server(mut servers: Vec<Glance>) -> Result<Glance> {
    let rows: Vec<String> =
        servers.iter().map(|server| format!("{}  ({})", server.name(), server.phase_word())).collect();
    let chosen = Select::new("Which server?", rows).raw_prompt().map_err(|error| unanswered(&error))?;
    Ok(servers.swap_remove(chosen.index))
}
