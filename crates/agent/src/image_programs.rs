//! Finds shells and executables in the container image.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// In order of preference. `/busybox` is where minimal images have their debugging shell.
const INTERACTIVE_SHELLS: [&str; 6] =
    ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh", "/usr/bin/sh", "/busybox/sh"];

/// In order of preference; `sh` first, as scripts without an interpreter line are written for it.
const SCRIPT_SHELLS: [&str; 5] = ["/bin/sh", "/usr/bin/sh", "/busybox/sh", "/bin/bash", "/usr/local/bin/bash"];

/// Shell of an account in an image without a shell.
pub const NOLOGIN: &str = "/usr/sbin/nologin";

/// Returns the best interactive shell of the image at `root`.
pub fn interactive_shell(root: &Path) -> Option<&'static str> {
    INTERACTIVE_SHELLS.into_iter().find(|shell| is_executable(root, shell))
}

/// Returns the shell that runs scripts in the image at `root`.
pub fn script_shell(root: &Path) -> Option<&'static str> {
    SCRIPT_SHELLS.into_iter().find(|shell| is_executable(root, shell))
}

/// Reports whether `program`, a path in the image at `root`, is an executable file.
pub fn is_executable(root: &Path, program: &str) -> bool {
    let path = root.join(program.trim_start_matches('/'));
    path.is_file() && access(&path, Access::EXEC_OK).is_ok()
}

/// Searches a program in the directories of `path`, which has the format of `PATH`.
pub fn which(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
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
    fn preferred_executable_shell_is_found() {
        let root = tempfile::tempdir().unwrap();
        let add = |path: &str, mode| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let found = || (interactive_shell(root.path()), script_shell(root.path()));
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
