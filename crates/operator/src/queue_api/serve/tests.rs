//! The API as its callers meet it, over real connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use odc_api::queue::{Availability, DryRunSpec, DryRunStatus, Queue, QueueEntry, WhatIfSpec, WhatIfStatus};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::identity::fresh;
use super::*;

const LIMIT: Duration = Duration::from_secs(20);
const QUEUES: &str = "GET /apis/queue.odc.dev/v1alpha1/queues HTTP/1.1\r\nhost: queue\r\n";
const ADA: &str = "x-remote-user: ada\r\n";

/// Nobody waits.
#[derive(Default)]
struct Nobody {
    has_not_begun: AtomicBool,
}

impl Answers for Nobody {
    fn are_there(&self) -> bool {
        !self.has_not_begun.load(Ordering::Relaxed)
    }
    fn queues(&self) -> Vec<Queue> {
        vec![]
    }
    fn entries(&self, _: Option<&str>) -> Vec<QueueEntry> {
        vec![]
    }
    fn availabilities(&self, _: &str, _: Option<&str>) -> Vec<Availability> {
        vec![]
    }
    fn dry_run(&self, _: &str, _: &DryRunSpec) -> Result<DryRunStatus, String> {
        Ok(DryRunStatus::default())
    }
    fn what_if(&self, _: WhatIfSpec) -> Result<WhatIfStatus, String> {
        Ok(WhatIfStatus::default())
    }
}

/// An authority of front proxies.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { pem, issuer: Issuer::new(params, key) })
    }

    fn signed(&self, name: &str) -> anyhow::Result<(CertificateDer<'static>, PrivateKeyDer<'static>)> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.der().clone(), PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))))
    }

    fn front(&self) -> anyhow::Result<Arc<Front>> {
        let data = [
            ("requestheader-client-ca-file", self.pem.clone()),
            ("requestheader-allowed-names", r#"["front-proxy"]"#.into()),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#.into()),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), value)).into();
        Ok(Arc::new(Front::of(&ConfigMap { data: Some(data), ..ConfigMap::default() })?))
    }
}

/// What the operator serves, and how to reach it.
struct Served {
    at: SocketAddr,
    known: watch::Sender<Known>,
    answers: Arc<Nobody>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    async fn new(authority: &Authority) -> anyhow::Result<Self> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = listener.local_addr()?;
        let identity = Identity::of(&fresh("odc-system")?)?;
        let (known, seen) =
            watch::channel(Known { front: Some(authority.front()?), identity: Some(Arc::new(identity)) });
        let answers = Arc::new(Nobody::default());
        let task = tokio::spawn(listen(listener, seen, answers.clone()));
        Ok(Self { at, known, answers, task })
    }

    async fn connect(&self, authority: &Authority, name: &str) -> anyhow::Result<Line> {
        let pem = self.known.borrow().identity.as_ref().context("it has one")?.pem.clone();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes())?)?;
        let (certificate, key) = authority.signed(name)?;
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)?;
        let stream = TcpStream::connect(self.at).await?;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Line(connector.connect("odc-queue.odc-system.svc".try_into()?, stream).await?))
    }

    async fn ask(&self, authority: &Authority, name: &str, question: &str) -> anyhow::Result<String> {
        self.connect(authority, name).await?.ask(question).await
    }
}

/// A connection to it.
struct Line(TlsStream<TcpStream>);

impl Line {
    async fn ask(&mut self, question: &str) -> anyhow::Result<String> {
        self.0.write_all(question.as_bytes()).await?;
        let mut answer = vec![0; 16 << 10];
        let length = tokio::time::timeout(LIMIT, self.0.read(&mut answer)).await??;
        anyhow::ensure!(length > 0, "the connection was ended");
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }

    /// The other side ends it.
    async fn ended(mut self) -> anyhow::Result<()> {
        let mut rest = Vec::new();
        tokio::time::timeout(LIMIT, self.0.read_to_end(&mut rest)).await??;
        Ok(())
    }
}

