//! The aggregated API `queue.odc.dev`, through the API server with the permissions of users.

use anyhow::Context as _;
use http::{Method, Request};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use odc_api::queue::{Availability, DryRun, Queue, QueueEntry, WhatIf, WhatIfStatus};
use odc_api::v1alpha1::Phase;
use odc_tests::operator::{self, Operator};
use odc_tests::user::service_account_token;
use odc_tests::{manifests, wait};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::fixture::{Fixture, NAMESPACE, OPERATOR, TIMEOUT, user, wait_for, with_fixture};
use super::rbac::client_with_token;
use crate::endpoint_address::EndpointAddress;

const API: &str = "/apis/queue.odc.dev/v1alpha1";
const SERVICE: &str = "v1alpha1.queue.odc.dev";

#[derive(Deserialize)]
struct List<T> {
    kind: String,
    items: Vec<T>,
}

async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> kube::Result<T> {
    client.request(Request::get(format!("{API}{path}")).body(vec![]).map_err(kube::Error::HttpError)?).await
}

async fn dry_run(client: &Client, namespace: &str, spec: Value) -> anyhow::Result<DryRun> {
    let body = serde_json::to_vec(&json!({"apiVersion": "queue.odc.dev/v1alpha1", "kind": "DryRun", "spec": spec}))?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{API}/namespaces/{namespace}/dryruns"))
        .header("content-type", "application/json")
        .body(body)?;
    Ok(client.request(request).await?)
}

/// Registers the API, which the installation of the fixture omits.
pub async fn register(client: &Client) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(manifests::deploy_directory().join("base/queue.yaml"))?;
    for object in manifests::documents(&text)? {
        manifests::apply(client, &object).await?;
    }
    Ok(())
}

/// An operator that serves the API, each time at another address.
pub struct QueueServer {
    pub operator: Operator,
    pub address: EndpointAddress,
}

pub async fn start_queue_server(fixture: &Fixture<'_>) -> anyhow::Result<QueueServer> {
    let address = EndpointAddress::allocate()?;
    let mut settings = operator::fast_timeouts();
    settings.extend([("ODC_QUEUE_IP", address.ip.as_str()), ("ODC_QUEUE_PORT", address.port.as_str())]);
    let operator = Operator::start(&fixture.kubeconfig, &fixture.directory, &settings).await?;
    fixture.wait_user_ready("ada").await.with_context(|| operator.log_tail())?;
    wait_served(&fixture.plane.client, &address).await.with_context(|| operator.log_tail())?;
    Ok(QueueServer { operator, address })
}

