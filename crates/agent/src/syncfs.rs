//! Writes dirty data of the server's file systems to disk with `syncfs(2)`, so that a volume that is snapshotted or
//! detached next is consistent.
//!
//! Only the container's own mounts are synced: `sync(2)` covers every file system of the node, waits for the volumes of
//! other pods, and hangs uninterruptibly on any of their unreachable network mounts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::{fs, io};

use rustix::fs::{Mode, OFlags, open, sync, syncfs};
use rustix::io::Errno;

/// File system types without data that outlives the container: memory, kernel interfaces, and the image's own root.
const EPHEMERAL_FILE_SYSTEMS: [&str; 16] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "debugfs",
    "devpts",
    "devtmpfs",
    "mqueue",
    "nsfs",
    "overlay",
    "proc",
    "ramfs",
    "sysfs",
    "tmpfs",
    "tracefs",
];

/// One thread per file system, so that one that hangs does not delay the others.
#[derive(Debug, Default)]
pub struct FileSystemSync {
    started: bool,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl FileSystemSync {
    /// Starts the threads. After an error, the remaining file systems are left to the kernel's own write-back.
    pub fn start(&mut self) -> io::Result<()> {
        self.started = true;
        // Without a list of the container's mounts, all file systems have to be synced.
        let Ok(mountinfo) = fs::read("/proc/self/mountinfo") else {
            return self.spawn(|| {
                sync();
                Ok(())
            });
        };
        let file_systems = persistent_file_systems(&mountinfo).into_values();
        file_systems.into_iter().try_for_each(|mount_points| self.spawn(move || sync_one(&mount_points)))
    }

    /// Starts a thread for the file system with this directory only.
    pub fn start_at(&mut self, directory: PathBuf) -> io::Result<()> {
        self.started = true;
        self.spawn(move || {
            let failed =
                |error: Errno| io::Error::other(format!("{}: {}", directory.display(), io::Error::from(error)));
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            syncfs(open(&directory, flags, Mode::empty()).map_err(failed)?).map_err(failed)
        })
    }

    pub fn is_done(&self) -> bool {
        self.started && self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Returns the errors of the threads that have finished.
    pub fn failures(&mut self) -> Vec<String> {
        let (done, running) = std::mem::take(&mut self.threads).into_iter().partition(JoinHandle::is_finished);
        self.threads = running;
        let results = done.into_iter().map(|thread| {
            let panicked = |_| Err(io::Error::other("the sync thread panicked"));
            thread.join().unwrap_or_else(panicked)
        });
        results.filter_map(Result::err).map(|error| error.to_string()).collect()
    }

    fn spawn(&mut self, sync: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name("syncfs".to_owned()).spawn(sync)?);
        Ok(())
    }
}

/// Syncs the file system mounted at all of `mount_points` through the first one that is a directory. Single files are
/// mounted too, such as `/etc/hosts`, but their file system is the node's own. So is one that cannot be opened.
fn sync_one(mount_points: &[PathBuf]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut result = Ok(());
    for path in mount_points {
        let with_path = |error: Errno| io::Error::other(format!("{}: {}", path.display(), io::Error::from(error)));
        match open(path, flags, Mode::empty()) {
            Ok(directory) => return syncfs(directory).map_err(with_path),
            Err(Errno::NOTDIR | Errno::ACCESS | Errno::PERM | Errno::NOENT) => {}
            Err(error) => result = Err(with_path(error)),
        }
    }
    result
}

/// Returns the mount points of each writable file system that outlives the container, by device number. `mountinfo` is
/// the content of `/proc/PID/mountinfo`.
fn persistent_file_systems(mountinfo: &[u8]) -> BTreeMap<Vec<u8>, Vec<PathBuf>> {
    let mut file_systems: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (device, mount_point) in mountinfo.split(|byte| *byte == b'\n').filter_map(parse_mount) {
        file_systems.entry(device).or_default().push(mount_point);
    }
    file_systems
}

fn parse_mount(line: &[u8]) -> Option<(Vec<u8>, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let mount_point = fields.nth(1)?;
    let options = fields.next()?;
    // A dash ends the optional fields, see proc_pid_mountinfo(5).
    fields.find(|field| *field == b"-")?;
    let file_system = fields.next()?;
    let super_options = fields.nth(1)?;
    let is_writable = |options: &[u8]| options.split(|byte| *byte == b',').any(|option| option == b"rw");
    let is_ephemeral = EPHEMERAL_FILE_SYSTEMS.iter().any(|ephemeral| ephemeral.as_bytes() == file_system);
    let is_persistent = is_writable(options) && is_writable(super_options) && !is_ephemeral;
    is_persistent.then(|| (device.to_vec(), PathBuf::from(OsString::from_vec(unescape(mount_point)))))
}

/// Decodes the octal escapes that mountinfo uses for blanks and backslashes.
fn unescape(mut path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    while let Some((first, rest)) = path.split_first() {
        path = rest;
        let code = rest.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code.filter(|_| *first == b'\\') {
            Some(code) => {
                decoded.push(code);
                path = &rest[3..];
            }
            None => decoded.push(*first),
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r"
700 600 0:55 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
701 700 0:57 / /proc rw,nosuid - proc proc rw
702 700 0:58 / /dev/shm rw,nosuid - tmpfs shm rw,size=65536k
703 700 259:1 /var/lib/kubelet/pods/1/etc-hosts /etc/hosts rw,relatime - ext4 /dev/nvme0n1p1 rw
704 700 259:1 /var/lib/kubelet/pods/1/volumes/agent /opt/odc ro,relatime - ext4 /dev/nvme0n1p1 rw
705 700 259:7 / /home/dev rw,relatime shared:12 master:3 - ext4 /dev/nvme7n1 rw,discard
706 700 259:7 /sub /with\040blank\134 rw,relatime - ext4 /dev/nvme7n1 rw
707 700 0:90 /data /data rw,relatime - nfs4 server:/data rw,vers=4.2
708 700 0:91 / /models ro,relatime - nfs4 server:/models rw,vers=4.2
709 700 259:9 / /frozen rw,relatime - xfs /dev/nvme9n1 ro
malformed
710 700 259:9 / /half rw";

    #[test]
    fn writable_persistent_file_systems_are_found_once_each() {
        let found: Vec<(String, Vec<String>)> = persistent_file_systems(POD.as_bytes())
            .into_iter()
            .map(|(device, mount_points)| {
                let mount_points = mount_points.into_iter().map(|path| path.to_str().unwrap().to_owned()).collect();
                (String::from_utf8(device).unwrap(), mount_points)
            })
            .collect();
        let expect =
            [("0:90", vec!["/data"]), ("259:1", vec!["/etc/hosts"]), ("259:7", vec!["/home/dev", "/with blank\\"])];
        let expect = expect
            .map(|(device, mount_points)| (device.to_owned(), mount_points.into_iter().map(str::to_owned).collect()));
        assert_eq!(found, expect);
    }

    #[test]
    fn mount_points_are_unescaped() {
        for (escaped, path) in
            [("/a", "/a"), (r"/a\040b", "/a b"), (r"\134040", r"\040"), (r"/a\9", r"/a\9"), (r"\", r"\")]
        {
            assert_eq!(unescape(escaped.as_bytes()), path.as_bytes());
        }
    }

    #[test]
    fn sync_finishes() {
        let mut sync = FileSystemSync::default();
        assert!(!sync.is_done());
        sync.start().unwrap();
        while !sync.is_done() {
            thread::yield_now();
        }
        assert_eq!(sync.failures(), Vec::<String>::new());
    }

    #[test]
    fn one_file_system_is_synced_or_its_failure_reported() {
        let directory = tempfile::tempdir().unwrap();
        for (path, is_synced) in [(directory.path().to_owned(), true), ("/no/such/home".into(), false)] {
            let mut sync = FileSystemSync::default();
            sync.start_at(path).unwrap();
            while !sync.is_done() {
                thread::yield_now();
            }
            assert_eq!(sync.failures().is_empty(), is_synced);
        }
    }

    #[test]
    fn failures_are_reported() {
        let mut sync = FileSystemSync { started: true, ..FileSystemSync::default() };
        sync.spawn(|| Err(io::Error::other("/home/dev: Input/output error"))).unwrap();
        sync.spawn(|| Ok(())).unwrap();
        sync.spawn(|| panic!("expected by the test")).unwrap();
        while !sync.is_done() {
            thread::yield_now();
        }
        assert_eq!(sync.failures(), ["/home/dev: Input/output error", "the sync thread panicked"]);
    }

    #[test]
    fn first_directory_that_opens_is_synced() {
        assert!(sync_one(&["/etc/hostname".into(), "/no/such/path".into()]).is_ok());
        assert!(sync_one(&["/etc/hostname".into(), "/tmp".into()]).is_ok());
        let dir = tempfile::tempdir().unwrap();
        let symlink_loop = dir.path().join("loop");
        std::os::unix::fs::symlink("loop", &symlink_loop).unwrap();
        let error = sync_one(std::slice::from_ref(&symlink_loop)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: ", symlink_loop.display())), "{error}");
        assert!(sync_one(&[symlink_loop, "/tmp".into()]).is_ok());
    }
}
