//! `odc-agent prepare`: writes copies of the image's passwd and group files with an entry for the user, so that `id`,
//! `git`, `ssh` and `sudo` know the user.
//!
//! Runs in the user's image before the server starts. The pod mounts the copies over the image's files. The image
//! itself is only read, and malformed files never prevent a result. [`passwd`] and [`group`] compute the content.

pub mod group;
pub mod passwd;
pub mod passwd_fields;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::OFlags;
use rustix::process::{Gid, getgid, getgroups, getuid};

use crate::accounts::passwd::User;
use crate::accounts::passwd_fields::{FullName, Home, UserName};
use crate::args;
use crate::atomic_write::write_atomic;
use crate::bounded_read::read_from;
use crate::image_programs;

/// Only the start of a larger file is used.
const MAX_FILE_BYTES: u64 = 8 << 20;

const SUDO_PATHS: [&str; 3] = ["/usr/bin/sudo", "/bin/sudo", "/usr/local/bin/sudo"];

pub fn run(args: &args::Prepare) -> anyhow::Result<()> {
    prepare(args, Path::new("/"))
}

/// Updates the entries of the current user in the image's own files, so that programs that add users keep working.
pub fn update_in_place(home: Home) -> anyhow::Result<()> {
    let args = args::Prepare {
        to: "/etc".into(),
        uid: None,
        gid: None,
        groups: None,
        name: UserName::default(),
        full_name: None,
        home: Some(home),
        sudo: false,
    };
    run(&args)
}

/// `root` is the root directory of the image.
fn prepare(args: &args::Prepare, root: &Path) -> anyhow::Result<()> {
    let args::Prepare { to, uid, gid, groups, name, full_name, home, sudo } = args;
    let uid = uid.unwrap_or_else(|| getuid().as_raw());
    let gid = gid.unwrap_or_else(|| getgid().as_raw());
    let groups = match groups {
        Some(groups) => groups.clone(),
        None => getgroups().context("cannot read supplementary groups")?.into_iter().map(Gid::as_raw).collect(),
    };
    fs::create_dir_all(to).with_context(|| format!("cannot create directory {}", to.display()))?;

    let user = User {
        uid,
        gid,
        name: name.as_str(),
        full_name: full_name.as_ref().map(FullName::as_str),
        home: home.as_ref().map(Home::as_str),
        shell: image_programs::interactive_shell(root),
    };
    let is_executable = |shell: &str| image_programs::is_executable(root, shell);
    let passwd = passwd::merge(&read(&root.join("etc/passwd")), &user, is_executable);
    let groups = group::merge(&read(&root.join("etc/group")), gid, &groups, &passwd.user_name);
    write(&to.join("passwd"), 0o644, &passwd.content)?;
    write(&to.join("group"), 0o644, &groups)?;
    if *sudo {
        let has_sudo = SUDO_PATHS.iter().any(|sudo| image_programs::is_executable(root, sudo));
        // sudo ignores a file that is writable by others or not owned by root. The owner is the user of this process.
        write(&to.join("sudoers"), 0o440, sudoers(uid, has_sudo).as_bytes())?;
    }
    Ok(())
}

/// The file is written even if the image has no sudo, because the pod mounts it.
fn sudoers(uid: u32, has_sudo: bool) -> String {
    if has_sudo { format!("#{uid} ALL=(ALL:ALL) NOPASSWD: ALL\n") } else { "# This image has no sudo.\n".to_owned() }
}

fn write(path: &Path, mode: u32, content: &[u8]) -> anyhow::Result<()> {
    write_atomic(path, mode, |file| file.write_all(content)).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a file of the image: nothing if it cannot be read, whole lines up to the limit if it is too large.
fn read(path: &Path) -> Vec<u8> {
    let mut content = match open_regular(path).and_then(|file| read_from(file, MAX_FILE_BYTES + 1)) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            warn(&format!("cannot read {}, treating it as empty: {error}", path.display()));
            return Vec::new();
        }
    };
    if content.len() as u64 > MAX_FILE_BYTES {
        let max_mib = MAX_FILE_BYTES >> 20;
        warn(&format!("{} is larger than {max_mib} MiB; only the first {max_mib} MiB are used", path.display()));
        let end = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        content.truncate(end);
    }
    content
}

