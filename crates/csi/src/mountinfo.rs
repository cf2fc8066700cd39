//! The mounts of this process, from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor`; mounts of one file system have the same.
    pub device: String,
    /// Mounted directory, from the root of its file system.
    pub root: PathBuf,
    pub target: PathBuf,
    pub read_only: bool,
    pub fs_type: String,
    pub source: PathBuf,
}

/// All mounts in the order in which they were made. A later one hides earlier ones at the same target.
#[derive(Debug)]
pub struct MountTable(Vec<Mount>);

impl MountTable {
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read(MOUNTINFO)?))
    }

    pub(crate) fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(parse_mount).collect())
    }

    /// Returns the visible mount at a path, if it is a mount point.
    pub fn at(&self, target: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|mount| mount.target == target)
    }

    /// Returns the mount that contains a path.
    pub fn containing(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|ancestor| self.at(ancestor))
    }

    /// Returns where else a directory is mounted: the bind mounts of `path` itself.
    pub fn bind_mounts(&self, path: &Path) -> Vec<&Mount> {
        let Some((device, root)) = self.origin(path) else { return Vec::new() };
        self.0.iter().filter(|mount| mount.device == device && mount.root == root).collect()
    }

    /// Returns the device of a path, and the path from the root of its file system.
    pub fn origin(&self, path: &Path) -> Option<(&str, PathBuf)> {
        let mount = self.containing(path)?;
        let rest = path.strip_prefix(&mount.target).ok()?;
        // Joining an empty path would append a slash.
        let root = if rest.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(rest) };
        Some((&mount.device, root))
    }
}

/// Parses `36 35 98:0 /root /target rw,noatime master:1 - ext4 /dev/sda1 rw`.
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    Some(Mount {
        device: text(fields.get(2)?),
        root: unescape(fields.get(3)?),
        target: unescape(fields.get(4)?),
        read_only: fields.get(5)?.split(|byte| *byte == b',').any(|option| option == b"ro"),
        fs_type: text(fields.get(separator + 1)?),
        source: unescape(fields.get(separator + 2)?),
    })
}

/// Replaces octal escapes: the kernel writes a space as `\040`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let escaped =
            tail.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        if let Some(digits) = escaped {
            let value = digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            bytes.push(u8::try_from(value).unwrap_or(b'?'));
            rest = &tail[3..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:35 / /mnt/pool rw,noatime shared:1 - btrfs /dev/loop0 rw,subvolid=5
41 22 0:35 /volumes/a/data /pods/1/with\\040space ro,noatime - btrfs /dev/loop0 rw
42 22 0:35 /volumes/a/data /pods/2 rw,noatime - btrfs /dev/loop0 rw
43 22 0:36 /volumes/a/data /pods/3 rw - btrfs /dev/loop1 rw
44 22 0:37 / /pods/2 rw - tmpfs tmpfs rw
garbage
";

    fn table() -> MountTable {
        MountTable::parse(TABLE.as_bytes())
    }

    #[test]
    fn latest_mount_at_a_target_is_found() {
        let table = table();
        assert_eq!(table.at(Path::new("/pods/2")).map(|mount| mount.fs_type.as_str()), Some("tmpfs"));
        assert!(table.at(Path::new("/pods/1/with space")).is_some_and(|mount| mount.read_only));
        assert_eq!(table.at(Path::new("/mnt/pool/volumes")), None);
    }

    #[test]
    fn bind_mounts_of_a_volume_are_those_of_its_file_system() {
        let table = table();
        let targets = |path: &str| -> Vec<PathBuf> {
            table.bind_mounts(Path::new(path)).into_iter().map(|mount| mount.target.clone()).collect()
        };
        let expected: Vec<PathBuf> = vec!["/pods/1/with space".into(), "/pods/2".into()];
        assert_eq!(targets("/mnt/pool/volumes/a/data"), expected);
        assert_eq!(targets("/mnt/pool/volumes/b/data"), Vec::<PathBuf>::new());
        assert_eq!(targets("/mnt/pool"), [PathBuf::from("/mnt/pool")]);
    }

    #[test]
    fn escapes_are_replaced() {
        assert_eq!(unescape(b"a\\040b\\011\\134c\\9"), Path::new("a b\t\\c\\9"));
    }
}
