//! Bind mounts of volumes at the target paths of pods.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use crate::access::Access;
use crate::mountinfo::MountTable;

/// Mounts on top of each other at one target. More than one are the result of races.
const MAX_STACKED_MOUNTS: usize = 16;
/// The group may do everything, and new files inherit it.
const GROUP_MODE: u32 = 0o2070;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} is a mount point of something else", target.display())]
    Occupied { target: PathBuf },
    #[error("volume is already mounted at {}, and its access mode allows one target path", target.display())]
    SingleTarget { target: PathBuf },
    #[error("volume is already mounted read-only at {}", target.display())]
    OtherAccess { target: PathBuf },
    #[error("volume is not mounted at {}", target.display())]
    NotPublished { target: PathBuf },
    #[error("more than {MAX_STACKED_MOUNTS} mounts at {}", target.display())]
    TooManyMounts { target: PathBuf },
    #[error("{action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("a mount operation panicked")]
    Task(#[source] tokio::task::JoinError),
}

/// What is left to do to publish a volume.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Bind,
    /// An earlier call was interrupted before the mount became read-only.
    MakeReadOnly,
    Nothing,
}

/// Mounts the volume at `data` at the target, which is created if it does not exist. Repeated calls change nothing.
pub fn publish(data: &Path, target: &Path, access: &Access) -> Result<(), Error> {
    let target = resolve_parent(target)?;
    match plan(&read_mounts()?, data, &target, access)? {
        Step::Nothing => return Ok(()),
        Step::MakeReadOnly => {}
        Step::Bind => {
            if let Some(group) = access.group.filter(|_| !access.read_only) {
                set_group(data, group)?;
            }
            if let Err(error) = fs::create_dir(&target)
                && error.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(fail("creating", &target)(error));
            }
            mount_bind(data, &target).map_err(fail("mounting", &target))?;
        }
    }
    let read_only = if access.read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let flags = access.flags | read_only;
    if flags.is_empty() {
        return Ok(());
    }
    // Flags of a bind mount are ignored on creation. The option of the pool would be lost without NOATIME.
    mount_remount(&target, MountFlags::BIND | MountFlags::NOATIME | flags, "").map_err(fail("mounting", &target))
}

/// Resolves symbolic links in the parent of a path, because the mount table contains none.
fn resolve_parent(path: &Path) -> Result<PathBuf, Error> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path.to_owned()) };
    let parent = fs::canonicalize(parent).map_err(fail("opening the parent of", path))?;
    Ok(parent.join(name))
}

fn plan(mounts: &MountTable, data: &Path, target: &Path, access: &Access) -> Result<Step, Error> {
    let published = mounts.bind_mounts(data);
    if access.single_target
        && let Some(other) = published.iter().find(|mount| mount.target != target)
    {
        return Err(Error::SingleTarget { target: other.target.clone() });
    }
    let Some(mount) = mounts.at(target) else { return Ok(Step::Bind) };
    if !published.contains(&mount) {
        return Err(Error::Occupied { target: target.to_owned() });
    }
    match (mount.read_only, access.read_only) {
        (true, false) => Err(Error::OtherAccess { target: target.to_owned() }),
        (false, true) => Ok(Step::MakeReadOnly),
        (true, true) | (false, false) => Ok(Step::Nothing),
    }
}

/// Lets a group own the root directory of a volume, not the files in it: the time of a mount does not depend on them.
fn set_group(data: &Path, group: u32) -> Result<(), Error> {
    let metadata = fs::metadata(data).map_err(fail("inspecting", data))?;
    if metadata.gid() == group && metadata.mode() & GROUP_MODE == GROUP_MODE {
        return Ok(());
    }
    chown(data, None, Some(group)).map_err(fail("setting the group of", data))?;
    let mode = fs::Permissions::from_mode(metadata.mode() & 0o7777 | GROUP_MODE);
    fs::set_permissions(data, mode).map_err(fail("setting the mode of", data))
}

