use crate::serve::outbox::{Gone, Outbox};
use std::path::PathBuf;
use std::sync::Arc;
pub async fn serve(_outbox: &Arc<Outbox>, _home: PathBuf) -> Result<(), Gone> {
    Ok(())
}
