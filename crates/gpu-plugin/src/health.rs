//! Follows the directory that says which devices are ill. What is in it is somebody else's
//! decision.

use std::convert::Infallible;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use tokio::sync::watch;

use crate::device::{Devices, Ill};
use crate::directory::{self, Directory};

#[derive(Debug)]
pub struct Health {
    devices: Arc<Devices>,
    /// Absent if nobody can make a device ill.
    directory: Option<Directory>,
    ill: watch::Sender<Ill>,
}

impl Health {
    /// Reads the directory once, so that subscribers start with the truth.
    pub fn look(devices: Arc<Devices>, directory: Option<PathBuf>) -> Result<Self, directory::Error> {
        let directory = directory.map(Directory::new).transpose()?;
        let mut health = Self { devices, directory, ill: watch::Sender::new(Ill::new()) };
        health.refresh()?;
        Ok(health)
    }

    pub fn subscribe(&self) -> watch::Receiver<Ill> {
        self.ill.subscribe()
    }

    /// Publishes every change from now on; ends only with an error.
    pub async fn follow(mut self) -> Result<Infallible, directory::Error> {
        loop {
            match &self.directory {
                Some(directory) => directory.changed().await?,
                None => pending().await,
            }
            self.refresh()?;
        }
    }

    fn refresh(&mut self) -> Result<(), directory::Error> {
        let Some(directory) = &mut self.directory else {
            return Ok(());
        };
        directory.arm()?;
        let ill = match names_in(directory.path()) {
            Ok(names) => self.devices.named(names),
            Err(error) => {
                // Healing every device because a directory is unreadable would be a lie; the last
                // state stands.
                let path = directory.path().display();
                tracing::error!("reading {path} for ill devices: {error}; their health stays as it was");
                return Ok(());
            }
        };
        self.ill.send_if_modified(|known| {
            ill.difference(known).for_each(|device| tracing::warn!(%device, "device {device} fell ill"));
            known.difference(&ill).for_each(|device| tracing::info!(%device, "device {device} healed"));
            let changed = *known != ill;
            *known = ill;
            changed
        });
        Ok(())
    }
}

/// The names in a directory; none if it does not exist. A name that is not text cannot be a
/// device's.
fn names_in(path: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let name = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().into_string().ok()).transpose();
    entries.filter_map(name).collect()
}