/// Unmounts the target and removes it. Succeeds if it does not exist. `pool` is a path on the file system of the pool.
pub fn unpublish(pool: &Path, target: &Path) -> Result<(), Error> {
    let target = match fs::canonicalize(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(fail("opening", target))?,
    };
    for _ in 0..MAX_STACKED_MOUNTS {
        let mounts = read_mounts()?;
        let Some(mount) = mounts.at(&target) else {
            return match fs::remove_dir(&target) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fail("removing", &target)(error)),
                _ => Ok(()),
            };
        };
        // A volume that was deleted while mounted has another root, but the same device.
        if mounts.origin(pool).is_none_or(|(device, _)| device != mount.device) {
            return Err(Error::Occupied { target });
        }
        unmount(&target, UnmountFlags::NOFOLLOW).map_err(fail("unmounting", &target))?;
    }
    Err(Error::TooManyMounts { target })
}

/// Checks that a volume is mounted at a path.
pub fn check_published(data: &Path, target: &Path) -> Result<(), Error> {
    let not_published = || Error::NotPublished { target: target.to_owned() };
    let path = match fs::canonicalize(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_published()),
        other => other.map_err(fail("opening", target))?,
    };
    let mounts = read_mounts()?;
    let mount = mounts.at(&path).ok_or_else(not_published)?;
    if mounts.bind_mounts(data).contains(&mount) { Ok(()) } else { Err(not_published()) }
}

fn read_mounts() -> Result<MountTable, Error> {
    MountTable::read().map_err(fail("reading", Path::new("/proc/self/mountinfo")))
}

fn fail<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Error {
    move |source| Error::Io { action, path: path.to_owned(), source: source.into() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const TABLE: &str = "\
40 22 0:35 / /pool rw,noatime - btrfs /dev/loop0 rw
41 22 0:35 /volumes/a/data /pods/ro ro,noatime - btrfs /dev/loop0 rw
42 22 0:35 /volumes/a/data /pods/rw rw,noatime - btrfs /dev/loop0 rw
43 22 0:37 / /pods/tmp rw - tmpfs tmpfs rw
";

    fn check(target: &str, read_only: bool, expected: Option<&Step>) {
        let mounts = MountTable::parse(TABLE.as_bytes());
        let access = Access { read_only, single_target: false, flags: MountFlags::empty(), group: None };
        let step = plan(&mounts, Path::new("/pool/volumes/a/data"), Path::new(target), &access);
        assert_eq!(step.ok().as_ref(), expected, "{target}");
    }

    #[test]
    fn repeated_calls_do_only_what_is_left() {
        check("/pods/new", false, Some(&Step::Bind));
        check("/pods/rw", false, Some(&Step::Nothing));
        check("/pods/rw", true, Some(&Step::MakeReadOnly));
        check("/pods/ro", true, Some(&Step::Nothing));
        check("/pods/ro", false, None);
        check("/pods/tmp", false, None);
    }

    #[test]
    fn setting_the_group_leaves_the_files_as_they_are() {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
        for number in 0..10_000 {
            fs::write(home.path().join(number.to_string()), "").unwrap();
        }
        fs::create_dir(home.path().join("directory")).unwrap();
        let files = || {
            let entries = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap());
            // The change time also shows a write of the same owner or mode.
            let status =
                |metadata: fs::Metadata| (metadata.mode(), metadata.gid(), metadata.ctime(), metadata.ctime_nsec());
            entries.map(|entry| (entry.file_name(), status(entry.metadata().unwrap()))).collect::<BTreeMap<_, _>>()
        };
        let before = files();
        // A group that also an unprivileged owner can set.
        let group = fs::metadata(home.path()).unwrap().gid();
        set_group(home.path(), group).unwrap();
        assert_eq!(fs::metadata(home.path()).unwrap().mode() & 0o7777, 0o2770);
        assert_eq!(files(), before);
    }

    #[test]
    fn single_target_volume_is_mounted_once() {
        let mounts = MountTable::parse(TABLE.as_bytes());
        let access = Access { read_only: false, single_target: true, flags: MountFlags::empty(), group: None };
        let plan = |volume: &str| {
            plan(&mounts, &Path::new("/pool/volumes").join(volume).join("data"), Path::new("/pods/new"), &access)
        };
        assert!(matches!(plan("a"), Err(Error::SingleTarget { .. })));
        assert_eq!(plan("b").ok(), Some(Step::Bind));
    }
}
