//! Packets: requests are read, replies are written. No file is touched here.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::serve::sftp::attributes::Attributes;
use crate::serve::sftp::problem::Status;

/// As with OpenSSH.
pub const LARGEST_PACKET: usize = 256 << 10;

/// What fits into a packet beside its header.
pub const LARGEST_DATA: usize = LARGEST_PACKET - 1024;

pub const VERSION: u32 = 3;

/// Names and versions of what we can beyond the protocol.
const EXTENSIONS: [(&str, &str); 9] = [
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("lsetstat@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("expand-path@openssh.com", "1"),
    ("home-directory", "1"),
];

/// A name in the file system, or a handle we gave.
pub type Name = Bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Open {
        path: Name,
        flags: u32,
        attributes: Attributes,
    },
    Close {
        handle: Name,
    },
    Read {
        handle: Name,
        offset: u64,
        length: u32,
    },
    Write {
        handle: Name,
        offset: u64,
        data: Bytes,
    },
    Stat {
        path: Name,
    },
    StatLink {
        path: Name,
    },
    StatHandle {
        handle: Name,
    },
    Set {
        path: Name,
        attributes: Attributes,
    },
    SetLink {
        path: Name,
        attributes: Attributes,
    },
    SetHandle {
        handle: Name,
        attributes: Attributes,
    },
    OpenDirectory {
        path: Name,
    },
    ReadDirectory {
        handle: Name,
    },
    Remove {
        path: Name,
    },
    MakeDirectory {
        path: Name,
        attributes: Attributes,
    },
    RemoveDirectory {
        path: Name,
    },
    RealPath {
        path: Name,
    },
    Rename {
        from: Name,
        to: Name,
        replace: bool,
    },
    ReadLink {
        path: Name,
    },
    /// Which is the link and which its target depends on the client.
    SymbolicLink {
        ends: [Name; 2],
    },
    HardLink {
        from: Name,
        to: Name,
    },
    FileSystem {
        path: Name,
    },
    FileSystemOfHandle {
        handle: Name,
    },
    Sync {
        handle: Name,
    },
    Limits,
    ExpandPath {
        path: Name,
    },
    HomeDirectory,
    Unknown,
}

/// The first packet, or one with a number to answer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    Begin,
    Request(u32, Request),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet does not say what its kind says")]
pub struct Malformed;

impl Packet {
    /// Without its length. What cannot even be numbered is malformed; what is numbered but cannot be read is unknown.
    pub fn parse(mut packet: Bytes) -> Result<Self, Malformed> {
        let kind = u8(&mut packet)?;
        if kind == 1 {
            u32(&mut packet)?;
            return Ok(Self::Begin);
        }
        let id = u32(&mut packet)?;
        Ok(Self::Request(id, Request::parse(kind, &mut packet)?))
    }
}

impl Request {
    fn parse(kind: u8, packet: &mut Bytes) -> Result<Self, Malformed> {
        let packet = &mut *packet;
        Ok(match kind {
            3 => {
                let (path, flags) = (string(packet)?, u32(packet)?);
                Self::Open { path, flags, attributes: Attributes::parse(packet)? }
            }
            4 => Self::Close { handle: string(packet)? },
            5 => Self::Read { handle: string(packet)?, offset: u64(packet)?, length: u32(packet)? },
            6 => Self::Write { handle: string(packet)?, offset: u64(packet)?, data: string(packet)? },
            7 => Self::StatLink { path: string(packet)? },
            8 => Self::StatHandle { handle: string(packet)? },
            9 => Self::Set { path: string(packet)?, attributes: Attributes::parse(packet)? },
            10 => Self::SetHandle { handle: string(packet)?, attributes: Attributes::parse(packet)? },
            11 => Self::OpenDirectory { path: string(packet)? },
            12 => Self::ReadDirectory { handle: string(packet)? },
            13 => Self::Remove { path: string(packet)? },
            14 => Self::MakeDirectory { path: string(packet)?, attributes: Attributes::parse(packet)? },
            15 => Self::RemoveDirectory { path: string(packet)? },
            16 => Self::RealPath { path: string(packet)? },
            17 => Self::Stat { path: string(packet)? },
            18 => Self::Rename { from: string(packet)?, to: string(packet)?, replace: false },
            19 => Self::ReadLink { path: string(packet)? },
            20 => Self::SymbolicLink { ends: [string(packet)?, string(packet)?] },
            200 => Self::extended(packet)?,
            _ => Self::Unknown,
        })
    }

    fn extended(packet: &mut Bytes) -> Result<Self, Malformed> {
        Ok(match string(packet)?.as_ref() {
            b"posix-rename@openssh.com" => Self::Rename { from: string(packet)?, to: string(packet)?, replace: true },
            b"statvfs@openssh.com" => Self::FileSystem { path: string(packet)? },
            b"fstatvfs@openssh.com" => Self::FileSystemOfHandle { handle: string(packet)? },
            b"hardlink@openssh.com" => Self::HardLink { from: string(packet)?, to: string(packet)? },
            b"fsync@openssh.com" => Self::Sync { handle: string(packet)? },
            b"lsetstat@openssh.com" => Self::SetLink { path: string(packet)?, attributes: Attributes::parse(packet)? },
            b"limits@openssh.com" => Self::Limits,
            b"expand-path@openssh.com" => Self::ExpandPath { path: string(packet)? },
            // For which user is said too, but there is only one.
            b"home-directory" => Self::HomeDirectory,
            _ => Self::Unknown,
        })
    }
}

