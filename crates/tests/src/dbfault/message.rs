//! Messages of the PostgreSQL protocol, version 3.

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};

/// Longer messages are a fault of the parser, not data of a test.
const MAX_LENGTH: usize = 64 << 20;

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// A complete message, as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Absent in the first messages of a connection.
    pub kind: Option<u8>,
    pub bytes: Bytes,
}

/// What a message of the client means for the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Asks for encryption, which the proxy declines.
    Encryption,
    Startup,
    Parse {
        statement: String,
        sql: String,
    },
    Bind {
        portal: String,
        statement: String,
    },
    Execute {
        portal: String,
    },
    /// A simple query, which is its own exchange.
    Query {
        sql: String,
    },
    /// Ends an exchange.
    Sync,
    /// Belongs to an exchange that is not complete.
    Part,
    /// Is forwarded at once, such as a password.
    Other,
}

/// Removes the first message from a buffer. Returns nothing if it is incomplete. `is_typed` is false until the startup
/// message of a client has been received.
pub fn take(buffer: &mut BytesMut, is_typed: bool) -> anyhow::Result<Option<Message>> {
    let prefix = usize::from(is_typed);
    let Some(length) = buffer.get(prefix..prefix + 4) else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(length.try_into()?))?;
    anyhow::ensure!((4..=MAX_LENGTH).contains(&length), "invalid message length {length}");
    if buffer.len() < prefix + length {
        return Ok(None);
    }
    let bytes = buffer.split_to(prefix + length).freeze();
    Ok(Some(Message { kind: is_typed.then(|| bytes[0]), bytes }))
}

impl Message {
    /// Interprets a message of a client.
    pub fn request(&self) -> anyhow::Result<Request> {
        let Some(kind) = self.kind else {
            let code = self.bytes.get(4..8).context("startup message without a version")?;
            return Ok(match u32::from_be_bytes(code.try_into()?) {
                SSL_REQUEST | GSS_REQUEST => Request::Encryption,
                _ => Request::Startup,
            });
        };
        let mut texts = self.bytes[5..].split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let mut text = || texts.next().map(std::borrow::Cow::into_owned).context("message without a text");
        Ok(match kind {
            b'P' => Request::Parse { statement: text()?, sql: text()? },
            b'B' => Request::Bind { portal: text()?, statement: text()? },
            b'E' => Request::Execute { portal: text()? },
            b'Q' => Request::Query { sql: text()? },
            b'S' => Request::Sync,
            b'C' | b'D' => Request::Part,
            _ => Request::Other,
        })
    }

    /// Returns the state of the session in a `ReadyForQuery` of the server: `I` outside a transaction, `T` in one, `E` in
    /// one that failed.
    pub fn ready_state(&self) -> Option<u8> {
        (self.kind == Some(b'Z')).then(|| self.bytes.get(5).copied()).flatten()
    }

    pub fn is_error(&self) -> bool {
        self.kind == Some(b'E')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &length.to_be_bytes()[..], body].concat()
    }

    fn take_one(bytes: &[u8]) -> Option<Message> {
        take(&mut BytesMut::from(bytes), true).unwrap()
    }

    #[test]
    fn incomplete_message_stays_in_the_buffer() {
        let bytes = message(b'Q', b"SELECT 1\0");
        for end in 0..bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..end]);
            assert_eq!(take(&mut buffer, true).unwrap(), None);
            assert_eq!(buffer.len(), end);
        }
    }

    #[test]
    fn messages_in_one_packet_are_separated() {
        let first = message(b'Q', b"SELECT 1\0");
        let mut buffer = BytesMut::from(&[first.clone(), message(b'S', b"")].concat()[..]);
        let taken = take(&mut buffer, true).unwrap().unwrap();
        assert_eq!((taken.kind, taken.bytes.as_ref()), (Some(b'Q'), first.as_slice()));
        assert_eq!(take(&mut buffer, true).unwrap().unwrap().request().unwrap(), Request::Sync);
        assert!(buffer.is_empty());
    }

    #[test]
    fn message_with_an_impossible_length_is_an_error() {
        for length in [0u32, 3, u32::MAX] {
            let bytes = [&[b'Q'][..], &length.to_be_bytes()].concat();
            assert!(take(&mut BytesMut::from(&bytes[..]), true).is_err(), "{length}");
        }
    }

    #[test]
    fn first_message_has_no_kind() {
        let request = |code: u32| [8u32.to_be_bytes(), code.to_be_bytes()].concat();
        let decode = |bytes: &[u8]| take(&mut BytesMut::from(bytes), false).unwrap().unwrap().request().unwrap();
        assert_eq!(decode(&request(SSL_REQUEST)), Request::Encryption);
        assert_eq!(decode(&request(196_608)), Request::Startup);
    }

    #[test]
    fn extended_query_names_statement_and_portal() {
        let decode = |kind, body: &[u8]| take_one(&message(kind, body)).unwrap().request().unwrap();
        let parse = Request::Parse { statement: "s1".to_owned(), sql: "SELECT $1".to_owned() };
        assert_eq!(decode(b'P', b"s1\0SELECT $1\0\0\0"), parse);
        assert_eq!(decode(b'B', b"\0s1\0\0\0"), Request::Bind { portal: String::new(), statement: "s1".to_owned() });
        assert_eq!(decode(b'E', b"\0\0\0\0\0"), Request::Execute { portal: String::new() });
        assert_eq!(decode(b'D', b"Ss1\0"), Request::Part);
    }

    #[test]
    fn ready_message_has_the_state_of_the_transaction() {
        assert_eq!(take_one(&message(b'Z', b"T")).unwrap().ready_state(), Some(b'T'));
        assert_eq!(take_one(&message(b'C', b"T")).unwrap().ready_state(), None);
    }
}
