//! Paths in the pool.

use std::path::{Path, PathBuf};

use crate::name::Name;

const DATA: &str = "data";
const VOLUMES: &str = "volumes";

/// Paths of a pool whose root is absolute and contains no symbolic links.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
    volumes: PathBuf,
    snapshots: PathBuf,
}

impl Layout {
    pub fn new(root: PathBuf) -> Self {
        Self { volumes: root.join(VOLUMES), snapshots: root.join("snapshots"), root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn volumes(&self) -> &Path {
        &self.volumes
    }

    pub fn snapshots(&self) -> &Path {
        &self.snapshots
    }

    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub fn volume(&self, name: &Name) -> PathBuf {
        self.volumes.join(name.as_str())
    }

    pub fn snapshot(&self, name: &Name) -> PathBuf {
        self.snapshots.join(name.as_str())
    }

    /// Returns the subvolume of an entry.
    pub fn data(entry: &Path) -> PathBuf {
        entry.join(DATA)
    }
}

/// Reports whether a subvolume was created by a user inside a volume.
///
/// `path` is the path of the subvolume from the root of the file system, `pool` that of the pool.
pub fn is_nested(path: &str, pool: &str) -> bool {
    let prefix =
        [pool.trim_matches('/'), VOLUMES].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    let below = |path: &str, directory: &str| path.strip_prefix(directory)?.strip_prefix('/').map(str::to_owned);
    let inside = below(path, &prefix).and_then(|rest| rest.split_once('/').map(|(_, rest)| rest.to_owned()));
    inside.and_then(|rest| below(&rest, DATA)).is_some_and(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subvolumes_inside_a_volume_are_nested() {
        assert!(is_nested("volumes/a/data/x", "/"));
        assert!(is_nested("srv/odc/volumes/a/data/x/y\nz", "/srv/odc"));
    }

    #[test]
    fn volumes_and_foreign_subvolumes_are_not_nested() {
        for path in
            ["volumes/a/data", "volumes/a/data/", "volumes/a/database/x", "snapshots/a/data/x", "volumesx/a/data/x"]
        {
            assert!(!is_nested(path, "/"), "{path}");
        }
        assert!(!is_nested("volumes/a/data/x", "/srv/odc"));
        assert!(!is_nested("home", "/"));
    }
}
