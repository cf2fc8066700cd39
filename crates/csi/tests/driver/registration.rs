//! Registration with the kubelet.

use std::time::Duration;

use odc_csi::proto::registration::registration_client::RegistrationClient;
use odc_csi::proto::registration::{InfoRequest, RegistrationStatus};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tonic::transport::Endpoint;

use crate::harness::TestPool;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn driver_registers_and_ends_when_the_kubelet_rejects_it() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    let socket = pool.registration_socket().await;
    let channel = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect().await.unwrap();
    let mut kubelet = RegistrationClient::new(channel);
    let info = kubelet.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", "csi.odc.dev"));
    assert_eq!(info.endpoint, driver.endpoint.display().to_string());
    let registered = RegistrationStatus { plugin_registered: true, error: String::new() };
    kubelet.notify_registration_status(registered).await.unwrap();
    let rejected = RegistrationStatus { plugin_registered: false, error: "no".into() };
    kubelet.notify_registration_status(rejected).await.unwrap();
    drop(kubelet);
    assert_eq!(driver.wait().await.code(), Some(1));
    assert!(!socket.exists());
}

/// The kubelet dials the socket by its path, and gRPC for Go makes the path the authority.
#[tokio::test]
async fn driver_registers_with_a_client_whose_authority_is_a_path() {
    let pool = TestPool::new();
    let _driver = pool.start().await;
    let mut kubelet = UnixStream::connect(pool.registration_socket().await).await.unwrap();
    let field = |prefix: &[u8], value: &str| [prefix, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    // Method POST and scheme http, then literal fields with names of the static table.
    let headers = [
        vec![0x83, 0x86],
        field(&[0x44], "/pluginregistration.Registration/GetInfo"),
        field(&[0x41], "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fcsi.odc.dev-reg.sock"),
        field(&[0x5f], "application/grpc"),
        field(&[&[0x40, 2][..], b"te"].concat(), "trailers"),
    ]
    .concat();
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let (settings, call, message) = (frame(4, 0, 0, &[]), frame(1, 4, 1, &headers), frame(0, 1, 1, &[0; 5]));
    kubelet.write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &call, &message].concat()).await.unwrap();
    let mut response = Vec::new();
    let read = async {
        while !response.windows(9).any(|bytes| bytes == b"CSIPlugin") {
            assert_ne!(kubelet.read_buf(&mut response).await.unwrap(), 0, "the driver closed the connection");
        }
    };
    tokio::time::timeout(RESPONSE_TIMEOUT, read).await.unwrap();
}
