//! Free space of the pool. Volumes are thin: their sizes are limits, and their sum may exceed the pool.

use rustix::fs::statvfs;

use super::{Error, Pool, blocking};
use crate::capacity::ByteSize;

/// Free space that the metadata of a new volume or snapshot needs.
pub const MIN_FREE_SPACE: u64 = 64 << 20;

impl Pool {
    /// Returns the bytes that can still be written, including the growth of the pool.
    pub async fn available_space(&self) -> Result<u64, Error> {
        let free = self.free_space().await?;
        match &self.file {
            Some(file) => file.available(free).await,
            None => Ok(free),
        }
    }

    /// Checks that the bytes can be written, and makes the pool grow if necessary. Nothing is set aside.
    pub(super) async fn ensure_space(&self, bytes: u64) -> Result<(), Error> {
        let requested = bytes.max(MIN_FREE_SPACE);
        let mut free = self.free_space().await?;
        if free < requested
            && let Some(file) = &self.file
        {
            file.grow(self.layout.root(), free, requested).await?;
            free = self.free_space().await?;
        }
        if free < requested {
            return Err(Error::Full { requested: ByteSize(requested), available: ByteSize(free) });
        }
        Ok(())
    }

    /// Returns the free bytes of the file system at its current size.
    pub(super) async fn free_space(&self) -> Result<u64, Error> {
        let root = self.layout.root().to_owned();
        blocking(move || {
            let status = statvfs(&root).map_err(Error::io("reading the free space of", &root))?;
            Ok(status.f_bavail.saturating_mul(status.f_frsize))
        })
        .await
    }

    /// Returns the bytes of the file system at its current size.
    pub(super) async fn total_space(&self) -> Result<u64, Error> {
        let root = self.layout.root().to_owned();
        blocking(move || {
            let status = statvfs(&root).map_err(Error::io("reading the size of", &root))?;
            Ok(status.f_blocks.saturating_mul(status.f_frsize))
        })
        .await
    }
}
