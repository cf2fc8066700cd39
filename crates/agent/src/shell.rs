//! Which shell an image has. Whether one is needed is up to the caller.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Best for people first. `/busybox` is where minimal images keep their debugging shell.
const FOR_PEOPLE: [&str; 6] =
    ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh", "/usr/bin/sh", "/busybox/sh"];

/// What scripts without an interpreter of their own are written for comes first.
const FOR_SCRIPTS: [&str; 5] = ["/bin/sh", "/usr/bin/sh", "/busybox/sh", "/bin/bash", "/usr/local/bin/bash"];

/// What an account is given that has no shell to log in to.
pub const NOLOGIN: &str = "/usr/sbin/nologin";

pub fn for_people(root: &Path) -> Option<&'static str> {
    FOR_PEOPLE.into_iter().find(|shell| runs(root, shell))
}

pub fn for_scripts(root: &Path) -> Option<&'static str> {
    FOR_SCRIPTS.into_iter().find(|shell| runs(root, shell))
}

/// Whether `program`, a path in the image, is something we may execute.
pub fn runs(root: &Path, program: &str) -> bool {
    let path = root.join(program.trim_start_matches('/'));
    path.is_file() && access(&path, Access::EXEC_OK).is_ok()
}

/// A program by its name, in the directories that `PATH` lists.
pub fn find(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    let directories = std::env::split_paths(path?).filter(|directory| directory.is_absolute());
    directories
        .map(|directory| directory.join(name))
        .find(|program| program.is_file() && access(program, Access::EXEC_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_best_shell_of_the_image_is_found() {
        let root = tempfile::tempdir().unwrap();
        let add = |path: &str, mode| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let found = || (for_people(root.path()), for_scripts(root.path()));
        assert_eq!(found(), (None, None));
        add("bin/bash", 0o644);
        fs::create_dir_all(root.path().join("usr/bin/sh")).unwrap();
        assert_eq!(found(), (None, None));
        add("busybox/sh", 0o755);
        assert_eq!(found(), (Some("/busybox/sh"), Some("/busybox/sh")));
        add("bin/sh", 0o755);
        assert_eq!(found(), (Some("/bin/sh"), Some("/bin/sh")));
        add("bin/bash", 0o755);
        assert_eq!(found(), (Some("/bin/bash"), Some("/bin/sh")));
    }
}
