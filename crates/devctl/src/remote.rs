//! Asking a server itself, over SSH.

use serde_json::Value;

use crate::app::App;
use crate::failure::Result;
use crate::glance::Glance;

/// What `odc-status -o json` says in a running server.
pub async fn status(_app: &App, _server: &Glance) -> Result<Option<Value>> {
    Ok(None)
}
