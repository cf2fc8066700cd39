//! Atomic file replacement.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Writes a temporary file beside `path` and renames it over `path`, so that readers see the old or the new content but
/// never a part. The mode is set regardless of the umask.
///
/// Assumes one writer at a time; a temporary file left by a killed writer is replaced. Nothing is synced: the files are
/// not needed after a power loss, because the container is then started again.
pub fn write_atomic(path: &Path, mode: u32, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut temporary = OsString::from(path);
    temporary.push(".next");
    // A leftover may be read-only and could not be opened for writing.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // `create_new` does not follow symbolic links, and other users cannot read the file while it is written.
    let created = OpenOptions::new().write(true).create_new(true).mode(mode & 0o600).open(&temporary);
    let renamed = created.and_then(|mut file| {
        write(&mut file)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        fs::rename(&temporary, path)
    });
    renamed.inspect_err(|_| drop(fs::remove_file(&temporary)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn existing_file_is_replaced_and_no_temporary_file_remains() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (text, mode) in [("one", 0o440), ("two", 0o755)] {
            write_atomic(&path, mode, |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, mode);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn failed_write_keeps_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        write_atomic(&path, 0o644, |file| file.write_all(b"old")).unwrap();
        write_atomic(&path, 0o644, |_| Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
