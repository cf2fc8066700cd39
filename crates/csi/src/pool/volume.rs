//! Volumes in the pool.

use std::fs;
use std::path::{Path, PathBuf};

use super::layout::Layout;
use super::space::MIN_FREE_SPACE;
use super::{Error, Pool, blocking, record};
use crate::btrfs::{self, QgroupUsage};
use crate::capacity::{CapacityRange, DEFAULT_VOLUME_SIZE};
use crate::name::Name;
use crate::page::PageRequest;
use crate::volume::{Source, Volume, VolumeRequest};

impl Pool {
    /// Creates a volume, or returns the existing one if it satisfies the request.
    pub async fn create_volume(&self, request: &VolumeRequest) -> Result<Volume, Error> {
        if let Some(existing) = self.find_volume(&request.name).await? {
            request.check_existing(&existing)?;
            return Ok(existing);
        }
        let origin = self.find_origin(request.source.as_ref()).await?;
        let (floor, default) = origin.as_ref().map_or((0, DEFAULT_VOLUME_SIZE), |(_, size)| (*size, *size));
        let size = request.range.choose(floor, default)?;
        // Volumes created from others share their data.
        self.ensure_space(if origin.is_some() { MIN_FREE_SPACE } else { size }).await?;
        let volume = Volume { name: request.name.clone(), size, source: request.source.clone() };

        let entry = self.staging.create_entry().await?;
        let built = self.build_volume(&entry, origin.map(|(path, _)| path), &volume).await;
        let created = match built {
            Ok(()) => self.staging.publish(&entry, &self.layout.volume(&volume.name)).await,
            Err(error) => Err(error),
        };
        match created {
            Ok(true) => {
                tracing::info!(volume = %volume.name, size = volume.size, "created volume");
                Ok(volume)
            }
            Ok(false) => {
                // Another process created the volume in the meantime.
                self.staging.discard(&entry).await?;
                let existing = self.volume(&request.name).await?;
                request.check_existing(&existing)?;
                Ok(existing)
            }
            Err(error) => Err(self.abandon(&entry, error).await),
        }
    }

    async fn build_volume(&self, entry: &Path, origin: Option<PathBuf>, volume: &Volume) -> Result<(), Error> {
        let data = Layout::data(entry);
        match origin {
            Some(origin) => btrfs::snapshot(&origin, &data, false).await,
            None => btrfs::create_subvolume(&data).await,
        }
        .map_err(Error::btrfs("creating", &data))?;
        btrfs::limit(&data, volume.size).await.map_err(Error::btrfs("limiting", &data))?;
        let (entry, volume) = (entry.to_owned(), volume.clone());
        blocking(move || record::write_volume(&entry, &volume)).await
    }

    /// Returns the subvolume to copy and the minimum size of the copy.
    async fn find_origin(&self, source: Option<&Source>) -> Result<Option<(PathBuf, u64)>, Error> {
        Ok(match source {
            None => None,
            Some(Source::Volume(name)) => {
                Some((Layout::data(&self.layout.volume(name)), self.volume(name).await?.size))
            }
            Some(Source::Snapshot(name)) => {
                Some((Layout::data(&self.layout.snapshot(name)), self.snapshot(name).await?.size))
            }
        })
    }

    /// Discards an entry whose construction failed, and returns the cause of the failure.
    pub(super) async fn abandon(&self, entry: &Path, cause: Error) -> Error {
        if let Err(error) = self.staging.discard(entry).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "incomplete entry remains until the next start");
        }
        cause
    }

    /// Deletes a volume. Succeeds if it does not exist; fails while it is mounted on this node.
    pub async fn delete_volume(&self, name: &Name) -> Result<(), Error> {
        let mounts = self.mounts().await?;
        if let Some(mount) = mounts.bind_mounts(&self.volume_data(name)).first() {
            return Err(Error::InUse { name: name.clone(), target: mount.target.clone() });
        }
        if self.staging.discard(&self.layout.volume(name)).await? {
            tracing::info!(volume = %name, "deleted volume");
        }
        Ok(())
    }

    pub async fn volume(&self, name: &Name) -> Result<Volume, Error> {
        self.find_volume(name).await?.ok_or_else(|| Error::VolumeNotFound { name: name.clone() })
    }

    async fn find_volume(&self, name: &Name) -> Result<Option<Volume>, Error> {
        let (entry, name) = (self.layout.volume(name), name.clone());
        blocking(move || record::read_volume(&entry, &name)).await
    }

    /// Returns a page of the volumes, sorted by name, and the token of the next one.
    pub async fn list_volumes(&self, page: PageRequest) -> Result<(Vec<Volume>, String), Error> {
        let layout = self.layout.clone();
        blocking(move || {
            let (names, next) = page.select(&list_names(layout.volumes())?);
            let mut volumes = Vec::with_capacity(names.len());
            for name in names {
                // An entry that is gone was deleted in the meantime.
                volumes.extend(record::read_volume(&layout.volume(&name), &name)?);
            }
            Ok((volumes, next))
        })
        .await
    }

    /// Raises the size limit of a volume and returns it. A volume that is large enough is not changed.
    pub async fn expand_volume(&self, name: &Name, range: CapacityRange) -> Result<u64, Error> {
        let current = self.volume(name).await?.size;
        if range.required <= current {
            return Ok(current);
        }
        let size = range.choose(current, current)?;
        self.ensure_space(size - current).await?;
        let data = self.volume_data(name);
        // The record follows the limit: a call that is interrupted in between is repeated.
        btrfs::limit(&data, size).await.map_err(Error::btrfs("limiting", &data))?;
        let entry = self.layout.volume(name);
        blocking(move || record::write_size(&entry, size)).await?;
        tracing::info!(volume = %name, size, "expanded volume");
        Ok(size)
    }

    /// Returns the used bytes of a volume.
    pub async fn volume_usage(&self, name: &Name) -> Result<QgroupUsage, Error> {
        let data = self.volume_data(name);
        btrfs::usage(&data).await.map_err(Error::btrfs("reading the usage of", &data))
    }

    /// Sets the limits of all volumes, which are lost when quotas are disabled.
    pub(super) async fn restore_limits(&self) -> Result<(), Error> {
        let layout = self.layout.clone();
        for name in blocking(move || list_names(layout.volumes())).await? {
            let data = self.volume_data(&name);
            let size = self.volume(&name).await?.size;
            btrfs::limit(&data, size).await.map_err(Error::btrfs("limiting", &data))?;
        }
        Ok(())
    }
}

/// Returns the names of the entries in a directory, sorted. Other files are not ours.
pub(super) fn list_names(directory: &Path) -> Result<Vec<Name>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::io("listing", directory))? {
        let file_name = entry.map_err(Error::io("listing", directory))?.file_name();
        names.extend(file_name.to_str().and_then(|name| name.parse::<Name>().ok()));
    }
    names.sort();
    Ok(names)
}
