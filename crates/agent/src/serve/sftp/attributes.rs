//! What is known about a file, as it stands in packets.

use bytes::{BufMut as _, Bytes, BytesMut};
use rustix::fs::Stat;

use crate::serve::sftp::packet::{Malformed, string, u32, u64};

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const PERMISSIONS: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 0x8000_0000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub size: Option<u64>,
    /// User and group.
    pub owner: Option<(u32, u32)>,
    pub permissions: Option<u32>,
    /// Of the last access and of the last change, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

impl Attributes {
    pub fn parse(packet: &mut Bytes) -> Result<Self, Malformed> {
        let flags = u32(packet)?;
        let size = if flags & SIZE == 0 { None } else { Some(u64(packet)?) };
        let owner = if flags & OWNER == 0 { None } else { Some((u32(packet)?, u32(packet)?)) };
        let permissions = if flags & PERMISSIONS == 0 { None } else { Some(u32(packet)?) };
        let times = if flags & TIMES == 0 { None } else { Some((u32(packet)?, u32(packet)?)) };
        if flags & EXTENDED != 0 {
            // Each is a name and a value; there is none that we know.
            for _ in 0..u32(packet)? {
                string(packet)?;
                string(packet)?;
            }
        }
        Ok(Self { size, owner, permissions, times })
    }

    pub fn put(&self, packet: &mut BytesMut) {
        let Self { size, owner, permissions, times } = self;
        let flag = |there: bool, flag: u32| if there { flag } else { 0 };
        packet.put_u32(
            flag(size.is_some(), SIZE)
                | flag(owner.is_some(), OWNER)
                | flag(permissions.is_some(), PERMISSIONS)
                | flag(times.is_some(), TIMES),
        );
        if let Some(size) = size {
            packet.put_u64(*size);
        }
        if let Some((user, group)) = owner {
            packet.put_u32(*user);
            packet.put_u32(*group);
        }
        if let Some(permissions) = permissions {
            packet.put_u32(*permissions);
        }
        if let Some((access, change)) = times {
            packet.put_u32(*access);
            packet.put_u32(*change);
        }
    }
}

impl From<&Stat> for Attributes {
    fn from(stat: &Stat) -> Self {
        // The protocol ends with the century's unsigned seconds.
        let seconds = |time: i64| u32::try_from(time.max(0)).unwrap_or(u32::MAX);
        Self {
            size: Some(u64::try_from(stat.st_size).unwrap_or_default()),
            owner: Some((stat.st_uid, stat.st_gid)),
            permissions: Some(stat.st_mode),
            times: Some((seconds(stat.st_atime), seconds(stat.st_mtime))),
        }
    }
}
