//! SFTP packets: parses requests and serializes responses. No I/O.
//!
//! Names and sections are those of draft-ietf-secsh-filexfer-02. Extensions are those of OpenSSH's `PROTOCOL` file.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::serve::sftp::attrs::FileAttrs;
use crate::serve::sftp::status::Status;

// Packet types, section 3.
const SSH_FXP_INIT: u8 = 1;
const SSH_FXP_VERSION: u8 = 2;
const SSH_FXP_OPEN: u8 = 3;
const SSH_FXP_CLOSE: u8 = 4;
const SSH_FXP_READ: u8 = 5;
const SSH_FXP_WRITE: u8 = 6;
const SSH_FXP_LSTAT: u8 = 7;
const SSH_FXP_FSTAT: u8 = 8;
const SSH_FXP_SETSTAT: u8 = 9;
const SSH_FXP_FSETSTAT: u8 = 10;
const SSH_FXP_OPENDIR: u8 = 11;
const SSH_FXP_READDIR: u8 = 12;
const SSH_FXP_REMOVE: u8 = 13;
const SSH_FXP_MKDIR: u8 = 14;
const SSH_FXP_RMDIR: u8 = 15;
const SSH_FXP_REALPATH: u8 = 16;
const SSH_FXP_STAT: u8 = 17;
const SSH_FXP_RENAME: u8 = 18;
const SSH_FXP_READLINK: u8 = 19;
const SSH_FXP_SYMLINK: u8 = 20;
const SSH_FXP_STATUS: u8 = 101;
const SSH_FXP_HANDLE: u8 = 102;
const SSH_FXP_DATA: u8 = 103;
const SSH_FXP_NAME: u8 = 104;
const SSH_FXP_ATTRS: u8 = 105;
const SSH_FXP_EXTENDED: u8 = 200;
const SSH_FXP_EXTENDED_REPLY: u8 = 201;

/// The limit of OpenSSH.
pub const MAX_PACKET: usize = 256 << 10;

/// Leaves room for the header.
pub const MAX_DATA: usize = MAX_PACKET - 1024;

/// Version of the protocol, section 4.
pub const VERSION: u32 = 3;

/// Names and versions of the supported extensions.
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

/// Requests from the client, section 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Open {
        path: Bytes,
        flags: u32,
        attrs: FileAttrs,
    },
    Close {
        handle: Bytes,
    },
    Read {
        handle: Bytes,
        offset: u64,
        length: u32,
    },
    Write {
        handle: Bytes,
        offset: u64,
        data: Bytes,
    },
    Stat {
        path: Bytes,
    },
    Lstat {
        path: Bytes,
    },
    Fstat {
        handle: Bytes,
    },
    Setstat {
        path: Bytes,
        attrs: FileAttrs,
    },
    /// `lsetstat@openssh.com`
    Lsetstat {
        path: Bytes,
        attrs: FileAttrs,
    },
    Fsetstat {
        handle: Bytes,
        attrs: FileAttrs,
    },
    Opendir {
        path: Bytes,
    },
    Readdir {
        handle: Bytes,
    },
    Remove {
        path: Bytes,
    },
    Mkdir {
        path: Bytes,
        attrs: FileAttrs,
    },
    Rmdir {
        path: Bytes,
    },
    Realpath {
        path: Bytes,
    },
    /// Replaces the target only as `posix-rename@openssh.com`.
    Rename {
        from: Bytes,
        to: Bytes,
        replace: bool,
    },
    Readlink {
        path: Bytes,
    },
    /// The order of link and target depends on the client.
    Symlink {
        paths: [Bytes; 2],
    },
    /// `hardlink@openssh.com`
    Hardlink {
        from: Bytes,
        to: Bytes,
    },
    /// `statvfs@openssh.com`
    Statvfs {
        path: Bytes,
    },
    /// `fstatvfs@openssh.com`
    Fstatvfs {
        handle: Bytes,
    },
    /// `fsync@openssh.com`
    Fsync {
        handle: Bytes,
    },
    /// `limits@openssh.com`
    Limits,
    /// `expand-path@openssh.com`
    ExpandPath {
        path: Bytes,
    },
    /// `home-directory`
    HomeDirectory,
    Unknown,
}

/// A packet from the client: the version negotiation, or a request with its ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    Init,
    Request(u32, Request),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed packet")]
