//! `queue.odc.dev` as people meet it: through the API server, with their own rights and no others.

use anyhow::Context as _;
use http::{Method, Request};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use odc_api::queue::{Availability, DryRun, Queue, QueueEntry, WhatIf, WhatIfStatus};
use odc_api::v1alpha1::Phase;
use odc_tests::odc::{self, Operator};
use odc_tests::wait;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::rights::{client, token};
use super::stage::{LIMIT, NAMESPACE, OPERATOR, Stage, until, user, with_stage};
use crate::address::Address;

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

async fn ask(client: &Client, namespace: &str, spec: Value) -> anyhow::Result<DryRun> {
    let body = serde_json::to_vec(&json!({"apiVersion": "queue.odc.dev/v1alpha1", "kind": "DryRun", "spec": spec}))?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{API}/namespaces/{namespace}/dryruns"))
        .header("content-type", "application/json")
        .body(body)?;
    Ok(client.request(request).await?)
}

/// Registers the API, which the stage leaves out.
pub async fn register(client: &Client) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(odc::deploy().join("base/queue.yaml"))?;
    for object in odc::documents(&text)? {
        odc::apply(client, &object).await?;
    }
    Ok(())
}

/// An operator that serves the API, from another address each time.
pub struct Serving {
    pub operator: Operator,
    _address: Address,
}

