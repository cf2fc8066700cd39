use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

/// A tunnel and the API server's end of it.
async fn pair(room: usize) -> (Tunnel<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (ours, theirs) = duplex(room);
    let ours = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
    let theirs = WebSocketStream::from_raw_socket(theirs, Role::Server, None).await;
    (Tunnel::new("box-0", ours), theirs)
}

fn frame(channel: u8, bytes: &[u8]) -> Message {
    Message::binary([&[channel], bytes].concat())
}

async fn begin(theirs: &mut WebSocketStream<DuplexStream>) {
    for channel in [DATA, FAILURE] {
        theirs.send(frame(channel, &2222_u16.to_le_bytes())).await.unwrap();
    }
}

async fn failure(mut tunnel: Tunnel<DuplexStream>) -> String {
    tunnel.read_to_end(&mut Vec::new()).await.unwrap_err().to_string()
}

#[tokio::test]
async fn bytes_go_both_ways_until_the_other_side_closes() {
    let (mut tunnel, mut theirs) = pair(1 << 20).await;
    tunnel.write_all(b"hello").await.unwrap();
    tunnel.flush().await.unwrap();
    assert_eq!(theirs.next().await.unwrap().unwrap(), frame(DATA, b"hello"));
    begin(&mut theirs).await;
    theirs.send(frame(DATA, b"one ")).await.unwrap();
    theirs.send(frame(DATA, b"")).await.unwrap();
    theirs.send(frame(DATA, b"two")).await.unwrap();
    theirs.close(None).await.unwrap();
    let mut all = String::new();
    tunnel.read_to_string(&mut all).await.unwrap();
    assert_eq!(all, "one two");
}

#[tokio::test]
async fn a_refused_port_says_so_in_few_words() {
    let (tunnel, mut theirs) = pair(1 << 20).await;
    begin(&mut theirs).await;
    let reason = "error forwarding port 2222 to pod abc: failed to dial 2222: dial tcp4 127.0.0.1:2222: connect: connection refused\n";
    theirs.send(frame(FAILURE, reason.as_bytes())).await.unwrap();
    assert_eq!(failure(tunnel).await, "pod box-0 cannot be reached: connection refused");
}

#[tokio::test]
async fn much_goes_in_pieces() {
    let (mut tunnel, mut theirs) = pair(4096).await;
    let sent: Vec<u8> = (0..3 * PIECE + 5).map(|number| u8::try_from(number % 251).unwrap()).collect();
    let there = async {
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let message = theirs.next().await.unwrap().unwrap().into_data();
            assert!(message.len() <= PIECE + 1);
            got.extend_from_slice(&message[1..]);
        }
        got
    };
    let here = async {
        tunnel.write_all(&sent).await.unwrap();
        tunnel.flush().await.unwrap();
    };
    let (got, ()) = tokio::join!(there, here);
    assert!(got == sent);
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_error() {
    let (tunnel, mut theirs) = pair(1 << 20).await;
    begin(&mut theirs).await;
    drop(theirs);
    assert_eq!(failure(tunnel).await, "the connection through the Kubernetes API broke");
}

#[tokio::test]
async fn whoever_does_not_speak_the_protocol_is_not_listened_to() {
    for first in [frame(9, b"x"), frame(DATA, b"no port")] {
        let (tunnel, mut theirs) = pair(1 << 20).await;
        theirs.send(first).await.unwrap();
        assert!(failure(tunnel).await.contains("no port-forwarding"));
    }
}