pub struct Malformed;

impl Packet {
    /// Parses a packet without its length field. A request of an unknown type is [`Request::Unknown`], so that it can
    /// be answered.
    pub fn parse(mut packet: Bytes) -> Result<Self, Malformed> {
        let packet_type = u8(&mut packet)?;
        if packet_type == SSH_FXP_INIT {
            u32(&mut packet)?;
            return Ok(Self::Init);
        }
        let id = u32(&mut packet)?;
        Ok(Self::Request(id, Request::parse(packet_type, &mut packet)?))
    }
}

impl Request {
    fn parse(packet_type: u8, packet: &mut Bytes) -> Result<Self, Malformed> {
        let packet = &mut *packet;
        Ok(match packet_type {
            SSH_FXP_OPEN => {
                let (path, flags) = (string(packet)?, u32(packet)?);
                Self::Open { path, flags, attrs: FileAttrs::parse(packet)? }
            }
            SSH_FXP_CLOSE => Self::Close { handle: string(packet)? },
            SSH_FXP_READ => Self::Read { handle: string(packet)?, offset: u64(packet)?, length: u32(packet)? },
            SSH_FXP_WRITE => Self::Write { handle: string(packet)?, offset: u64(packet)?, data: string(packet)? },
            SSH_FXP_LSTAT => Self::Lstat { path: string(packet)? },
            SSH_FXP_FSTAT => Self::Fstat { handle: string(packet)? },
            SSH_FXP_SETSTAT => Self::Setstat { path: string(packet)?, attrs: FileAttrs::parse(packet)? },
            SSH_FXP_FSETSTAT => Self::Fsetstat { handle: string(packet)?, attrs: FileAttrs::parse(packet)? },
            SSH_FXP_OPENDIR => Self::Opendir { path: string(packet)? },
            SSH_FXP_READDIR => Self::Readdir { handle: string(packet)? },
            SSH_FXP_REMOVE => Self::Remove { path: string(packet)? },
            SSH_FXP_MKDIR => Self::Mkdir { path: string(packet)?, attrs: FileAttrs::parse(packet)? },
            SSH_FXP_RMDIR => Self::Rmdir { path: string(packet)? },
            SSH_FXP_REALPATH => Self::Realpath { path: string(packet)? },
            SSH_FXP_STAT => Self::Stat { path: string(packet)? },
            SSH_FXP_RENAME => Self::Rename { from: string(packet)?, to: string(packet)?, replace: false },
            SSH_FXP_READLINK => Self::Readlink { path: string(packet)? },
            SSH_FXP_SYMLINK => Self::Symlink { paths: [string(packet)?, string(packet)?] },
            SSH_FXP_EXTENDED => Self::parse_extended(packet)?,
            _ => Self::Unknown,
        })
    }

    /// Parses an extended request, section 8.
    fn parse_extended(packet: &mut Bytes) -> Result<Self, Malformed> {
        Ok(match string(packet)?.as_ref() {
            b"posix-rename@openssh.com" => Self::Rename { from: string(packet)?, to: string(packet)?, replace: true },
            b"statvfs@openssh.com" => Self::Statvfs { path: string(packet)? },
            b"fstatvfs@openssh.com" => Self::Fstatvfs { handle: string(packet)? },
            b"hardlink@openssh.com" => Self::Hardlink { from: string(packet)?, to: string(packet)? },
            b"fsync@openssh.com" => Self::Fsync { handle: string(packet)? },
            b"lsetstat@openssh.com" => Self::Lsetstat { path: string(packet)?, attrs: FileAttrs::parse(packet)? },
            b"limits@openssh.com" => Self::Limits,
            b"expand-path@openssh.com" => Self::ExpandPath { path: string(packet)? },
            // The user name in the request is ignored: there is only one user.
            b"home-directory" => Self::HomeDirectory,
            _ => Self::Unknown,
        })
    }
}

/// Responses to requests, section 7.
#[derive(Debug)]
pub enum Response {
    Status(Status),
    Handle(Bytes),
    Data(Bytes),
    Name(Vec<Entry>),
    Attrs(FileAttrs),
    /// The fields of `statvfs@openssh.com`, in the sequence of the packet.
    Statvfs([u64; 11]),
    Limits {
        max_handles: u64,
    },
}