pub async fn serving(stage: &Stage<'_>) -> anyhow::Result<Serving> {
    let address = Address::take()?;
    let mut settings = odc::short_times();
    settings.extend([("ODC_QUEUE_IP", address.ip.as_str()), ("ODC_QUEUE_PORT", address.port.as_str())]);
    let operator = Operator::start(&stage.kubeconfig, &stage.directory, &settings).await?;
    stage.user_ready("ada").await.with_context(|| operator.words())?;
    let slices: Api<EndpointSlice> = Api::namespaced(stage.plane.client.clone(), "odc-system");
    let ours = |slice: Option<&EndpointSlice>| {
        slice.is_some_and(|slice| slice.endpoints.iter().any(|endpoint| endpoint.addresses == [address.ip.as_str()]))
            && slice.is_some_and(|slice| {
                slice
                    .ports
                    .iter()
                    .flatten()
                    .any(|port| port.port.map(|port| port.to_string()) == Some(address.port.clone()))
            })
    };
    until(&slices, "odc-queue", "ours", ours).await.with_context(|| operator.words())?;
    let services: Api<APIService> = Api::all(stage.plane.client.clone());
    let available = |service: Option<&APIService>| {
        let conditions = service.and_then(|service| service.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| one.type_ == "Available" && one.status == "True")
    };
    until(&services, SERVICE, "available", available).await.with_context(|| operator.words())?;
    Ok(Serving { operator, _address: address })
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

#[tokio::test]
async fn everybody_sees_the_queue_with_their_own_rights() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let admin = &stage.plane.client;
        register(admin).await?;
        let Serving { operator, _address } = serving(stage).await?;
        odc::apply(admin, &user("bob")).await?;
        stage.user_ready("bob").await?;
        let ada = client(stage, &token(admin, NAMESPACE, "odc-user").await?).await?;
        let bob = client(stage, &token(admin, "dev-bob", "odc-user").await?).await?;

        // Nobody waits, and everything that fits would start now.
        let free =
            ask(&ada, NAMESPACE, json!({"flavor": "gpu", "count": 8})).await.with_context(|| operator.words())?;
        let status = free.status.context("it was answered")?;
        assert!(status.start.now && status.message.is_none(), "{status:?}");

        for node in 1..=2 {
            stage.create(&format!("busy-{node}"), json!({"flavor": "gpu", "count": 8, "lifetime": "1h"})).await?;
        }
        for node in 1..=2 {
            stage.until_phase(&format!("busy-{node}"), Phase::Running).await?;
        }
        stage.create("box", json!({"flavor": "gpu", "count": 4, "lifetime": "2h"})).await?;
        let waits = stage.until("box", "told when it starts", |server| {
            let admission = server.status.as_ref().and_then(|status| status.admission.as_ref());
            admission.is_some_and(|admission| admission.position == Some(1) && admission.eta.is_some())
        });
        let told = waits.await?.status.and_then(|status| status.admission).and_then(|admission| admission.eta);
        let told = told.context("it has an ETA")?;
        assert!(told.p50.0 <= told.p90.0, "{told:?}");

        // Everybody knows how long the queue is; nobody's name is in it.
        let text: Value = get(&bob, "/queues/gpu").await?;
        assert!(["box", "ada\"", "dev-ada"].iter().all(|word| !text.to_string().contains(word)), "{text}");
        let queue: Queue = serde_json::from_value(text)?;
        let [waiting] = queue.waiting.as_slice() else { anyhow::bail!("one waits, not {:?}", queue.waiting) };
        assert_eq!((waiting.position, waiting.count, waiting.nodes), (1, 4, 1));
        assert!(waiting.start.p90.is_some() && waiting.start.latest.is_some(), "{waiting:?}");

        // Ada knows that it is hers, and why she waits. Bob does not.
        let own: List<QueueEntry> = get(&ada, &format!("/namespaces/{NAMESPACE}/queueentries")).await?;
        assert_eq!(own.kind, "QueueEntryList");
        let [entry] = own.items.as_slice() else { anyhow::bail!("one of hers waits, not {:?}", own.items) };
        assert_eq!(entry.metadata.name.as_deref(), Some("box"));
        assert_eq!(entry.position, Some(1));
        assert!(entry.message.as_deref().is_some_and(|message| message.contains("nvidia.com/gpu")), "{entry:?}");
        for path in ["/queueentries", &format!("/namespaces/{NAMESPACE}/queueentries")] {
            let refused = get::<Value>(&bob, path).await.unwrap_err();
            assert_eq!(code(&refused), 403, "{path}: {refused}");
        }
        let all: List<QueueEntry> = get(admin, "/queueentries").await?;
        assert_eq!(all.items.len(), 1);

        // Who asks now comes behind her, and is told what is in the way.
        let behind = ask(&bob, "dev-bob", json!({"flavor": "gpu", "count": 8})).await?;
        let status = behind.status.context("it was answered")?;
        assert_eq!(status.position, Some(2), "{status:?}");
        assert!(!status.start.now && status.start.latest.is_some() && status.message.is_some(), "{status:?}");
        let elsewhere = ask(&bob, NAMESPACE, json!({"flavor": "gpu"})).await.unwrap_err();
        assert_eq!(elsewhere.downcast_ref().map(code), Some(403), "{elsewhere}");
        let unknown = ask(&bob, "dev-bob", json!({"flavor": "tpu"})).await.unwrap_err();
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
        let none = get::<Value>(&bob, "/namespaces/dev-bob/availabilities/tpu").await.unwrap_err();
        assert_eq!(code(&none), 404, "{none}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_queue_answers_from_whoever_leads_and_believes_only_the_api_server() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let admin = &stage.plane.client;
        register(admin).await?;
        let mut first = serving(stage).await?;
        let services: Api<APIService> = Api::all(admin.clone());
        let slices: Api<EndpointSlice> = Api::namespaced(admin.clone(), "odc-system");
        let trusted = services.get(SERVICE).await?.spec.and_then(|spec| spec.ca_bundle).context("we are known")?;
        let slice = slices.get("odc-queue").await?;

        // Somebody who is not the front proxy does not get past the handshake.
        let (ip, port) = (&slice.endpoints[0].addresses[0], slice.ports.as_ref().context("it has a port")?[0].port);
        let address = format!("{ip}:{}", port.context("it has a number")?);
        let stranger = stranger(&address, &trusted.0).await;
        assert!(stranger.is_err(), "a stranger was answered: {stranger:?}");

        first.operator.kill().await?;
        stage.forget_leader().await?;
        let mark = stage.plane.requests()?.len();
        let _next = serving(stage).await?;
        wait::until("the new leader answers", LIMIT, async || {
            let queues: List<Queue> = get(admin, "/queues").await?;
            anyhow::ensure!(queues.items.len() == 2, "there are {}", queues.items.len());
            Ok(())
        })
        .await?;
        // It has the certificate of the first, and says only where it is.
        assert_eq!(services.get(SERVICE).await?.spec.and_then(|spec| spec.ca_bundle), Some(trusted));
        let written = stage.written_since(mark)?;
        assert_eq!(written, ["patch endpointslices odc-system/odc-queue 200"]);
        Ok(())
    })
    .await
}

/// What somebody who says to be an administrator is answered.
async fn stranger(address: &str, trusted: &[u8]) -> anyhow::Result<String> {
    use rustls::pki_types::pem::PemObject as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(trusted)?)?;
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let stream = tokio::net::TcpStream::connect(address).await?;
    let mut stream = connector.connect("odc-queue.odc-system.svc".try_into()?, stream).await?;
    let asked = format!(
        "GET {API}/queues HTTP/1.1\r\nhost: queue\r\nx-remote-user: root\r\nx-remote-group: system:masters\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).await?;
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).await?;
    anyhow::ensure!(length > 0, "the connection was ended");
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

