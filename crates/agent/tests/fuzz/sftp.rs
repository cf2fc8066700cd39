//! Requests for files, read as bytes.

use bytes::Bytes;
use odc_agent::serve::sftp::packet::{Packet, Request};

use crate::campaign::Campaign;

/// A kind, a number, and a name.
fn packet(kind: u8, rest: &[&[u8]]) -> Vec<u8> {
    let mut packet = vec![kind, 0, 0, 0, 7];
    for part in rest {
        packet.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
        packet.extend_from_slice(part);
    }
    packet
}

#[test]
fn whatever_comes_it_is_a_request_or_malformed() {
    let seeds = (3..=20).map(|kind| packet(kind, &[b"name", b"other", b"\0\0\0\x0f"]));
    let extended = ["posix-rename@openssh.com", "statvfs@openssh.com", "limits@openssh.com", "lsetstat@openssh.com"];
    let extended = extended.map(|name| packet(200, &[name.as_bytes(), b"a", b"b"]));
    Campaign::new("sftp", 20_000).seeds(seeds.chain(extended)).words(&["..", "\0", "hardlink@openssh.com"]).run(
        |input| match Packet::parse(Bytes::copy_from_slice(input)) {
            Ok(Packet::Begin) => "begin".to_owned(),
            Ok(Packet::Request(_, Request::Unknown)) => "unknown".to_owned(),
            Ok(Packet::Request(_, request)) => {
                format!("{request:?}").split([' ', '{']).next().unwrap_or_default().to_owned()
            }
            Err(malformed) => malformed.to_string(),
        },
    );
}
