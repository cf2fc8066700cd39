//! Volume capabilities of requests, parsed into what the driver supports.

use rustix::mount::MountFlags;

use crate::proto::csi::VolumeCapability;
use crate::proto::csi::volume_capability::access_mode::Mode;
use crate::proto::csi::volume_capability::{AccessMode, AccessType};

/// Capabilities in one request.
const MAX_CAPABILITIES: usize = 64;

/// How a volume is mounted, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub read_only: bool,
    /// The volume may be mounted at one target path only (`ReadWriteOncePod`).
    pub single_target: bool,
    /// Options of the bind mount besides read-only.
    pub flags: MountFlags,
    /// Group that owns the root directory of the volume.
    pub group: Option<u32>,
}

/// Reason for which a capability is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    #[error("volume capability is missing")]
    Missing,
    #[error("more than {MAX_CAPABILITIES} volume capabilities")]
    TooMany,
    #[error("block volumes are not supported; use volumeMode Filesystem")]
    Block,
    #[error("access mode {mode} is not supported; a volume is used on one node at a time")]
    Mode { mode: &'static str },
    #[error("file system type {fs_type:?} is not supported; leave it empty or use btrfs")]
    FsType { fs_type: String },
    #[error("mount option {flag:?} is not supported; use ro, nosuid, nodev, noexec or noatime")]
    MountFlag { flag: String },
    #[error("volume_mount_group {group:?} is not a group id")]
    Group { group: String },
}

impl Access {
    pub fn parse(capability: &VolumeCapability) -> Result<Self, AccessError> {
        let mode = capability.access_mode.as_ref().map_or(Mode::Unknown, AccessMode::mode);
        let (mut read_only, single_target) = match mode {
            Mode::SingleNodeWriter | Mode::SingleNodeMultiWriter => (false, false),
            Mode::SingleNodeReaderOnly => (true, false),
            Mode::SingleNodeSingleWriter => (false, true),
            Mode::Unknown | Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => {
                return Err(AccessError::Mode { mode: mode.as_str_name() });
            }
        };
        let mount = match &capability.access_type {
            Some(AccessType::Mount(mount)) => mount,
            Some(AccessType::Block(_)) => return Err(AccessError::Block),
            None => return Err(AccessError::Missing),
        };
        if !["", "btrfs"].contains(&mount.fs_type.as_str()) {
            return Err(AccessError::FsType { fs_type: mount.fs_type.clone() });
        }
        let mut flags = MountFlags::empty();
        for flag in &mount.mount_flags {
            match flag.as_str() {
                "ro" => read_only = true,
                "nosuid" => flags |= MountFlags::NOSUID,
                "nodev" => flags |= MountFlags::NODEV,
                "noexec" => flags |= MountFlags::NOEXEC,
                "noatime" => flags |= MountFlags::NOATIME,
                _ => return Err(AccessError::MountFlag { flag: flag.clone() }),
            }
        }
        let group = match mount.volume_mount_group.as_str() {
            "" => None,
            group => Some(group.parse().map_err(|_| AccessError::Group { group: group.to_owned() })?),
        };
        Ok(Self { read_only, single_target, flags, group })
    }

    /// Parses the capabilities of a request, which must not be empty.
    pub fn parse_all(capabilities: &[VolumeCapability]) -> Result<Vec<Self>, AccessError> {
        match capabilities.len() {
            0 => Err(AccessError::Missing),
            1..=MAX_CAPABILITIES => capabilities.iter().map(Self::parse).collect(),
            _ => Err(AccessError::TooMany),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::csi::volume_capability::{BlockVolume, MountVolume};

    fn capability(mode: Mode, mount: MountVolume) -> VolumeCapability {
        VolumeCapability {
            access_mode: Some(AccessMode { mode: mode.into() }),
            access_type: Some(AccessType::Mount(mount)),
        }
    }

    fn parse_mode(mode: Mode) -> Option<(bool, bool)> {
        let access = Access::parse(&capability(mode, MountVolume::default())).ok()?;
        Some((access.read_only, access.single_target))
    }

    #[test]
    fn single_node_modes_are_supported() {
        assert_eq!(parse_mode(Mode::SingleNodeWriter), Some((false, false)));
        assert_eq!(parse_mode(Mode::SingleNodeMultiWriter), Some((false, false)));
        assert_eq!(parse_mode(Mode::SingleNodeReaderOnly), Some((true, false)));
        assert_eq!(parse_mode(Mode::SingleNodeSingleWriter), Some((false, true)));
        for mode in [Mode::Unknown, Mode::MultiNodeReaderOnly, Mode::MultiNodeSingleWriter, Mode::MultiNodeMultiWriter]
        {
            assert_eq!(parse_mode(mode), None, "{mode:?}");
        }
    }

    #[test]
    fn mount_options_and_group_are_parsed() {
        let mount = MountVolume {
            fs_type: "btrfs".into(),
            mount_flags: vec!["ro".into(), "nosuid".into(), "nodev".into()],
            volume_mount_group: "1000".into(),
        };
        let access = Access::parse(&capability(Mode::SingleNodeWriter, mount)).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(access, Access { read_only: true, single_target: false, flags, group: Some(1000) });
    }

    #[test]
    fn unsupported_types_and_options_are_rejected() {
        let reject = |mount: MountVolume| Access::parse(&capability(Mode::SingleNodeWriter, mount)).unwrap_err();
        let flags = MountVolume { mount_flags: vec!["suid".into()], ..MountVolume::default() };
        assert_eq!(reject(flags), AccessError::MountFlag { flag: "suid".into() });
        let fs_type = MountVolume { fs_type: "ext4".into(), ..MountVolume::default() };
        assert_eq!(reject(fs_type), AccessError::FsType { fs_type: "ext4".into() });
        let group = MountVolume { volume_mount_group: "users".into(), ..MountVolume::default() };
        assert_eq!(reject(group), AccessError::Group { group: "users".into() });
        let mut block = capability(Mode::SingleNodeWriter, MountVolume::default());
        block.access_type = Some(AccessType::Block(BlockVolume {}));
        assert_eq!(Access::parse(&block), Err(AccessError::Block));
        assert_eq!(Access::parse_all(&[]), Err(AccessError::Missing));
        assert_eq!(Access::parse_all(&vec![block; 65]), Err(AccessError::TooMany));
    }
}
