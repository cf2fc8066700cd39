//! Tests over TLS connections.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::routes::MAX_BODY_BYTES;
use super::super::routes::tests::FakeBackend;
use super::super::serving_cert::generate;
use super::*;

const READ_TIMEOUT: Duration = Duration::from_secs(20);
const GET_QUEUES: &str = "GET /apis/queue.odc.dev/v1alpha1/queues HTTP/1.1\r\nhost: queue\r\n";
const ADA: &str = "x-remote-user: ada\r\n";

/// The CA of the front proxy.
struct ProxyCa {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl ProxyCa {
    fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { pem, issuer: Issuer::new(params, key) })
    }

    fn sign(&self, name: &str) -> anyhow::Result<(CertificateDer<'static>, PrivateKeyDer<'static>)> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.der().clone(), PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))))
    }

    fn client_auth(&self) -> anyhow::Result<Arc<RequestHeaderAuth>> {
        let data = [
            ("requestheader-client-ca-file", self.pem.clone()),
            ("requestheader-allowed-names", r#"["front-proxy"]"#.into()),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#.into()),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), value)).into();
        Ok(Arc::new(RequestHeaderAuth::from_config_map(&ConfigMap { data: Some(data), ..ConfigMap::default() })?))
    }
}

struct TestServer {
    address: SocketAddr,
    credentials: watch::Sender<Credentials>,
    backend: Arc<FakeBackend>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestServer {
    async fn start(ca: &ProxyCa) -> anyhow::Result<Self> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving_cert = ServingCert::from_secret(&generate("odc-system")?)?;
        let (credentials, receiver) = watch::channel(Credentials {
            client_auth: Some(ca.client_auth()?),
            serving_cert: Some(Arc::new(serving_cert)),
        });
        let backend = Arc::new(FakeBackend::default());
        let task = tokio::spawn(serve(listener, receiver, routes::router(backend.clone())));
        Ok(Self { address, credentials, backend, task })
    }

    async fn connect(&self, ca: &ProxyCa, name: &str) -> anyhow::Result<TestConnection> {
        let pem = self.credentials.borrow().serving_cert.as_ref().context("no certificate")?.pem.clone();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes())?)?;
        let (certificate, key) = ca.sign(name)?;
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)?;
        let stream = TcpStream::connect(self.address).await?;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(TestConnection(connector.connect("odc-queue.odc-system.svc".try_into()?, stream).await?))
    }

    async fn send(&self, ca: &ProxyCa, name: &str, request: &str) -> anyhow::Result<String> {
        self.connect(ca, name).await?.send(request).await
    }
}

struct TestConnection(TlsStream<TcpStream>);

impl TestConnection {
    async fn send(&mut self, request: &str) -> anyhow::Result<String> {
        self.0.write_all(request.as_bytes()).await?;
        let mut response = vec![0; 16 << 10];
        let length = tokio::time::timeout(READ_TIMEOUT, self.0.read(&mut response)).await??;
        anyhow::ensure!(length > 0, "connection closed");
        Ok(String::from_utf8_lossy(&response[..length]).into_owned())
    }

    /// Waits until the server closes the connection.
    async fn closed(mut self) -> anyhow::Result<()> {
        let mut rest = Vec::new();
        tokio::time::timeout(READ_TIMEOUT, self.0.read_to_end(&mut rest)).await??;
        Ok(())
    }
}

#[tokio::test]
async fn only_the_front_proxy_with_a_user_is_accepted() -> anyhow::Result<()> {
    let ca = ProxyCa::new()?;
    let server = TestServer::start(&ca).await?;
    let response = server.send(&ca, "front-proxy", &format!("{GET_QUEUES}{ADA}\r\n")).await?;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let anonymous = server.send(&ca, "front-proxy", &format!("{GET_QUEUES}\r\n")).await?;
    assert!(anonymous.starts_with("HTTP/1.1 403 ") && anonymous.contains("did not name a user"), "{anonymous}");
    // Another client of the same CA, and a client of another CA.
    let other = server.send(&ca, "kubelet", &format!("{GET_QUEUES}{ADA}\r\n")).await;
    assert!(other.is_err(), "{other:?}");
    let untrusted = server.send(&ProxyCa::new()?, "front-proxy", &format!("{GET_QUEUES}{ADA}\r\n")).await;
    assert!(untrusted.is_err(), "{untrusted:?}");
    Ok(())
}