#[derive(Debug)]
pub enum Answer {
    Status(Status),
    Handle(Bytes),
    Data(Bytes),
    /// Each with its line of a listing and its attributes.
    Names(Vec<Entry>),
    Attributes(Attributes),
    /// Sizes and counts in the order of the protocol.
    FileSystem([u64; 11]),
    Limits {
        handles: u64,
    },
}

#[derive(Debug, Default)]
pub struct Entry {
    pub name: Vec<u8>,
    pub line: Vec<u8>,
    pub attributes: Attributes,
}

#[derive(Debug)]
pub enum Reply {
    Begin,
    Answer(u32, Answer),
}

impl Reply {
    /// With its length in front.
    pub fn put(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_u32(0);
        match self {
            Self::Begin => {
                out.put_u8(2);
                out.put_u32(VERSION);
                for (name, version) in EXTENSIONS {
                    put_string(out, name.as_bytes());
                    put_string(out, version.as_bytes());
                }
            }
            Self::Answer(id, answer) => answer.put(*id, out),
        }
        let length = u32::try_from(out.len() - start - 4).unwrap_or_default();
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

impl Answer {
    fn put(&self, id: u32, out: &mut BytesMut) {
        let kind = match self {
            Self::Status(_) => 101,
            Self::Handle(_) => 102,
            Self::Data(_) => 103,
            Self::Names(_) => 104,
            Self::Attributes(_) => 105,
            Self::FileSystem(_) | Self::Limits { .. } => 201,
        };
        out.put_u8(kind);
        out.put_u32(id);
        match self {
            Self::Status(status) => {
                out.put_u32(status.code);
                put_string(out, status.text.as_bytes());
                put_string(out, b"");
            }
            Self::Handle(bytes) | Self::Data(bytes) => put_string(out, bytes),
            Self::Names(entries) => {
                out.put_u32(u32::try_from(entries.len()).unwrap_or_default());
                for Entry { name, line, attributes } in entries {
                    put_string(out, name);
                    put_string(out, line);
                    attributes.put(out);
                }
            }
            Self::Attributes(attributes) => attributes.put(out),
            Self::FileSystem(numbers) => numbers.iter().for_each(|number| out.put_u64(*number)),
            Self::Limits { handles } => {
                for number in [LARGEST_PACKET as u64, LARGEST_DATA as u64, LARGEST_DATA as u64, *handles] {
                    out.put_u64(number);
                }
            }
        }
    }
}

fn put_string(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).unwrap_or_default());
    out.put_slice(bytes);
}

fn u8(packet: &mut Bytes) -> Result<u8, Malformed> {
    packet.try_get_u8().map_err(|_| Malformed)
}

pub fn u32(packet: &mut Bytes) -> Result<u32, Malformed> {
    packet.try_get_u32().map_err(|_| Malformed)
}

pub fn u64(packet: &mut Bytes) -> Result<u64, Malformed> {
    packet.try_get_u64().map_err(|_| Malformed)
}

pub fn string(packet: &mut Bytes) -> Result<Bytes, Malformed> {
    let length = u32(packet)? as usize;
    if length > packet.len() {
        return Err(Malformed);
    }
    Ok(packet.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(kind: u8, id: u32, parts: &[&[u8]]) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(kind);
        out.put_u32(id);
        for part in parts {
            put_string(&mut out, part);
        }
        out.freeze()
    }

    #[test]
    fn names_are_bytes() {
        let parsed = Packet::parse(packet(13, 7, &[b"\xff\xfe"])).unwrap();
        assert_eq!(parsed, Packet::Request(7, Request::Remove { path: Bytes::from_static(b"\xff\xfe") }));
    }

    #[test]
    fn a_packet_that_ends_too_early_is_malformed() {
        let whole = packet(18, 7, &[b"from", b"to"]);
        assert!(Packet::parse(whole.clone()).is_ok());
        for length in 0..whole.len() {
            assert_eq!(Packet::parse(whole.slice(..length)), Err(Malformed), "{length}");
        }
    }

    #[test]
    fn what_is_not_known_can_still_be_answered() {
        assert_eq!(Packet::parse(packet(99, 7, &[])), Ok(Packet::Request(7, Request::Unknown)));
        assert_eq!(Packet::parse(packet(200, 7, &[b"new@example.com"])), Ok(Packet::Request(7, Request::Unknown)));
    }

    proptest! {
        #[test]
        fn whatever_comes_it_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Packet::parse(Bytes::from(bytes));
        }

        #[test]
        fn attributes_are_read_as_they_were_written(
            size: Option<u64>, owner: Option<(u32, u32)>, permissions: Option<u32>, times: Option<(u32, u32)>,
        ) {
            let attributes = Attributes { size, owner, permissions, times };
            let mut out = BytesMut::new();
            attributes.put(&mut out);
            let mut packet = out.freeze();
            prop_assert_eq!(Attributes::parse(&mut packet), Ok(attributes));
            prop_assert!(packet.is_empty());
        }
    }
}
