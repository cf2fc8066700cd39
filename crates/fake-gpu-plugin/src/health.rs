//! Publishes the health of the devices, which is controlled by files in a directory.

use std::convert::Infallible;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use tokio::sync::watch;

use crate::device::{Devices, UnhealthyDevices};
use crate::dir_watcher::{self, DirWatcher};

#[derive(Debug)]
pub struct HealthWatcher {
    devices: Arc<Devices>,
    directory: Option<DirWatcher>,
    unhealthy: watch::Sender<UnhealthyDevices>,
}

impl HealthWatcher {
    /// Reads the directory once, so that subscribers start with the current health.
    pub fn scan(devices: Arc<Devices>, directory: Option<PathBuf>) -> Result<Self, dir_watcher::Error> {
        let directory = directory.map(DirWatcher::new).transpose()?;
        let mut watcher = Self { devices, directory, unhealthy: watch::Sender::new(UnhealthyDevices::new()) };
        watcher.refresh()?;
        Ok(watcher)
    }

    pub fn subscribe(&self) -> watch::Receiver<UnhealthyDevices> {
        self.unhealthy.subscribe()
    }

    /// Publishes every change. Returns only on errors.
    pub async fn watch(mut self) -> Result<Infallible, dir_watcher::Error> {
        loop {
            match &self.directory {
                Some(directory) => directory.changed().await?,
                None => pending().await,
            }
            self.refresh()?;
        }
    }

    fn refresh(&mut self) -> Result<(), dir_watcher::Error> {
        let Some(directory) = &mut self.directory else {
            return Ok(());
        };
        directory.arm()?;
        let unhealthy = match file_names(directory.path()) {
            Ok(names) => self.devices.select(names),
            Err(error) => {
                // Keep the last state: an unreadable directory does not mean that all devices are
                // healthy.
                let path = directory.path().display();
                tracing::error!("reading {path}: {error}; device health is unchanged");
                return Ok(());
            }
        };
        self.unhealthy.send_if_modified(|known| {
            unhealthy.difference(known).for_each(|device| tracing::warn!(%device, "device {device} is unhealthy"));
            known.difference(&unhealthy).for_each(|device| tracing::info!(%device, "device {device} is healthy again"));
            let changed = *known != unhealthy;
            *known = unhealthy;
            changed
        });
        Ok(())
    }
}

/// Returns the file names in a directory, none if it does not exist. Names that are not UTF-8 cannot
/// be device ids and are skipped.
fn file_names(path: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let name = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().into_string().ok()).transpose();
    entries.filter_map(name).collect()
}
