//! File operations that respect concurrent readers, symbolic links and permissions.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// The mode of new files.
const PRIVATE_MODE: u32 = 0o600;

/// Reads a file; empty if it does not exist.
pub fn read_or_empty(path: &Path) -> io::Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// Creates a directory and its parents with mode 0700. An existing one keeps its mode.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Replaces the content of a file atomically and durably: readers see the old or the new content.
///
/// Follows symbolic links, so that a linked dotfile stays linked. An existing file keeps its mode; a new one is private.
pub fn write_atomic(path: &Path, content: &[u8]) -> io::Result<()> {
    let target = resolve_link(path)?;
    let mode = match std::fs::metadata(&target) {
        Ok(metadata) => metadata.permissions().mode() & 0o7777,
        Err(error) if error.kind() == io::ErrorKind::NotFound => PRIVATE_MODE,
        Err(error) => return Err(error),
    };
    persist(&target, content, mode)
}

/// As [`write_atomic`], and makes the file private even if it was not before.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    persist(&resolve_link(path)?, content, PRIVATE_MODE)
}

fn resolve_link(path: &Path) -> io::Result<std::path::PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        other => other,
    }
}

fn persist(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let mut file = tempfile::Builder::new().prefix(".odc-").tempfile_in(directory)?;
    file.write_all(content)?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn write_atomic_keeps_links_and_modes() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("dotfiles"), directory.path().join("config"));
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("dotfiles", &link).unwrap();
        write_atomic(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert_eq!(mode(&file), 0o640);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "no temporary file is left");
        write_private(&link, b"secret").unwrap();
        assert_eq!((mode(&file), link.is_symlink()), (0o600, true));
    }

    #[test]
    fn new_files_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        create_private_dir(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        write_atomic(&path.join("file"), b"x").unwrap();
        assert_eq!(mode(&path.join("file")), 0o600);
        assert_eq!(read_or_empty(&path.join("other")).unwrap(), b"");
    }
}
