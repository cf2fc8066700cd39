use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

/// Returns a tunnel and the side of the API server.
async fn pair(buffer_size: usize) -> (Tunnel<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (local, remote) = duplex(buffer_size);
    let local = WebSocketStream::from_raw_socket(local, Role::Client, None).await;
    let remote = WebSocketStream::from_raw_socket(remote, Role::Server, None).await;
    (Tunnel::new("box-0", local), remote)
}

fn frame(channel: u8, bytes: &[u8]) -> Message {
    Message::binary([&[channel], bytes].concat())
}

async fn send_ports(remote: &mut WebSocketStream<DuplexStream>) {
    for channel in [DATA_CHANNEL, ERROR_CHANNEL] {
        remote.send(frame(channel, &2222_u16.to_le_bytes())).await.unwrap();
    }
}

async fn read_error(mut tunnel: Tunnel<DuplexStream>) -> String {
    tunnel.read_to_end(&mut Vec::new()).await.unwrap_err().to_string()
}

#[tokio::test]
async fn data_flows_in_both_directions_until_close() {
    let (mut tunnel, mut remote) = pair(1 << 20).await;
    tunnel.write_all(b"hello").await.unwrap();
    tunnel.flush().await.unwrap();
    assert_eq!(remote.next().await.unwrap().unwrap(), frame(DATA_CHANNEL, b"hello"));
    send_ports(&mut remote).await;
    remote.send(frame(DATA_CHANNEL, b"one ")).await.unwrap();
    remote.send(frame(DATA_CHANNEL, b"")).await.unwrap();
    remote.send(frame(DATA_CHANNEL, b"two")).await.unwrap();
    remote.close(None).await.unwrap();
    let mut all = String::new();
    tunnel.read_to_string(&mut all).await.unwrap();
    assert_eq!(all, "one two");
}

#[tokio::test]
async fn refused_port_reports_the_cause() {
    let (tunnel, mut remote) = pair(1 << 20).await;
    send_ports(&mut remote).await;
    let reason = "error forwarding port 2222 to pod abc: failed to dial 2222: dial tcp4 127.0.0.1:2222: connect: connection refused\n";
    remote.send(frame(ERROR_CHANNEL, reason.as_bytes())).await.unwrap();
    assert_eq!(read_error(tunnel).await, "could not connect to pod box-0: connection refused");
}

#[tokio::test]
async fn large_writes_are_chunked() {
    let (mut tunnel, mut remote) = pair(4096).await;
    let sent: Vec<u8> = (0..3 * CHUNK_SIZE + 5).map(|number| u8::try_from(number % 251).unwrap()).collect();
    let receive = async {
        let mut received = Vec::new();
        while received.len() < sent.len() {
            let message = remote.next().await.unwrap().unwrap().into_data();
            assert!(message.len() <= CHUNK_SIZE + 1);
            received.extend_from_slice(&message[1..]);
        }
        received
    };
    let write = async {
        tunnel.write_all(&sent).await.unwrap();
        tunnel.flush().await.unwrap();
    };
    let (received, ()) = tokio::join!(receive, write);
    assert!(received == sent);
}

#[tokio::test]
async fn lost_connection_is_an_error() {
    let (tunnel, mut remote) = pair(1 << 20).await;
    send_ports(&mut remote).await;
    drop(remote);
    assert_eq!(read_error(tunnel).await, "lost the connection through the Kubernetes API");
}

#[tokio::test]
async fn protocol_violation_is_an_error() {
    for first in [frame(9, b"x"), frame(DATA_CHANNEL, b"no port")] {
        let (tunnel, mut remote) = pair(1 << 20).await;
        remote.send(first).await.unwrap();
        assert!(read_error(tunnel).await.contains("protocol error"));
    }
}
