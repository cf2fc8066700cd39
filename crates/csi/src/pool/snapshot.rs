//! Snapshots in the pool.

use super::layout::Layout;
use super::space::MIN_FREE_SPACE;
use super::volume::list_names;
use super::{Error, Pool, blocking, record};
use crate::btrfs;
use crate::name::Name;
use crate::page::PageRequest;
use crate::volume::{Snapshot, Timestamp};

/// The cost of a write grows with the number of snapshots that share the old data, because of the qgroups.
pub const MAX_SNAPSHOTS_PER_VOLUME: usize = 64;

impl Pool {
    /// Takes a snapshot, or returns the existing one if it is of the same volume.
    pub async fn create_snapshot(&self, name: &Name, volume: &Name) -> Result<Snapshot, Error> {
        if let Some(existing) = self.find_snapshot(name).await? {
            existing.check_source(volume)?;
            return Ok(existing);
        }
        let size = self.volume(volume).await?.size;
        if self.snapshots_of(volume).await?.len() >= MAX_SNAPSHOTS_PER_VOLUME {
            return Err(Error::TooManySnapshots { name: volume.clone() });
        }
        self.ensure_space(MIN_FREE_SPACE).await?;

        let entry = self.staging.create_entry().await?;
        let snapshot = Snapshot { name: name.clone(), volume: volume.clone(), size, created: Timestamp::now() };
        let built = self.build_snapshot(&entry, &snapshot).await;
        let created = match built {
            Ok(()) => self.staging.publish(&entry, &self.layout.snapshot(name)).await,
            Err(error) => Err(error),
        };
        match created {
            Ok(true) => {
                tracing::info!(snapshot = %name, volume = %volume, "took snapshot");
                Ok(snapshot)
            }
            Ok(false) => {
                // Another process took the snapshot in the meantime.
                self.staging.discard(&entry).await?;
                let existing = self.snapshot(name).await?;
                existing.check_source(volume)?;
                Ok(existing)
            }
            Err(error) => Err(self.abandon(&entry, error).await),
        }
    }

    async fn build_snapshot(&self, entry: &std::path::Path, snapshot: &Snapshot) -> Result<(), Error> {
        let (source, data) = (self.volume_data(&snapshot.volume), Layout::data(entry));
        btrfs::snapshot(&source, &data, true).await.map_err(Error::btrfs("taking a snapshot of", &source))?;
        let (entry, snapshot) = (entry.to_owned(), snapshot.clone());
        blocking(move || record::write_snapshot(&entry, &snapshot)).await
    }

    /// Deletes a snapshot. Succeeds if it does not exist.
    pub async fn delete_snapshot(&self, name: &Name) -> Result<(), Error> {
        if self.staging.discard(&self.layout.snapshot(name)).await? {
            tracing::info!(snapshot = %name, "deleted snapshot");
        }
        Ok(())
    }

    pub async fn snapshot(&self, name: &Name) -> Result<Snapshot, Error> {
        self.find_snapshot(name).await?.ok_or_else(|| Error::SnapshotNotFound { name: name.clone() })
    }

    pub async fn find_snapshot(&self, name: &Name) -> Result<Option<Snapshot>, Error> {
        let (entry, name) = (self.layout.snapshot(name), name.clone());
        blocking(move || record::read_snapshot(&entry, &name)).await
    }

    /// Returns a page of the snapshots, of one volume or all, sorted by name, and the token of the next one.
    pub async fn list_snapshots(
        &self,
        volume: Option<&Name>,
        page: PageRequest,
    ) -> Result<(Vec<Snapshot>, String), Error> {
        let names = if let Some(volume) = volume {
            self.snapshots_of(volume).await?
        } else {
            let layout = self.layout.clone();
            blocking(move || list_names(layout.snapshots())).await?
        };
        let layout = self.layout.clone();
        blocking(move || {
            let (names, next) = page.select(&names);
            let mut snapshots = Vec::with_capacity(names.len());
            for name in names {
                snapshots.extend(record::read_snapshot(&layout.snapshot(&name), &name)?);
            }
            Ok((snapshots, next))
        })
        .await
    }

    /// Returns the names of the snapshots of a volume, sorted.
    async fn snapshots_of(&self, volume: &Name) -> Result<Vec<Name>, Error> {
        let (layout, volume) = (self.layout.clone(), volume.clone());
        blocking(move || {
            let mut names = Vec::new();
            for name in list_names(layout.snapshots())? {
                let snapshot = record::read_snapshot(&layout.snapshot(&name), &name)?;
                names.extend(snapshot.filter(|snapshot| snapshot.volume == volume).map(|_| name));
            }
            Ok(names)
        })
        .await
    }
}
