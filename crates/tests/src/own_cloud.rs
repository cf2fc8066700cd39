//! A cloud a test may start, break and end as it likes.

use std::path::PathBuf;

use rand::Rng as _;

use crate::bed::{self, Output, odc_local};
use crate::finally::finally;

pub struct OwnCloud {
    /// Its state directory, which does not exist yet.
    pub directory: PathBuf,
}

/// Whatever the test leaves of it is cleared afterwards.
pub async fn with_own_cloud<T>(test: impl AsyncFnOnce(&OwnCloud) -> anyhow::Result<T>) -> anyhow::Result<T> {
    crate::begin();
    let name = format!("{}own-{:04x}", bed::prefix(), rand::rng().next_u32() & 0xffff);
    let cloud = OwnCloud { directory: std::env::temp_dir().join(name) };
    finally(test(&cloud), async || {
        if cloud.directory.exists() {
            cloud.odc_local(&["reset"]).await?.good()?;
        }
        Ok(())
    })
    .await
}

impl OwnCloud {
    /// Runs `odc local` on it.
    pub async fn odc_local(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        odc_local(&self.directory, arguments).await
    }
}
