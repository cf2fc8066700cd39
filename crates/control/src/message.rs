//! Requests and replies in their envelope, which tells the version.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::frame::{TooLong, line};
use crate::reply::Reply;
use crate::request::{NAMES, Request};

/// Raised when a reader of the old form would misunderstand the new one.
pub const VERSION: u32 = 1;

/// Why a line means nothing to us. Each is a sentence for whoever sent it.
#[derive(Debug, thiserror::Error)]
pub enum Misunderstood {
    #[error("this is no message: {0}")]
    NoMessage(serde_json::Error),
    #[error("version {0} is not known here, only {VERSION}")]
    Version(u64),
    #[error("the request {0:?} is not known here")]
    UnknownRequest(String),
    #[error("the message cannot be used: {0}")]
    Invalid(serde_json::Error),
}

impl From<Misunderstood> for Reply {
    fn from(misunderstood: Misunderstood) -> Self {
        Self::refused(misunderstood.to_string())
    }
}

#[derive(Serialize)]
struct AskedWith<'a> {
    version: u32,
    request: &'a Request,
}

#[derive(Serialize)]
struct ToldWith<'a> {
    version: u32,
    reply: &'a Reply,
}

/// A line with its end.
pub fn write_request(request: &Request) -> Result<Vec<u8>, TooLong> {
    line(&AskedWith { version: VERSION, request })
}

/// A line with its end.
pub fn write_reply(reply: &Reply) -> Result<Vec<u8>, TooLong> {
    line(&ToldWith { version: VERSION, reply })
}

/// From a line without its end.
pub fn read_request(line: &[u8]) -> Result<Request, Misunderstood> {
    #[derive(Deserialize)]
    struct Asked<'a> {
        #[serde(borrow)]
        request: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "type")]
        name: String,
    }
    check_version(line)?;
    let Asked { request } = serde_json::from_slice(line).map_err(Misunderstood::NoMessage)?;
    let Named { name } = serde_json::from_str(request.get()).map_err(Misunderstood::NoMessage)?;
    if !NAMES.contains(&name.as_str()) {
        return Err(Misunderstood::UnknownRequest(name.chars().take(64).collect()));
    }
    serde_json::from_str(request.get()).map_err(Misunderstood::Invalid)
}

/// From a line without its end.
pub fn read_reply(line: &[u8]) -> Result<Reply, Misunderstood> {
    #[derive(Deserialize)]
    struct Told {
        reply: Reply,
    }
    check_version(line)?;
    let Told { reply } = serde_json::from_slice(line).map_err(Misunderstood::Invalid)?;
    Ok(reply)
}

/// First of all, because the rest of another version may mean anything.
fn check_version(line: &[u8]) -> Result<(), Misunderstood> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
    }
    let Versioned { version } = serde_json::from_slice(line).map_err(Misunderstood::NoMessage)?;
    if version == u64::from(VERSION) { Ok(()) } else { Err(Misunderstood::Version(version)) }
}