/// Waits until the API server serves the API at this address.
pub async fn wait_served(client: &Client, address: &EndpointAddress) -> anyhow::Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "odc-system");
    let published = |slice: Option<&EndpointSlice>| {
        slice.is_some_and(|slice| slice.endpoints.iter().any(|endpoint| endpoint.addresses == [address.ip.as_str()]))
            && slice.is_some_and(|slice| {
                slice
                    .ports
                    .iter()
                    .flatten()
                    .any(|port| port.port.map(|port| port.to_string()) == Some(address.port.clone()))
            })
    };
    wait_for(&slices, "odc-queue", "published", published).await?;
    let services: Api<APIService> = Api::all(client.clone());
    let available = |service: Option<&APIService>| {
        let conditions = service.and_then(|service| service.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Available" && condition.status == "True")
    };
    wait_for(&services, SERVICE, "available", available).await?;
    // The API server registers the path independently of the condition, and answers 404 before.
    wait::until("served API", TIMEOUT, async || Ok(get::<Value>(client, "/queues").await.map(drop)?)).await
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

#[tokio::test]
async fn queue_api_respects_the_permissions_of_users() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let admin = &fixture.plane.client;
        register(admin).await?;
        let QueueServer { operator, address: _address } = start_queue_server(fixture).await?;
        manifests::apply(admin, &user("bob")).await?;
        fixture.wait_user_ready("bob").await?;
        let ada = client_with_token(fixture, &service_account_token(admin, NAMESPACE, "odc-user").await?).await?;
        let bob = client_with_token(fixture, &service_account_token(admin, "dev-bob", "odc-user").await?).await?;

        // The queue is empty, and a server that fits would start now.
        let free = dry_run(&ada, NAMESPACE, json!({"flavor": "gpu", "count": 8}))
            .await
            .with_context(|| operator.log_tail())?;
        let status = free.status.context("the response has no status")?;
        assert!(status.start.now && status.message.is_none(), "{status:?}");

        for node in 1..=2 {
            fixture.create(&format!("busy-{node}"), json!({"flavor": "gpu", "count": 8, "lifetime": "1h"})).await?;
        }
        for node in 1..=2 {
            fixture.wait_for_phase(&format!("busy-{node}"), Phase::Running).await?;
        }
        fixture.create("box", json!({"flavor": "gpu", "count": 4, "lifetime": "2h"})).await?;
        let queued = fixture.wait_for("box", "queued with an ETA", |server| {
            let admission = server.status.as_ref().and_then(|status| status.admission.as_ref());
            admission.is_some_and(|admission| admission.position == Some(1) && admission.eta.is_some())
        });
        let eta = queued.await?.status.and_then(|status| status.admission).and_then(|admission| admission.eta);
        let eta = eta.context("the server has no ETA")?;
        assert!(eta.p50.0 <= eta.p90.0, "{eta:?}");

        // All users can read the queue, which has no names.
        let text: Value = get(&bob, "/queues/gpu").await?;
        assert!(["box", "ada\"", "dev-ada"].iter().all(|word| !text.to_string().contains(word)), "{text}");
        let queue: Queue = serde_json::from_value(text)?;
        let [waiting] = queue.pending.as_slice() else { anyhow::bail!("expected one entry: {:?}", queue.pending) };
        assert_eq!((waiting.position, waiting.count, waiting.nodes), (1, 4, 1));
        assert!(waiting.start.p90.is_some() && waiting.start.latest.is_some(), "{waiting:?}");

        // Only ada can read her entry and its reason.
        let own: List<QueueEntry> = get(&ada, &format!("/namespaces/{NAMESPACE}/queueentries")).await?;
        assert_eq!(own.kind, "QueueEntryList");
        let [entry] = own.items.as_slice() else { anyhow::bail!("expected one entry: {:?}", own.items) };
        assert_eq!(entry.metadata.name.as_deref(), Some("box"));
        assert_eq!(entry.position, Some(1));
        assert!(entry.message.as_deref().is_some_and(|message| message.contains("nvidia.com/gpu")), "{entry:?}");
        for path in ["/queueentries", &format!("/namespaces/{NAMESPACE}/queueentries")] {
            let error = get::<Value>(&bob, path).await.unwrap_err();
            assert_eq!(code(&error), 403, "{path}: {error}");
        }
        let all: List<QueueEntry> = get(admin, "/queueentries").await?;
        assert_eq!(all.items.len(), 1);

        // A dry run of another user is behind her and has a reason.
        let behind = dry_run(&bob, "dev-bob", json!({"flavor": "gpu", "count": 8})).await?;
        let status = behind.status.context("the response has no status")?;
        assert_eq!(status.position, Some(2), "{status:?}");
        assert!(!status.start.now && status.start.latest.is_some() && status.message.is_some(), "{status:?}");
        let elsewhere = dry_run(&bob, NAMESPACE, json!({"flavor": "gpu"})).await.unwrap_err();
        assert_eq!(elsewhere.downcast_ref().map(code), Some(403), "{elsewhere}");
        let unknown = dry_run(&bob, "dev-bob", json!({"flavor": "tpu"})).await.unwrap_err();
        assert_eq!(unknown.downcast_ref().map(code), Some(422), "{unknown}");
        assert!(unknown.to_string().contains("tpu"), "{unknown}");

        let sizes: Availability = get(&bob, "/namespaces/dev-bob/availabilities/gpu").await?;
        let sizes: Vec<_> = sizes.sizes.iter().map(|size| (size.count, size.nodes, size.start.now)).collect();
        assert_eq!(
            sizes,
            [
                (1, 1, false),
                (2, 1, false),
                (4, 1, false),
                (8, 1, false),
                (8, 2, false),
                (8, 3, false),
                (8, 4, false),
                (8, 5, false),
                (8, 6, false)
            ]
        );
        let cpu: Availability = get(&bob, "/namespaces/dev-bob/availabilities/cpu").await?;
        assert!(cpu.sizes.iter().all(|size| size.start.now), "{cpu:?}");
        let missing = get::<Value>(&bob, "/namespaces/dev-bob/availabilities/tpu").await.unwrap_err();
        assert_eq!(code(&missing), 404, "{missing}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn queue_api_follows_the_leader_and_trusts_only_the_api_server() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let admin = &fixture.plane.client;
        register(admin).await?;
        let mut first = start_queue_server(fixture).await?;
        let services: Api<APIService> = Api::all(admin.clone());
        let slices: Api<EndpointSlice> = Api::namespaced(admin.clone(), "odc-system");
        let trusted = services
            .get(SERVICE)
            .await?
            .spec
            .and_then(|spec| spec.ca_bundle)
            .context("the APIService has no CA bundle")?;
        let slice = slices.get("odc-queue").await?;

        // A client without the certificate of the front proxy fails in the handshake.
        let (ip, port) =
            (&slice.endpoints[0].addresses[0], slice.ports.as_ref().context("the slice has no port")?[0].port);
        let address = format!("{ip}:{}", port.context("the port has no number")?);
        let response = request_without_certificate(&address, &trusted.0).await;
        assert!(response.is_err(), "{response:?}");

        first.operator.kill().await?;
        fixture.release_lease().await?;
        let mark = fixture.plane.requests()?.len();
        let _next = start_queue_server(fixture).await?;
        wait::until("response of the new leader", TIMEOUT, async || {
            let queues: List<Queue> = get(admin, "/queues").await?;
            anyhow::ensure!(queues.items.len() == 2, "{} queues", queues.items.len());
            Ok(())
        })
        .await?;
        // It uses the certificate of the first leader and writes only its address.
        assert_eq!(services.get(SERVICE).await?.spec.and_then(|spec| spec.ca_bundle), Some(trusted));
        let written = fixture.writes_since(mark)?;
        assert_eq!(written, ["patch endpointslices odc-system/odc-queue 200"]);
        Ok(())
    })
    .await
}

