//! Records of volumes and snapshots: extended attributes of the directory around the subvolume.
//!
//! Pods see only the subvolume, so users cannot change a record. Attributes of the subvolume itself would be copied by
//! snapshots and could not be set on read-only ones.

use std::path::Path;
use std::str::FromStr;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;

use super::Error;
use crate::name::Name;
use crate::volume::{Snapshot, Volume};

const SIZE: &str = "trusted.odc.csi.size";
const SOURCE: &str = "trusted.odc.csi.source";
const CREATED: &str = "trusted.odc.csi.created";
/// Attribute of the pool's root: version of the layout.
const FORMAT: &str = "trusted.odc.csi.format";

/// Longer than any value that is written: a kind, a slash and a name.
const MAX_VALUE_LEN: usize = 256;

pub fn write_volume(entry: &Path, volume: &Volume) -> Result<(), Error> {
    let Volume { name: _, size, source } = volume;
    write_size(entry, *size)?;
    match source {
        Some(source) => write(entry, SOURCE, &source.to_string()),
        None => Ok(()),
    }
}

pub fn write_size(entry: &Path, size: u64) -> Result<(), Error> {
    write(entry, SIZE, &size.to_string())
}

/// Returns `None` if there is no such entry.
pub fn read_volume(entry: &Path, name: &Name) -> Result<Option<Volume>, Error> {
    if !exists(entry)? {
        return Ok(None);
    }
    let size = require(entry, SIZE)?;
    Ok(Some(Volume { name: name.clone(), size, source: read(entry, SOURCE)? }))
}

pub fn write_snapshot(entry: &Path, snapshot: &Snapshot) -> Result<(), Error> {
    let Snapshot { name: _, volume, size, created } = snapshot;
    write_size(entry, *size)?;
    write(entry, SOURCE, volume.as_str())?;
    write(entry, CREATED, &created.to_string())
}

/// Returns `None` if there is no such entry.
pub fn read_snapshot(entry: &Path, name: &Name) -> Result<Option<Snapshot>, Error> {
    if !exists(entry)? {
        return Ok(None);
    }
    Ok(Some(Snapshot {
        name: name.clone(),
        volume: require(entry, SOURCE)?,
        size: require(entry, SIZE)?,
        created: require(entry, CREATED)?,
    }))
}

/// Returns the version of the pool's layout, or `None` if the pool is new.
pub fn read_format(root: &Path) -> Result<Option<u32>, Error> {
    read(root, FORMAT)
}

pub fn write_format(root: &Path, format: u32) -> Result<(), Error> {
    write(root, FORMAT, &format.to_string())
}

fn exists(entry: &Path) -> Result<bool, Error> {
    entry.try_exists().map_err(Error::io("inspecting", entry))
}

fn write(entry: &Path, attribute: &'static str, value: &str) -> Result<(), Error> {
    setxattr(entry, attribute, value.as_bytes(), XattrFlags::empty()).map_err(Error::io("setting attributes of", entry))
}

fn require<T: FromStr>(entry: &Path, attribute: &'static str) -> Result<T, Error> {
    read(entry, attribute)?.ok_or_else(|| Error::Record { attribute, path: entry.to_owned() })
}

fn read<T: FromStr>(entry: &Path, attribute: &'static str) -> Result<Option<T>, Error> {
    let invalid = || Error::Record { attribute, path: entry.to_owned() };
    let mut buffer = [0; MAX_VALUE_LEN];
    let length = match getxattr(entry, attribute, &mut buffer[..]) {
        Ok(length) => length,
        Err(Errno::NODATA) => return Ok(None),
        Err(Errno::RANGE) => return Err(invalid()),
        Err(error) => return Err(Error::io("reading attributes of", entry)(error)),
    };
    let text = std::str::from_utf8(&buffer[..length]).map_err(|_| invalid())?;
    text.parse().map(Some).map_err(|_| invalid())
}
