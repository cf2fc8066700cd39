//! Writes what the server's file systems still hold in memory, so that a disk that is snapshotted or moved next is whole.
//!
//! Only the container's own mounts: `sync` would write those of the whole node, wait for the disks of others, and hang
//! with any of their dead network mounts in a way that not even a kill ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::{fs, io};

use rustix::fs::{Mode, OFlags, open, sync, syncfs};
use rustix::io::Errno;

/// Kinds that hold nothing beyond the container's life: memory, views of the kernel, and the image's own root.
const TRANSIENT: [&str; 16] = [
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

/// The threads that write, one for each file system, so that none waits for another that hangs.
#[derive(Debug, Default)]
pub struct Flush {
    begun: bool,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Flush {
    /// An error means that not all is being written, and the rest is up to the kernel.
    pub fn begin(&mut self) -> io::Result<()> {
        self.begun = true;
        // Where nobody tells which file systems are ours, it has to be all of them.
        let Ok(mounts) = fs::read("/proc/self/mountinfo") else {
            return self.spawn(|| {
                sync();
                Ok(())
            });
        };
        persistent(&mounts).into_values().try_for_each(|mount_points| self.spawn(move || write(&mount_points)))
    }

    pub fn is_done(&self) -> bool {
        self.begun && self.threads.iter().all(JoinHandle::is_finished)
    }

    /// What could not be written, of what is done.
    pub fn failures(&mut self) -> Vec<String> {
        let (done, rest) = std::mem::take(&mut self.threads).into_iter().partition(JoinHandle::is_finished);
        self.threads = rest;
        let results = done.into_iter().map(|thread| {
            let panicked = |_| Err(io::Error::other("the thread that wrote died"));
            thread.join().unwrap_or_else(panicked)
        });
        results.filter_map(Result::err).map(|error| error.to_string()).collect()
    }

    fn spawn(&mut self, write: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name("flush".to_owned()).spawn(write)?);
        Ok(())
    }
}

/// Writes the file system that is mounted at all these places, by the first that is a directory: single files are mounted
/// too, such as `/etc/hosts`, but their file system is the node's own. So is one that we may not even open.
fn write(mount_points: &[PathBuf]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut broken = Ok(());
    for path in mount_points {
        let named = |error: Errno| io::Error::other(format!("{}: {}", path.display(), io::Error::from(error)));
        match open(path, flags, Mode::empty()) {
            Ok(directory) => return syncfs(directory).map_err(named),
            Err(Errno::NOTDIR | Errno::ACCESS | Errno::PERM | Errno::NOENT) => {}
            Err(error) => broken = Err(named(error)),
        }
    }
    broken
}

/// The writable file systems that outlive the container, by device, with the places where they are mounted. Takes what
/// `/proc/PID/mountinfo` says.
fn persistent(mountinfo: &[u8]) -> BTreeMap<Vec<u8>, Vec<PathBuf>> {
    let mut file_systems: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (device, mount_point) in mountinfo.split(|byte| *byte == b'\n').filter_map(mount) {
        file_systems.entry(device).or_default().push(mount_point);
    }
    file_systems
}

fn mount(line: &[u8]) -> Option<(Vec<u8>, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let mount_point = fields.nth(1)?;
    let options = fields.next()?;
    // Any number of optional fields ends with a dash.
    fields.find(|field| *field == b"-")?;
    let kind = fields.next()?;
    let file_system_options = fields.nth(1)?;
    let writable = |options: &[u8]| options.split(|byte| *byte == b',').any(|option| option == b"rw");
    let transient = TRANSIENT.iter().any(|transient| transient.as_bytes() == kind);
    let wanted = writable(options) && writable(file_system_options) && !transient;
    wanted.then(|| (device.to_vec(), PathBuf::from(OsString::from_vec(unescaped(mount_point)))))
}

/// Blanks and backslashes in a path are written as a backslash and three octal digits.
fn unescaped(mut path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    while let Some((first, rest)) = path.split_first() {
        path = rest;
        let code = rest.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code.filter(|_| *first == b'\\') {
            Some(code) => {
                plain.push(code);
                path = &rest[3..];
            }
            None => plain.push(*first),
        }
    }
    plain
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
    fn the_file_systems_that_can_hold_a_users_data_are_found_once_each() {
        let found: Vec<(String, Vec<String>)> = persistent(POD.as_bytes())
            .into_iter()
            .map(|(device, places)| {
                let places = places.into_iter().map(|place| place.to_str().unwrap().to_owned()).collect();
                (String::from_utf8(device).unwrap(), places)
            })
            .collect();
        let expect =
            [("0:90", vec!["/data"]), ("259:1", vec!["/etc/hosts"]), ("259:7", vec!["/home/dev", "/with blank\\"])];
        let expect =
            expect.map(|(device, places)| (device.to_owned(), places.into_iter().map(str::to_owned).collect()));
        assert_eq!(found, expect);
    }

    #[test]
    fn paths_are_read_as_the_kernel_writes_them() {
        for (written, plain) in
            [("/a", "/a"), (r"/a\040b", "/a b"), (r"\134040", r"\040"), (r"/a\9", r"/a\9"), (r"\", r"\")]
        {
            assert_eq!(unescaped(written.as_bytes()), plain.as_bytes());
        }
    }

    #[test]
    fn writing_ends_by_itself() {
        let mut flush = Flush::default();
        assert!(!flush.is_done());
        flush.begin().unwrap();
        while !flush.is_done() {
            thread::yield_now();
        }
        assert_eq!(flush.failures(), Vec::<String>::new());
    }

    #[test]
    fn what_could_not_be_written_is_told() {
        let mut flush = Flush { begun: true, ..Flush::default() };
        flush.spawn(|| Err(io::Error::other("/home/dev: Input/output error"))).unwrap();
        flush.spawn(|| Ok(())).unwrap();
        flush.spawn(|| panic!("as in a test")).unwrap();
        while !flush.is_done() {
            thread::yield_now();
        }
        assert_eq!(flush.failures(), ["/home/dev: Input/output error", "the thread that wrote died"]);
    }

    #[test]
    fn only_directories_that_can_be_opened_are_written() {
        assert!(write(&["/etc/hostname".into(), "/no/such/place".into()]).is_ok());
        assert!(write(&["/etc/hostname".into(), "/tmp".into()]).is_ok());
        let place = tempfile::tempdir().unwrap();
        let endless = place.path().join("endless");
        std::os::unix::fs::symlink("endless", &endless).unwrap();
        let error = write(std::slice::from_ref(&endless)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: ", endless.display())), "{error}");
        assert!(write(&[endless, "/tmp".into()]).is_ok());
    }
}
