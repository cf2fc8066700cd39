//! The envelope of requests and replies, which carries the protocol version.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::line::{LineTooLong, encode_line};
use crate::reply::Reply;
use crate::request::{NAMES, Request};

/// The protocol version. It is raised for changes that a reader of the previous version would misinterpret.
pub const VERSION: u32 = 1;

/// Why a line could not be read. The text is sent back to the peer.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("malformed message: {0}")]
    Malformed(serde_json::Error),
    #[error("unsupported version {0}, expected {VERSION}")]
    Version(u64),
    #[error("unknown request {0:?}")]
    UnknownRequest(String),
    #[error("invalid message: {0}")]
    Invalid(serde_json::Error),
}

impl From<ProtocolError> for Reply {
    fn from(error: ProtocolError) -> Self {
        Self::refused(error.to_string())
    }
}

#[derive(Serialize)]
struct RequestEnvelope<'a> {
    version: u32,
    request: &'a Request,
}

#[derive(Serialize)]
struct ReplyEnvelope<'a> {
    version: u32,
    reply: &'a Reply,
}

/// Encodes a request as a line, including the line break.
pub fn write_request(request: &Request) -> Result<Vec<u8>, LineTooLong> {
    encode_line(&RequestEnvelope { version: VERSION, request })
}

/// Encodes a reply as a line, including the line break.
pub fn write_reply(reply: &Reply) -> Result<Vec<u8>, LineTooLong> {
    encode_line(&ReplyEnvelope { version: VERSION, reply })
}

/// Decodes a request from a line without its line break.
pub fn read_request(line: &[u8]) -> Result<Request, ProtocolError> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        request: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Tag {
        #[serde(rename = "type")]
        name: String,
    }
    check_version(line)?;
    let Envelope { request } = serde_json::from_slice(line).map_err(ProtocolError::Malformed)?;
    let Tag { name } = serde_json::from_str(request.get()).map_err(ProtocolError::Malformed)?;
    if !NAMES.contains(&name.as_str()) {
        return Err(ProtocolError::UnknownRequest(name.chars().take(64).collect()));
    }
    serde_json::from_str(request.get()).map_err(ProtocolError::Invalid)
}

/// Decodes a reply from a line without its line break.
pub fn read_reply(line: &[u8]) -> Result<Reply, ProtocolError> {
    #[derive(Deserialize)]
    struct Envelope {
        reply: Reply,
    }
    check_version(line)?;
    let Envelope { reply } = serde_json::from_slice(line).map_err(ProtocolError::Invalid)?;
    Ok(reply)
}

/// Checked first, because the rest of a message of another version cannot be interpreted.
fn check_version(line: &[u8]) -> Result<(), ProtocolError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
    }
    let Versioned { version } = serde_json::from_slice(line).map_err(ProtocolError::Malformed)?;
    if version == u64::from(VERSION) { Ok(()) } else { Err(ProtocolError::Version(version)) }
}
