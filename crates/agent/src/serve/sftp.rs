//! File transfer, version 3 of the protocol as OpenSSH speaks it (draft-ietf-secsh-filexfer-02 and OpenSSH's `PROTOCOL`).
//!
//! Names are bytes, as they are in the file system; the libraries there are want text. Requests are answered in order. Many
//! are on their way at a time, so those that have arrived are done together, on a thread that may wait for a disk.

pub mod attributes;
pub mod directory;
pub mod files;
pub mod links;
pub mod packet;
pub mod problem;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};

use crate::serve::activity::Activity;
use crate::serve::outbox::Outbox;
use crate::serve::sftp::files::Files;
use crate::serve::sftp::links::LinkOrder;
use crate::serve::sftp::packet::{LARGEST_PACKET, Reply};

/// Requests that are done together; their answers are kept in memory until all are.
const TOGETHER: usize = 16;

/// Until the client has no more requests.
pub async fn serve(outbox: &Arc<Outbox>, home: PathBuf, link_order: LinkOrder, activity: &Activity) -> io::Result<()> {
    let mut files = Files::new(home, link_order);
    let mut arrived = BytesMut::new();
    while let Some(piece) = outbox.inbox.next().await {
        activity.transferred();
        arrived.extend_from_slice(&piece);
        loop {
            let requests = take(&mut arrived)?;
            if requests.is_empty() {
                break;
            }
            let (next, answers) = tokio::task::spawn_blocking(move || {
                let mut answers = BytesMut::new();
                let done = requests.into_iter().try_for_each(|request| {
                    let reply: Reply = files.answer(request)?;
                    reply.put(&mut answers);
                    io::Result::Ok(())
                });
                done.map(|()| (files, answers.freeze()))
            })
            .await
            .map_err(io::Error::other)??;
            files = next;
            outbox.send(answers).await.map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
    }
    Ok(())
}

/// Whole packets, without their lengths.
fn take(arrived: &mut BytesMut) -> io::Result<Vec<Bytes>> {
    let mut packets = Vec::new();
    while packets.len() < TOGETHER && arrived.len() >= 4 {
        let length = arrived.as_ref().get_u32() as usize;
        if length == 0 || length > LARGEST_PACKET {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet of an impossible length"));
        }
        if arrived.len() < 4 + length {
            // Room for all of it at once.
            arrived.reserve(4 + length - arrived.len());
            break;
        }
        arrived.advance(4);
        packets.push(arrived.split_to(length).freeze());
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_taken_when_they_are_whole() {
        let mut arrived = BytesMut::from(&b"\0\0\0\x02ab\0\0\0\x01c\0\0\0\x03d"[..]);
        assert_eq!(take(&mut arrived).unwrap(), [&b"ab"[..], b"c"]);
        assert!(take(&mut arrived).unwrap().is_empty());
        arrived.extend_from_slice(b"ef");
        assert_eq!(take(&mut arrived).unwrap(), [&b"def"[..]]);
        assert!(arrived.is_empty());
    }

    #[test]
    fn a_length_nobody_could_mean_ends_it() {
        for length in [0, u32::MAX, 1 << 20] {
            assert!(take(&mut BytesMut::from(&length.to_be_bytes()[..])).is_err(), "{length}");
        }
    }
}
