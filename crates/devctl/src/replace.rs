//! Changing files that others read at any moment: they see the old one or the new one, whole.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// What is there; nothing if there is no such file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// For people's eyes only, as OpenSSH wants it. One that is there is left as it is.
pub fn make_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Replaces the content. A link stays a link, and a file keeps its permissions: many keep their files elsewhere.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let real = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        other => other?,
    };
    let directory = real.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let mode = match std::fs::metadata(&real) {
        Ok(metadata) => metadata.permissions().mode() & 0o7777,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0o600,
        Err(error) => return Err(error),
    };
    let mut file = tempfile::Builder::new().prefix(".odc-").tempfile_in(directory)?;
    file.write_all(content)?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(&real)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_permissions_stay() {
        let place = tempfile::tempdir().unwrap();
        let (real, link) = (place.path().join("dotfiles"), place.path().join("config"));
        std::fs::write(&real, "old").unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("dotfiles", &link).unwrap();
        write(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&real).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2, "nothing is left beside it");
    }

    #[test]
    fn new_files_are_private() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        make_directory(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        write(&path.join("file"), b"x").unwrap();
        assert_eq!(std::fs::metadata(path.join("file")).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path.join("other")).unwrap(), b"");
    }
}
