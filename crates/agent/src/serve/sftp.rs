//! SFTP server, version 3 of the protocol with OpenSSH's extensions (draft-ietf-secsh-filexfer-02 and OpenSSH's
//! `PROTOCOL`).
//!
//! Names are bytes, as in the file system; existing libraries require UTF-8. Requests are answered in sequence. Clients
//! pipeline requests, so those that have arrived are processed as a batch on a blocking thread.

pub mod attrs;
pub mod handler;
pub mod packet;
pub mod readdir;
pub mod status;
pub mod symlink_order;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};

use crate::serve::activity::Activity;
use crate::serve::sftp::handler::SftpHandler;
use crate::serve::sftp::packet::{MAX_PACKET, Reply};
use crate::serve::sftp::symlink_order::SymlinkOrder;
use crate::serve::ssh::channel_writer::ChannelWriter;

/// Requests per batch. All their responses are in memory at the same time.
const BATCH_SIZE: usize = 16;

/// Serves requests until EOF.
pub async fn serve(
    writer: &Arc<ChannelWriter>,
    home: PathBuf,
    symlink_order: SymlinkOrder,
    activity: &Activity,
) -> io::Result<()> {
    let mut handler = SftpHandler::new(home, symlink_order);
    let mut received = BytesMut::new();
    while let Some(chunk) = writer.input.next().await {
        activity.record_transfer();
        received.extend_from_slice(&chunk);
        loop {
            let requests = take_packets(&mut received)?;
            if requests.is_empty() {
                break;
            }
            let (next, responses) = tokio::task::spawn_blocking(move || {
                let mut responses = BytesMut::new();
                let result = requests.into_iter().try_for_each(|request| {
                    let reply: Reply = handler.handle_packet(request)?;
                    reply.put(&mut responses);
                    io::Result::Ok(())
                });
                result.map(|()| (handler, responses.freeze()))
            })
            .await
            .map_err(io::Error::other)??;
            handler = next;
            writer.write(responses).await.map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
    }
    Ok(())
}

/// Removes complete packets from `received` and returns them without their length fields.
fn take_packets(received: &mut BytesMut) -> io::Result<Vec<Bytes>> {
    let mut packets = Vec::new();
    while packets.len() < BATCH_SIZE && received.len() >= 4 {
        let length = received.as_ref().get_u32() as usize;
        if length == 0 || length > MAX_PACKET {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "invalid packet length"));
        }
        if received.len() < 4 + length {
            received.reserve(4 + length - received.len());
            break;
        }
        received.advance(4);
        packets.push(received.split_to(length).freeze());
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_packets_are_taken() {
        let mut received = BytesMut::from(&b"\0\0\0\x02ab\0\0\0\x01c\0\0\0\x03d"[..]);
        assert_eq!(take_packets(&mut received).unwrap(), [&b"ab"[..], b"c"]);
        assert!(take_packets(&mut received).unwrap().is_empty());
        received.extend_from_slice(b"ef");
        assert_eq!(take_packets(&mut received).unwrap(), [&b"def"[..]]);
        assert!(received.is_empty());
    }

    #[test]
    fn invalid_length_is_an_error() {
        for length in [0, u32::MAX, 1 << 20] {
            assert!(take_packets(&mut BytesMut::from(&length.to_be_bytes()[..])).is_err(), "{length}");
        }
    }
}
