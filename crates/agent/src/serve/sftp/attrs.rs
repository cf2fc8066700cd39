//! File attributes, draft-ietf-secsh-filexfer-02 section 5.

use bytes::{BufMut as _, Bytes, BytesMut};
use rustix::fs::Stat;

use crate::serve::sftp::packet::{Malformed, string, u32, u64};

const SSH_FILEXFER_ATTR_SIZE: u32 = 0x1;
const SSH_FILEXFER_ATTR_UIDGID: u32 = 0x2;
const SSH_FILEXFER_ATTR_PERMISSIONS: u32 = 0x4;
const SSH_FILEXFER_ATTR_ACMODTIME: u32 = 0x8;
const SSH_FILEXFER_ATTR_EXTENDED: u32 = 0x8000_0000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttrs {
    pub size: Option<u64>,
    /// User and group ID.
    pub owner: Option<(u32, u32)>,
    pub permissions: Option<u32>,
    /// Access and modification time, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

impl FileAttrs {
    pub fn parse(packet: &mut Bytes) -> Result<Self, Malformed> {
        let flags = u32(packet)?;
        let has = |flag: u32| flags & flag != 0;
        let size = if has(SSH_FILEXFER_ATTR_SIZE) { Some(u64(packet)?) } else { None };
        let owner = if has(SSH_FILEXFER_ATTR_UIDGID) { Some((u32(packet)?, u32(packet)?)) } else { None };
        let permissions = if has(SSH_FILEXFER_ATTR_PERMISSIONS) { Some(u32(packet)?) } else { None };
        let times = if has(SSH_FILEXFER_ATTR_ACMODTIME) { Some((u32(packet)?, u32(packet)?)) } else { None };
        if has(SSH_FILEXFER_ATTR_EXTENDED) {
            // Type and data of each extended attribute; none is supported.
            for _ in 0..u32(packet)? {
                string(packet)?;
                string(packet)?;
            }
        }
        Ok(Self { size, owner, permissions, times })
    }

    pub fn put(&self, packet: &mut BytesMut) {
        let Self { size, owner, permissions, times } = self;
        let flag = |present: bool, flag: u32| if present { flag } else { 0 };
        packet.put_u32(
            flag(size.is_some(), SSH_FILEXFER_ATTR_SIZE)
                | flag(owner.is_some(), SSH_FILEXFER_ATTR_UIDGID)
                | flag(permissions.is_some(), SSH_FILEXFER_ATTR_PERMISSIONS)
                | flag(times.is_some(), SSH_FILEXFER_ATTR_ACMODTIME),
        );
        if let Some(size) = size {
            packet.put_u64(*size);
        }
        if let Some((uid, gid)) = owner {
            packet.put_u32(*uid);
            packet.put_u32(*gid);
        }
        if let Some(permissions) = permissions {
            packet.put_u32(*permissions);
        }
        if let Some((accessed, modified)) = times {
            packet.put_u32(*accessed);
            packet.put_u32(*modified);
        }
    }
}

impl From<&Stat> for FileAttrs {
    fn from(stat: &Stat) -> Self {
        // Times are unsigned 32-bit seconds on the wire.
        let seconds = |time: i64| u32::try_from(time.max(0)).unwrap_or(u32::MAX);
        Self {
            size: Some(u64::try_from(stat.st_size).unwrap_or_default()),
            owner: Some((stat.st_uid, stat.st_gid)),
            permissions: Some(stat.st_mode),
            times: Some((seconds(stat.st_atime), seconds(stat.st_mtime))),
        }
    }
}
