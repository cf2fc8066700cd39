//! Accepts requests of Go clients that dial a socket by its path.
//!
//! Such a client, for example the plugin watcher of the kubelet, sends the percent-encoded path as `:authority`, which the
//! HTTP/2 library behind tonic rejects as malformed. [`normalize`] replaces it before the server reads the request.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, copy, duplex, split};

const BUFFER_BYTES: usize = 16 << 10;
/// First bytes of an HTTP/2 connection.
const PREFACE_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Index of `:authority` in the static table of HPACK.
const AUTHORITY_INDEX: usize = 1;
/// Shorter than any path, so that the dynamic table of the server keeps all entries that the client refers to.
const AUTHORITY: &[u8] = b"localhost";

/// Returns a connection with the requests of `client`, whose authority is `localhost`.
pub fn normalize(client: impl AsyncRead + AsyncWrite + Send + 'static) -> DuplexStream {
    let (near, far) = duplex(BUFFER_BYTES);
    tokio::spawn(async move {
        let (mut client_reader, mut client_writer) = split(client);
        let (mut server_reader, mut server_writer) = split(near);
        // The end of either direction, also by an error, ends the connection, which both sides notice.
        tokio::select! {
            _ = forward_requests(&mut client_reader, &mut server_writer) => {}
            _ = copy(&mut server_reader, &mut client_writer) => {}
        }
    });
    far
}

async fn forward_requests(
    client: &mut (impl AsyncRead + Unpin),
    server: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    let mut preface = [0; PREFACE_BYTES];
    client.read_exact(&mut preface).await?;
    server.write_all(&preface).await?;
    loop {
        let mut header = [0; FRAME_HEADER_BYTES];
        client.read_exact(&mut header).await?;
        let [l0, l1, l2, kind, flags, ..] = header;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, l0, l1, l2])).unwrap_or_default()];
        client.read_exact(&mut payload).await?;
        // The server rejects what is left as it is.
        if kind == HEADERS
            && flags & (END_HEADERS | PADDED | PRIORITY) == END_HEADERS
            && let Some(replaced) = replace_authority(&payload)
            && let Ok(length) = u32::try_from(replaced.len())
        {
            header[..3].copy_from_slice(&length.to_be_bytes()[1..]);
            payload = replaced;
        }
        server.write_all(&header).await?;
        server.write_all(&payload).await?;
    }
}

/// Replaces the value of `:authority` in a header block (RFC 7541). Returns `None` if the block is malformed.
fn replace_authority(block: &[u8]) -> Option<Vec<u8>> {
    let mut replaced = Vec::with_capacity(block.len());
    let mut rest = block;
    while let Some(first) = rest.first() {
        let (prefix_bits, is_literal) = match first.leading_zeros() {
            // Indexed field.
            0 => (7, false),
            // Literal that is added to the dynamic table.
            1 => (6, true),
            // Size of the dynamic table.
            2 => (5, false),
            // Literal that is not added.
            _ => (4, true),
        };
        let (index, after_index) = read_integer(rest, prefix_bits)?;
        let mut end = after_index;
        if is_literal {
            let value = if index == 0 { skip_string(after_index)? } else { after_index };
            end = skip_string(value)?;
            if index == AUTHORITY_INDEX {
                replaced.extend_from_slice(&rest[..rest.len() - value.len()]);
                replaced.push(u8::try_from(AUTHORITY.len()).ok()?);
                replaced.extend_from_slice(AUTHORITY);
                rest = end;
                continue;
            }
        }
        replaced.extend_from_slice(&rest[..rest.len() - end.len()]);
        rest = end;
    }
    Some(replaced)
}

/// Reads an integer with a prefix of some bits in the first byte. Returns it and the rest.
fn read_integer(bytes: &[u8], prefix_bits: u32) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let max = (1 << prefix_bits) - 1;
    let mut value = usize::from(*first) & max;
    if value < max {
        return Some((value, rest));
    }
    // More bits are more than any block has.
    for shift in [0, 7, 14, 21] {
        let (next, tail) = rest.split_first()?;
        rest = tail;
        value += usize::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// Returns what follows a string, which may be compressed.
fn skip_string(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = read_integer(bytes, 7)?;
    rest.get(length..)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A string literal, which has a prefix of seven bits.
    fn string(text: &str) -> Vec<u8> {
        match u8::try_from(text.len()).unwrap() {
            length @ 0..127 => [&[length], text.as_bytes()].concat(),
            length => [&[127, length - 127], text.as_bytes()].concat(),
        }
    }

    #[test]
    fn only_the_authority_is_replaced() {
        let block = |authority: &str| {
            let path = [&[0x44], &*string("/pluginregistration.Registration/GetInfo")].concat();
            let custom = [&[0x40], &*string("te"), &*string("trailers")].concat();
            let sensitive = [&[0x1f, 0x08], &*string("token")].concat();
            [&[0x3f, 0xe1, 0x1f, 0x83, 0x86], &*path, &[0x41], &*string(authority), &custom, &sensitive, &[0xbe]]
                .concat()
        };
        let long = "%2Fvar".repeat(30);
        for authority in ["%2Fvar%2Flib", &long] {
            assert_eq!(replace_authority(&block(authority)), Some(block("localhost")), "{authority}");
        }
    }

    #[test]
    fn malformed_blocks_are_not_changed() {
        for block in [&[0x41, 0x05, b'a'][..], &[0x41], &[0x44, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], &[0x40, 0x01]] {
            assert_eq!(replace_authority(block), None, "{block:?}");
        }
    }
}
