//! Writes the account files of a server: copies of the image's own in which the user exists, so that `id`, `git`, `ssh`
//! and `sudo` know who they are talking to.
//!
//! Runs in the user's image, before the server. The pod mounts the copies over the image's files; the image itself is
//! only read, and however odd its files are, there is a result. What the result is decide [`passwd`] and [`group`].

pub mod account;
pub mod group;
pub mod passwd;

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::OFlags;
use rustix::process::{Gid, getgid, getgroups, getuid};

use crate::args;
use crate::prepare::account::{FullName, Home, UserName};
use crate::prepare::passwd::User;
use crate::replace::replace;
use crate::shell;

/// More than any system looks through at every lookup; what is beyond it is left out.
const LONGEST: u64 = 8 << 20;

const SUDO: [&str; 3] = ["/usr/bin/sudo", "/bin/sudo", "/usr/local/bin/sudo"];

pub fn run(args: &args::Prepare) -> anyhow::Result<()> {
    prepare(args, Path::new("/"))
}

/// Mends the entries in the image's own files, for the user this runs as. Programs that add users keep working on them.
pub fn in_place(home: Home) -> anyhow::Result<()> {
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

/// `root` is the image.
fn prepare(args: &args::Prepare, root: &Path) -> anyhow::Result<()> {
    let args::Prepare { to, uid, gid, groups, name, full_name, home, sudo } = args;
    let uid = uid.unwrap_or_else(|| getuid().as_raw());
    let gid = gid.unwrap_or_else(|| getgid().as_raw());
    let groups = match groups {
        Some(groups) => groups.clone(),
        None => getgroups().context("asking for our groups")?.into_iter().map(Gid::as_raw).collect(),
    };
    fs::create_dir_all(to).with_context(|| format!("making the directory {}", to.display()))?;

    let user = User {
        uid,
        gid,
        name: name.as_str(),
        full_name: full_name.as_ref().map(FullName::as_str),
        home: home.as_ref().map(Home::as_str),
        shell: shell::for_people(root),
    };
    let usable = |shell: &str| shell::runs(root, shell);
    let accounts = passwd::merge(&read(&root.join("etc/passwd")), &user, usable);
    let groups = group::merge(&read(&root.join("etc/group")), gid, &groups, &accounts.name);
    write(&to.join("passwd"), 0o644, &accounts.text)?;
    write(&to.join("group"), 0o644, &groups)?;
    if *sudo {
        let there = SUDO.iter().any(|sudo| shell::runs(root, sudo));
        // sudo ignores a file that others can write to or that is not root's; the owner is whoever runs this.
        write(&to.join("sudoers"), 0o440, sudoers(uid, there).as_bytes())?;
    }
    Ok(())
}

/// A pod that mounts this file needs it to exist, so without sudo in the image it only says so.
fn sudoers(uid: u32, there: bool) -> String {
    if there { format!("#{uid} ALL=(ALL:ALL) NOPASSWD: ALL\n") } else { "# This image has no sudo.\n".to_owned() }
}

fn write(path: &Path, mode: u32, content: &[u8]) -> anyhow::Result<()> {
    replace(path, mode, |file| file.write_all(content)).with_context(|| format!("writing {}", path.display()))
}

/// What can be had of one of the image's files: nothing if it cannot be read, whole lines up to the limit if it is huge.
fn read(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    match regular(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut content)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            say(&format!("{} is taken as empty: {error}", path.display()));
            return Vec::new();
        }
    }
    if content.len() as u64 > LONGEST {
        say(&format!("{} is huge; all beyond {} MiB is left out", path.display(), LONGEST >> 20));
        let end = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        content.truncate(end);
    }
    content
}

/// Opened without waiting, because the image may have put a pipe there.
fn regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

fn say(line: &str) {
    // Of interest to somebody who looks into the container's log, and to nobody else.
    let _ = writeln!(io::stderr(), "odc-agent: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Agent, Command};
    use clap::Parser as _;
    use std::os::unix::fs::PermissionsExt as _;
    use tempfile::TempDir;

    /// An image with the given files, and what became of them.
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
            let typed = ["odc-agent", "prepare", "--to", to.to_str().unwrap(), "--uid=1000", "--gid=1000"];
            let agent = Agent::parse_from(typed.into_iter().chain(flags.split_whitespace()));
            let Command::Prepare(args) = agent.command else { panic!() };
            prepare(&args, self.0.path()).unwrap();
        }

        fn result(&self, name: &str) -> String {
            String::from_utf8_lossy(&fs::read(self.0.path().join("to").join(name)).unwrap()).into_owned()
        }
    }

    #[test]
    fn an_empty_image_gets_files_with_the_user_alone() {
        let image = Image::new();
        image.prepare("--groups 1000,2000");
        assert_eq!(image.result("passwd"), "dev:*:1000:1000:dev:/home/dev:/usr/sbin/nologin\n");
        assert_eq!(image.result("group"), "dev:*:1000:\ngroup2000:*:2000:dev\n");
        assert!(!image.0.path().join("to/sudoers").exists());
    }

    #[test]
    fn the_second_time_changes_nothing() {
        let image = Image::new().file("bin/sh", "").file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
        image.prepare("--sudo --home /data");
        let first = ["passwd", "group", "sudoers"].map(|name| image.result(name));
        image.prepare("--sudo --home /data");
        assert_eq!(first, ["passwd", "group", "sudoers"].map(|name| image.result(name)));
    }

    #[test]
    fn sudo_is_granted_only_where_there_is_one() {
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
    fn odd_files_are_survived() {
        let ours = "dev:*:1000:1000:dev:/home/dev:/usr/sbin/nologin\n";
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
            assert_eq!(image.result("passwd"), ours);
        }
    }

    #[test]
    fn a_huge_file_is_cut_at_a_line() {
        let line = b"somebody:x:9:9::/:/bin/sh\n";
        let count = usize::try_from(LONGEST).unwrap() / line.len();
        let image = Image::new().file("etc/passwd", line.repeat(count + 10));
        image.prepare("");
        let lines = image.result("passwd");
        assert_eq!(lines.lines().count(), count + 1);
        assert!(lines.ends_with("\ndev:*:1000:1000:dev:/home/dev:/usr/sbin/nologin\n"));
    }
}