/// Opens without blocking, because the path may be a FIFO.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

fn warn(line: &str) {
    let _ = writeln!(io::stderr(), "odc-agent: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;
    use std::os::unix::fs::PermissionsExt as _;
    use tempfile::TempDir;

    /// An image and the files that were prepared for it.
    struct Image(TempDir);

    impl Image {
        fn new() -> Self {
            let image = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(image.0.path().join("etc")).unwrap();
            image
        }

        fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            self
        }

        fn prepare(&self, flags: &str) {
            let to = self.0.path().join("to");
            let args = ["odc-agent", "prepare", "--to", to.to_str().unwrap(), "--uid=1000", "--gid=1000"];
            let cli = Cli::parse_from(args.into_iter().chain(flags.split_whitespace()));
            let Command::Prepare(args) = cli.command else { panic!() };
            prepare(&args, self.0.path()).unwrap();
        }

        fn result(&self, name: &str) -> String {
            String::from_utf8_lossy(&fs::read(self.0.path().join("to").join(name)).unwrap()).into_owned()
        }
    }

    #[test]
    fn empty_image_gets_files_with_only_the_user() {
        let image = Image::new();
        image.prepare("--groups 1000,2000");
        assert_eq!(image.result("passwd"), "dev:*:1000:1000:dev:/home/dev:/usr/sbin/nologin\n");
        assert_eq!(image.result("group"), "dev:*:1000:\ngroup2000:*:2000:dev\n");
        assert!(!image.0.path().join("to/sudoers").exists());
    }

    #[test]
    fn prepare_is_idempotent() {
        let image = Image::new().file("bin/sh", "").file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
        image.prepare("--sudo --home /data");
        let first = ["passwd", "group", "sudoers"].map(|name| image.result(name));
        image.prepare("--sudo --home /data");
        assert_eq!(first, ["passwd", "group", "sudoers"].map(|name| image.result(name)));
    }

    #[test]
    fn sudo_is_granted_only_if_installed() {
        let image = Image::new();
        image.prepare("--sudo");
        assert_eq!(image.result("sudoers"), "# This image has no sudo.\n");
        let image = image.file("usr/bin/sudo", "");
        image.prepare("--sudo");
        assert_eq!(image.result("sudoers"), "#1000 ALL=(ALL:ALL) NOPASSWD: ALL\n");
        let mode = image.0.path().join("to/sudoers").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o440);
    }

    #[test]
    fn unreadable_files_are_treated_as_empty() {
        let expect = "dev:*:1000:1000:dev:/home/dev:/usr/sbin/nologin\n";
        let directory = Image::new();
        fs::create_dir(directory.0.path().join("etc/passwd")).unwrap();
        let pipe = Image::new();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            pipe.0.path().join("etc/passwd"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let dangling = Image::new();
        std::os::unix::fs::symlink("/nowhere/passwd", dangling.0.path().join("etc/passwd")).unwrap();
        for image in [directory, pipe, dangling] {
            image.prepare("");
            assert_eq!(image.result("passwd"), expect);
        }
    }

    #[test]
    fn only_whole_lines_of_an_oversized_file_are_used() {
        let line = b"other:x:9:9::/:/bin/sh\n";
        let count = usize::try_from(MAX_FILE_BYTES).unwrap() / line.len();
        let image = Image::new().file("etc/passwd", line.repeat(count + 10));
        image.prepare("");
        let lines = image.result("passwd");
        assert_eq!(lines.lines().count(), count + 1);
        assert!(lines.ends_with("\ndev:*:1000:1000:dev:/home/dev:/usr/sbin/nologin\n"));
    }
}