/// A name with its `ls -l` line and its attributes.
#[derive(Debug, Default)]
pub struct Entry {
    pub name: Vec<u8>,
    pub long_name: Vec<u8>,
    pub attrs: FileAttrs,
}

/// A packet to the client: the version negotiation, or a response with the ID of its request.
#[derive(Debug)]
pub enum Reply {
    Version,
    Response(u32, Response),
}

impl Reply {
    /// Appends the packet with its length field.
    pub fn put(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_u32(0);
        match self {
            Self::Version => {
                out.put_u8(SSH_FXP_VERSION);
                out.put_u32(VERSION);
                for (name, version) in EXTENSIONS {
                    put_string(out, name.as_bytes());
                    put_string(out, version.as_bytes());
                }
            }
            Self::Response(id, response) => response.put(*id, out),
        }
        let length = u32::try_from(out.len() - start - 4).unwrap_or_default();
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

impl Response {
    fn put(&self, id: u32, out: &mut BytesMut) {
        out.put_u8(match self {
            Self::Status(_) => SSH_FXP_STATUS,
            Self::Handle(_) => SSH_FXP_HANDLE,
            Self::Data(_) => SSH_FXP_DATA,
            Self::Name(_) => SSH_FXP_NAME,
            Self::Attrs(_) => SSH_FXP_ATTRS,
            Self::Statvfs(_) | Self::Limits { .. } => SSH_FXP_EXTENDED_REPLY,
        });
        out.put_u32(id);
        match self {
            Self::Status(status) => {
                out.put_u32(status.code);
                put_string(out, status.message.as_bytes());
                // The language tag.
                put_string(out, b"");
            }
            Self::Handle(bytes) | Self::Data(bytes) => put_string(out, bytes),
            Self::Name(entries) => {
                out.put_u32(u32::try_from(entries.len()).unwrap_or_default());
                for Entry { name, long_name, attrs } in entries {
                    put_string(out, name);
                    put_string(out, long_name);
                    attrs.put(out);
                }
            }
            Self::Attrs(attrs) => attrs.put(out),
            Self::Statvfs(fields) => fields.iter().for_each(|field| out.put_u64(*field)),
            Self::Limits { max_handles } => {
                for limit in [MAX_PACKET as u64, MAX_DATA as u64, MAX_DATA as u64, *max_handles] {
                    out.put_u64(limit);
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

    fn packet(packet_type: u8, id: u32, fields: &[&[u8]]) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(packet_type);
        out.put_u32(id);
        for field in fields {
            put_string(&mut out, field);
        }
        out.freeze()
    }

    #[test]
    fn names_need_not_be_utf8() {
        let parsed = Packet::parse(packet(SSH_FXP_REMOVE, 7, &[b"\xff\xfe"])).unwrap();
        assert_eq!(parsed, Packet::Request(7, Request::Remove { path: Bytes::from_static(b"\xff\xfe") }));
    }

    #[test]
    fn truncated_packet_is_malformed() {
        let complete = packet(SSH_FXP_RENAME, 7, &[b"from", b"to"]);
        assert!(Packet::parse(complete.clone()).is_ok());
        for length in 0..complete.len() {
            assert_eq!(Packet::parse(complete.slice(..length)), Err(Malformed), "{length}");
        }
    }

    #[test]
    fn unknown_request_keeps_its_id() {
        assert_eq!(Packet::parse(packet(99, 7, &[])), Ok(Packet::Request(7, Request::Unknown)));
        assert_eq!(
            Packet::parse(packet(SSH_FXP_EXTENDED, 7, &[b"new@example.com"])),
            Ok(Packet::Request(7, Request::Unknown))
        );
    }

    proptest! {
        #[test]
        fn arbitrary_packet_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Packet::parse(Bytes::from(bytes));
        }

        #[test]
        fn attributes_round_trip(
            size: Option<u64>, owner: Option<(u32, u32)>, permissions: Option<u32>, times: Option<(u32, u32)>,
        ) {
            let attrs = FileAttrs { size, owner, permissions, times };
            let mut out = BytesMut::new();
            attrs.put(&mut out);
            let mut packet = out.freeze();
            prop_assert_eq!(FileAttrs::parse(&mut packet), Ok(attrs));
            prop_assert!(packet.is_empty());
        }
    }
}
