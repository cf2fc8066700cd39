//! SFTP packets.

use bytes::Bytes;
use odc_agent::serve::sftp::packet::{Packet, Request};

use crate::runner::Runner;

/// Returns a packet with type, ID and string fields.
fn packet(packet_type: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut packet = vec![packet_type, 0, 0, 0, 7];
    for field in fields {
        packet.extend(u32::try_from(field.len()).unwrap().to_be_bytes());
        packet.extend_from_slice(field);
    }
    packet
}

#[test]
fn packet_is_a_request_or_malformed() {
    let seeds = (3..=20).map(|packet_type| packet(packet_type, &[b"name", b"other", b"\0\0\0\x0f"]));
    let extended = ["posix-rename@openssh.com", "statvfs@openssh.com", "limits@openssh.com", "lsetstat@openssh.com"];
    let extended = extended.map(|name| packet(200, &[name.as_bytes(), b"a", b"b"]));
    Runner::new("sftp", 20_000).seeds(seeds.chain(extended)).dictionary(&["..", "\0", "hardlink@openssh.com"]).run(
        |input| match Packet::parse(Bytes::copy_from_slice(input)) {
            Ok(Packet::Init) => "init".to_owned(),
            Ok(Packet::Request(_, Request::Unknown)) => "unknown".to_owned(),
            Ok(Packet::Request(_, request)) => {
                format!("{request:?}").split([' ', '{']).next().unwrap_or_default().to_owned()
            }
            Err(malformed) => malformed.to_string(),
        },
    );
}