#[tokio::test]
async fn request_body_is_limited() -> anyhow::Result<()> {
    let ca = ProxyCa::new()?;
    let server = TestServer::start(&ca).await?;
    let post = |length: usize| {
        let path = "/apis/queue.odc.dev/v1alpha1/namespaces/dev-ada/dryruns";
        let object = json!({"spec": {"flavor": "gpu"}}).to_string();
        let body = format!("{object}{}", " ".repeat(length - object.len()));
        format!("POST {path} HTTP/1.1\r\nhost: queue\r\n{ADA}content-length: {length}\r\n\r\n{body}")
    };
    let fits = server.send(&ca, "front-proxy", &post(MAX_BODY_BYTES)).await?;
    assert!(fits.starts_with("HTTP/1.1 201 "), "{fits}");
    let large = server.send(&ca, "front-proxy", &post(MAX_BODY_BYTES + 1)).await?;
    assert!(large.starts_with("HTTP/1.1 413 ") && large.contains("RequestEntityTooLarge"), "{large}");
    Ok(())
}

#[tokio::test]
async fn requests_before_the_first_plan_are_unavailable() -> anyhow::Result<()> {
    let ca = ProxyCa::new()?;
    let server = TestServer::start(&ca).await?;
    server.backend.not_ready.store(true, Ordering::Relaxed);
    let early = server.send(&ca, "front-proxy", &format!("{GET_QUEUES}{ADA}\r\n")).await?;
    assert!(early.starts_with("HTTP/1.1 503 ") && early.contains("retry-after: 1"), "{early}");
    // Discovery does not depend on a plan.
    let resources = format!("GET /apis/queue.odc.dev/v1alpha1 HTTP/1.1\r\nhost: queue\r\n{ADA}\r\n");
    let resources = server.send(&ca, "front-proxy", &resources).await?;
    assert!(resources.starts_with("HTTP/1.1 200 "), "{resources}");
    Ok(())
}

#[tokio::test]
async fn changed_credentials_close_open_connections() -> anyhow::Result<()> {
    let (old, new) = (ProxyCa::new()?, ProxyCa::new()?);
    let server = TestServer::start(&old).await?;
    let mut open = server.connect(&old, "front-proxy").await?;
    let request = format!("{GET_QUEUES}{ADA}\r\n");
    open.send(&request).await?;
    open.send(&request).await.context("a connection serves several requests")?;
    let client_auth = new.client_auth()?;
    server.credentials.send_modify(|credentials| credentials.client_auth = Some(client_auth));
    open.closed().await.context("authenticated by the old CA")?;
    let late = server.send(&old, "front-proxy", &request).await;
    assert!(late.is_err(), "{late:?}");
    server.send(&new, "front-proxy", &request).await?;

    // The same for the serving certificate.
    let open = server.connect(&new, "front-proxy").await?;
    let serving_cert = Arc::new(ServingCert::from_secret(&generate("odc-system")?)?);
    server.credentials.send_modify(|credentials| credentials.serving_cert = Some(serving_cert));
    open.closed().await?;
    server.send(&new, "front-proxy", &request).await.map(drop)
}

#[tokio::test]
async fn unfinished_handshakes_do_not_block_other_connections() -> anyhow::Result<()> {
    let ca = ProxyCa::new()?;
    let server = TestServer::start(&ca).await?;
    let request = format!("{GET_QUEUES}{ADA}\r\n");
    let mut open = server.connect(&ca, "front-proxy").await?;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(server.address).await?);
    }
    // Open connections are server while handshakes are pending.
    open.send(&request).await?;
    // The same client can connect again when the pending handshakes have timed out.
    let mut failures = 0;
    while let Err(error) = server.send(&ca, "front-proxy", &request).await {
        failures += 1;
        anyhow::ensure!(failures < 200, "no connection was accepted: {error:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(failures > 0, "handshakes are not limited");
    Ok(())
}
