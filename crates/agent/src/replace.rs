//! Files that change as a whole: a reader sees the old content or the new one, never a part.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Writes a file beside `path`, then gives it that name. The mode is set whatever the umask says.
///
/// One writer at a time is assumed. What a killed one left is overwritten by the next. Nothing is synced: these files
/// are of no use after a power loss, because the container is started anew.
pub fn replace(path: &Path, mode: u32, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut next = OsString::from(path);
    next.push(".next");
    // Without this, a file that an earlier life made read-only could not be opened again.
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Nobody else may read what is being written, and nobody's link is followed.
    let created = OpenOptions::new().write(true).create_new(true).mode(mode & 0o600).open(&next);
    let replaced = created.and_then(|mut file| {
        write(&mut file)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        fs::rename(&next, path)
    });
    // On a full disk half a file would only be in the way.
    replaced.inspect_err(|_| drop(fs::remove_file(&next)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn an_old_file_is_replaced_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (text, mode) in [("one", 0o440), ("two", 0o755)] {
            replace(&path, mode, |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, mode);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace(&path, 0o644, |file| file.write_all(b"old")).unwrap();
        replace(&path, 0o644, |_| Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