/// Sends a request with forged front proxy headers and without a client certificate.
async fn request_without_certificate(address: &str, trusted: &[u8]) -> anyhow::Result<String> {
    use rustls::pki_types::pem::PemObject as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(trusted)?)?;
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let stream = tokio::net::TcpStream::connect(address).await?;
    let mut stream = connector.connect("odc-queue.odc-system.svc".try_into()?, stream).await?;
    let request = format!(
        "GET {API}/queues HTTP/1.1\r\nhost: queue\r\nx-remote-user: root\r\nx-remote-group: system:masters\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut response = vec![0; 4096];
    let length = stream.read(&mut response).await?;
    anyhow::ensure!(length > 0, "the connection was closed");
    Ok(String::from_utf8_lossy(&response[..length]).into_owned())
}

#[tokio::test]
async fn objects_of_the_queue_api_are_repaired_and_otherwise_not_written() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let admin = &fixture.plane.client;
        register(admin).await?;
        let QueueServer { operator, address: _address } = start_queue_server(fixture).await?;
        let services: Api<APIService> = Api::all(admin.clone());
        let slices: Api<EndpointSlice> = Api::namespaced(admin.clone(), "odc-system");
        let secrets: Api<Secret> = Api::namespaced(admin.clone(), "odc-system");
        let trusted = async || -> anyhow::Result<Vec<u8>> {
            let bundle = services.get(SERVICE).await?.spec.and_then(|spec| spec.ca_bundle);
            Ok(bundle.context("the APIService has no CA bundle")?.0)
        };
        // Waits until the API uses another certificate and the API server trusts it.
        let renewed = async |old: &[u8]| {
            let renewed = wait::until("new certificate", TIMEOUT, async || {
                let new = trusted().await?;
                anyhow::ensure!(new != old, "the certificate is unchanged");
                get::<List<Queue>>(admin, "/queues").await?;
                Ok(new)
            });
            renewed.await.with_context(|| operator.log_tail())
        };

        let first = trusted().await?;
        secrets.delete("odc-queue-tls", &DeleteParams::default()).await?;
        let second = renewed(&first).await?;

        // A key that does not belong to the certificate is replaced by a new pair.
        let other = rcgen::KeyPair::generate()?.serialize_pem();
        let patch = json!({"stringData": {"tls.key": other}});
        secrets.patch("odc-queue-tls", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        renewed(&second).await?;

        for patch in [
            json!({"metadata": {"labels": {"kubernetes.io/service-name": "elsewhere"}}}),
            json!({"endpoints": [{"addresses": ["198.18.0.9"], "conditions": {"ready": false}}]}),
        ] {
            slices.patch("odc-queue", &PatchParams::default(), &Patch::Merge(&patch)).await?;
            wait::until("repaired EndpointSlice", TIMEOUT, async || {
                let slice = slices.get("odc-queue").await?;
                let labels = slice.metadata.labels.unwrap_or_default();
                anyhow::ensure!(
                    labels.get("kubernetes.io/service-name").is_some_and(|name| name == "odc-queue"),
                    "{labels:?}"
                );
                let ready = slice.endpoints.iter().all(|endpoint| {
                    endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
                });
                anyhow::ensure!(ready, "{:?}", slice.endpoints);
                Ok(())
            })
            .await?;
        }

        // The next check writes nothing.
        let mark = fixture.plane.requests()?.len();
        wait::until("next check of the APIService", TIMEOUT, async || {
            let requests = fixture.plane.requests()?;
            let reads = requests[mark..].iter().filter(|request| {
                request.user == OPERATOR && request.verb == "get" && request.resource == "apiservices"
            });
            anyhow::ensure!(reads.count() > 0, "no read of the APIService");
            Ok(())
        })
        .await?;
        assert_eq!(fixture.writes_since(mark)?, [""; 0]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_if_is_restricted_to_administrators() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let admin = &fixture.plane.client;
        register(admin).await?;
        let QueueServer { operator, address: _address } = start_queue_server(fixture).await?;
        let team = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"},
            "spec": {"members": ["ada"], "quota": {"devices": 4}}});
        manifests::apply(admin, &team).await?;
        fixture
            .create_running("first", json!({"flavor": "gpu", "count": 4, "lifetime": "1h", "team": "vision"}))
            .await?;
        fixture.create("second", json!({"flavor": "gpu", "count": 4, "lifetime": "1h", "team": "vision"})).await?;
        let queued = fixture.wait_for("second", "over quota", |server| {
            let admission = server.status.as_ref().and_then(|status| status.admission.as_ref());
            admission.is_some_and(|admission| admission.reason.as_deref() == Some("QuotaExceeded"))
        });
        queued.await.with_context(|| operator.log_tail())?;
        // The phase is written after the reason of the queue.
        fixture.wait_for_phase("second", Phase::Queued).await?;
        let what_if = async |client: &Client, devices: u32| -> anyhow::Result<WhatIfStatus> {
            let review = json!({"apiVersion": "queue.odc.dev/v1alpha1", "kind": "WhatIf",
                "spec": {"teams": {"vision": {"devices": devices}}}});
            let request = Request::post(format!("{API}/whatifs")).header("content-type", "application/json");
            let response: WhatIf = client.request(request.body(serde_json::to_vec(&review)?)?).await?;
            response.status.context("the response has no status")
        };
        let more = what_if(admin, 8).await?;
        let [second] = more.changes.as_slice() else { anyhow::bail!("expected one change: {more:?}") };
        assert_eq!((second.name.as_str(), second.before.now, second.after.now), ("second", false, true));
        assert_eq!(what_if(admin, 4).await?.changes, []);
        let ada = client_with_token(fixture, &service_account_token(admin, NAMESPACE, "odc-user").await?).await?;
        let error = what_if(&ada, 8).await.unwrap_err();
        assert_eq!(error.downcast_ref().map(code), Some(403), "{error}");
        // Nothing has changed.
        assert_eq!(fixture.servers.get("second").await?.status.and_then(|status| status.phase), Some(Phase::Queued));
        Ok(())
    })
    .await
}