#[tokio::test]
async fn what_leads_to_the_queue_is_put_right_and_otherwise_left_alone() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let admin = &stage.plane.client;
        register(admin).await?;
        let Serving { operator, _address } = serving(stage).await?;
        let services: Api<APIService> = Api::all(admin.clone());
        let slices: Api<EndpointSlice> = Api::namespaced(admin.clone(), "odc-system");
        let secrets: Api<Secret> = Api::namespaced(admin.clone(), "odc-system");
        let trusted = async || -> anyhow::Result<Vec<u8>> {
            let bundle = services.get(SERVICE).await?.spec.and_then(|spec| spec.ca_bundle);
            Ok(bundle.context("we are known")?.0)
        };
        // Answered with another certificate than this one, and the API server knows it.
        let renewed = async |old: &[u8]| {
            let answered = wait::until("a new certificate is trusted and used", LIMIT, async || {
                let new = trusted().await?;
                anyhow::ensure!(new != old, "it is the old one");
                get::<List<Queue>>(admin, "/queues").await?;
                Ok(new)
            });
            answered.await.with_context(|| operator.words())
        };

        let first = trusted().await?;
        secrets.delete("odc-queue-tls", &DeleteParams::default()).await?;
        let second = renewed(&first).await?;

        // A key that belongs to another certificate is not taken over; a new pair takes its place.
        let other = rcgen::KeyPair::generate()?.serialize_pem();
        let patch = json!({"stringData": {"tls.key": other}});
        secrets.patch("odc-queue-tls", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        renewed(&second).await?;

        for patch in [
            json!({"metadata": {"labels": {"kubernetes.io/service-name": "elsewhere"}}}),
            json!({"endpoints": [{"addresses": ["198.18.0.9"], "conditions": {"ready": false}}]}),
        ] {
            slices.patch("odc-queue", &PatchParams::default(), &Patch::Merge(&patch)).await?;
            wait::until("it leads to the operator again", LIMIT, async || {
                let slice = slices.get("odc-queue").await?;
                let labels = slice.metadata.labels.unwrap_or_default();
                anyhow::ensure!(
                    labels.get("kubernetes.io/service-name").is_some_and(|name| name == "odc-queue"),
                    "{labels:?}"
                );
                let ready = slice
                    .endpoints
                    .iter()
                    .all(|one| one.conditions.as_ref().is_some_and(|now| now.ready == Some(true)));
                anyhow::ensure!(ready, "{:?}", slice.endpoints);
                Ok(())
            })
            .await?;
        }

        // It looks again, and writes nothing.
        let mark = stage.plane.requests()?.len();
        wait::until("it has looked again", LIMIT, async || {
            let requests = stage.plane.requests()?;
            let looks = requests[mark..].iter().filter(|request| {
                request.user == OPERATOR && request.verb == "get" && request.resource == "apiservices"
            });
            anyhow::ensure!(looks.count() > 0, "it has not");
            Ok(())
        })
        .await?;
        assert_eq!(stage.written_since(mark)?, [""; 0]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn only_administrators_may_ask_what_another_quota_would_change() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let admin = &stage.plane.client;
        register(admin).await?;
        let Serving { operator, _address } = serving(stage).await?;
        let team = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"},
            "spec": {"members": ["ada"], "quota": {"devices": 4}}});
        odc::apply(admin, &team).await?;
        stage.create("first", json!({"flavor": "gpu", "count": 4, "lifetime": "1h", "team": "vision"})).await?;
        stage.until_phase("first", Phase::Running).await?;
        stage.create("second", json!({"flavor": "gpu", "count": 4, "lifetime": "1h", "team": "vision"})).await?;
        let waits = stage.until("second", "held up by the quota", |server| {
            let admission = server.status.as_ref().and_then(|status| status.admission.as_ref());
            admission.is_some_and(|admission| admission.reason.as_deref() == Some("QuotaExceeded"))
        });
        waits.await.with_context(|| operator.words())?;
        // Who decides and who drives the server write one after the other.
        stage.until_phase("second", Phase::Queued).await?;
        let what_if = async |client: &Client, devices: u32| -> anyhow::Result<WhatIfStatus> {
            let question = json!({"apiVersion": "queue.odc.dev/v1alpha1", "kind": "WhatIf",
                "spec": {"teams": {"vision": {"devices": devices}}}});
            let request = Request::post(format!("{API}/whatifs")).header("content-type", "application/json");
            let answer: WhatIf = client.request(request.body(serde_json::to_vec(&question)?)?).await?;
            answer.status.context("it was answered")
        };
        let more = what_if(admin, 8).await?;
        let [second] = more.changes.as_slice() else { anyhow::bail!("one would start, not {more:?}") };
        assert_eq!((second.name.as_str(), second.before.now, second.after.now), ("second", false, true));
        assert_eq!(what_if(admin, 4).await?.changes, []);
        let ada = client(stage, &token(admin, NAMESPACE, "odc-user").await?).await?;
        let refused = what_if(&ada, 8).await.unwrap_err();
        assert_eq!(refused.downcast_ref().map(code), Some(403), "{refused}");
        // It was only a question.
        assert_eq!(stage.servers.get("second").await?.status.and_then(|status| status.phase), Some(Phase::Queued));
        Ok(())
    })
    .await
}