#[tokio::test]
async fn only_the_front_proxy_is_heard_and_only_when_it_says_who_asks() -> anyhow::Result<()> {
    let authority = Authority::new()?;
    let served = Served::new(&authority).await?;
    let answer = served.ask(&authority, "front-proxy", &format!("{QUEUES}{ADA}\r\n")).await?;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let nobody = served.ask(&authority, "front-proxy", &format!("{QUEUES}\r\n")).await?;
    assert!(nobody.starts_with("HTTP/1.1 403 ") && nobody.contains("does not say who asks"), "{nobody}");
    // Of the right authority, but somebody else; and of another authority.
    let other = served.ask(&authority, "kubelet", &format!("{QUEUES}{ADA}\r\n")).await;
    assert!(other.is_err(), "{other:?}");
    let stranger = served.ask(&Authority::new()?, "front-proxy", &format!("{QUEUES}{ADA}\r\n")).await;
    assert!(stranger.is_err(), "{stranger:?}");
    Ok(())
}

#[tokio::test]
async fn a_question_has_a_largest_size() -> anyhow::Result<()> {
    let authority = Authority::new()?;
    let served = Served::new(&authority).await?;
    let post = |length: usize| {
        let path = "/apis/queue.odc.dev/v1alpha1/namespaces/dev-ada/dryruns";
        let question = json!({"spec": {"flavor": "gpu"}}).to_string();
        let body = format!("{question}{}", " ".repeat(length - question.len()));
        format!("POST {path} HTTP/1.1\r\nhost: queue\r\n{ADA}content-length: {length}\r\n\r\n{body}")
    };
    let fits = served.ask(&authority, "front-proxy", &post(LARGEST)).await?;
    assert!(fits.starts_with("HTTP/1.1 201 "), "{fits}");
    let large = served.ask(&authority, "front-proxy", &post(LARGEST + 1)).await?;
    assert!(large.starts_with("HTTP/1.1 413 ") && large.contains("RequestEntityTooLarge"), "{large}");
    Ok(())
}

#[tokio::test]
async fn a_leader_that_has_not_planned_yet_says_so() -> anyhow::Result<()> {
    let authority = Authority::new()?;
    let served = Served::new(&authority).await?;
    served.answers.has_not_begun.store(true, Ordering::Relaxed);
    let early = served.ask(&authority, "front-proxy", &format!("{QUEUES}{ADA}\r\n")).await?;
    assert!(early.starts_with("HTTP/1.1 503 ") && early.contains("retry-after: 1"), "{early}");
    // What it serves it knows at once, or nothing could be discovered.
    let resources = format!("GET /apis/queue.odc.dev/v1alpha1 HTTP/1.1\r\nhost: queue\r\n{ADA}\r\n");
    let resources = served.ask(&authority, "front-proxy", &resources).await?;
    assert!(resources.starts_with("HTTP/1.1 200 "), "{resources}");
    Ok(())
}

#[tokio::test]
async fn a_new_authority_reaches_connections_that_are_open() -> anyhow::Result<()> {
    let (old, new) = (Authority::new()?, Authority::new()?);
    let served = Served::new(&old).await?;
    let mut open = served.connect(&old, "front-proxy").await?;
    let question = format!("{QUEUES}{ADA}\r\n");
    open.ask(&question).await?;
    open.ask(&question).await.context("a connection serves more than one question")?;
    let front = new.front()?;
    served.known.send_modify(|known| known.front = Some(front));
    open.ended().await.context("it began with the old one")?;
    let late = served.ask(&old, "front-proxy", &question).await;
    assert!(late.is_err(), "{late:?}");
    served.ask(&new, "front-proxy", &question).await?;

    // The same for who we are.
    let open = served.connect(&new, "front-proxy").await?;
    let identity = Arc::new(Identity::of(&fresh("odc-system")?)?);
    served.known.send_modify(|known| known.identity = Some(identity));
    open.ended().await?;
    served.ask(&new, "front-proxy", &question).await.map(drop)
}

#[tokio::test]
async fn whoever_knocks_and_says_nothing_keeps_nobody_out_for_long() -> anyhow::Result<()> {
    let authority = Authority::new()?;
    let served = Served::new(&authority).await?;
    let question = format!("{QUEUES}{ADA}\r\n");
    let mut open = served.connect(&authority, "front-proxy").await?;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(served.at).await?);
    }
    // Those who are inside are answered, however many stand at the door.
    open.ask(&question).await?;
    // The same place gets in again when the handshakes of the silent ones were too long.
    let mut failures = 0;
    while let Err(error) = served.ask(&authority, "front-proxy", &question).await {
        failures += 1;
        anyhow::ensure!(failures < 200, "nobody gets in: {error:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(failures > 0, "the door has no limit");
    Ok(())
}
