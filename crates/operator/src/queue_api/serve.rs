//! Answers the API server, over TLS and to nobody else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use odc_api::queue::DryRun;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::front::{Caller, Front};
use super::identity::Identity;
use super::route::{self, Asked, Problem};
use super::{Answers, Known};
use crate::requeue::back_off;

/// Connections at once. The API server keeps a few; whoever else connects gets no further than the handshake.
const AT_ONCE: usize = 64;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a question may take to arrive.
const QUESTION: Duration = Duration::from_secs(5);
/// Answers that are worked out at once.
static TURNS: Semaphore = Semaphore::const_new(2);
/// A question is a few lines.
const LARGEST: usize = 64 << 10;

pub(super) async fn run(at: SocketAddr, known: watch::Receiver<Known>, answers: Arc<dyn Answers>) {
    let mut failures = 0;
    let listener = loop {
        match TcpListener::bind(at).await {
            Ok(listener) => break listener,
            Err(error) => {
                failures += 1;
                tracing::error!(error = &error as &dyn std::error::Error, %at, "queue.odc.dev cannot be served");
                tokio::time::sleep(back_off(failures)).await;
            }
        }
    };
    let room = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Such as too many open files: what is open is answered meanwhile.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let trusted = {
            let known = known.borrow();
            known.front.clone().zip(known.identity.clone())
        };
        let answers = answers.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let Some((front, identity)) = trusted else { return };
            if let Err(error) = converse(stream, front, &identity, answers).await {
                tracing::debug!(error = format!("{error:#}"), "a connection to queue.odc.dev ended");
            }
        });
    }
}

fn tls(front: &Front, identity: &Identity) -> Result<TlsAcceptor, rustls::Error> {
    let config = ServerConfig::builder()
        .with_client_cert_verifier(front.verifier())
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn converse(
    stream: TcpStream,
    front: Arc<Front>,
    identity: &Identity,
    answers: Arc<dyn Answers>,
) -> anyhow::Result<()> {
    let stream = tokio::time::timeout(HANDSHAKE, tls(&front, identity)?.accept(stream)).await??;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    anyhow::ensure!(shown.is_some_and(|shown| front.is_front_proxy(shown)), "it is not the front proxy");
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (front, answers) = (front.clone(), answers.clone());
        async move { Ok::<_, std::convert::Infallible>(respond(request, &front, answers).await) }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(120))
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

async fn respond<B>(request: Request<B>, front: &Front, answers: Arc<dyn Answers>) -> Response<Body>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let Some(Caller(person)) = front.caller(&parts.headers) else {
        return answer(Err(Problem::new(StatusCode::FORBIDDEN, "the front proxy does not say who asks")));
    };
    let asked = match route::read(&parts.method, parts.uri.path()) {
        Ok(asked) => asked,
        Err(problem) => return answer(Err(problem)),
    };
    tracing::debug!(person, ?asked, "asked about the queue");
    let body = match tokio::time::timeout(QUESTION, Limited::new(body, LARGEST).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return answer(Err(Problem::new(StatusCode::BAD_REQUEST, error.to_string()))),
        Err(_) => return answer(Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the question did not come in time"))),
    };
    // Beside everything else the leader does: in a long queue an answer takes a while.
    let Ok(_turn) = TURNS.acquire().await else {
        return answer(Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the operator is ending")));
    };
    let answered = tokio::task::spawn_blocking(move || reply(asked, &body, answers.as_ref())).await;
    answer(answered.unwrap_or_else(|panic| Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, panic.to_string()))))
}

fn reply(asked: Asked, body: &[u8], answers: &dyn Answers) -> Result<(StatusCode, Value), Problem> {
    let missing = |what: &str, name: &str| Problem::new(StatusCode::NOT_FOUND, format!("{what} \"{name}\" not found"));
    let unwritable = |error: serde_json::Error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let found = match asked {
        Asked::Group => route::group(),
        Asked::Resources => route::resources(),
        Asked::Queues => route::list("Queue", &answers.queues()).map_err(unwritable)?,
        Asked::Queue(name) => {
            let queues = answers.queues();
            let queue = queues.iter().find(|queue| queue.metadata.name.as_deref() == Some(&name));
            route::object("Queue", queue.ok_or_else(|| missing("queues.queue.odc.dev", &name))?).map_err(unwritable)?
        }
        Asked::Entries(namespace) => {
            route::list("QueueEntry", &answers.entries(namespace.as_deref())).map_err(unwritable)?
        }
        Asked::Entry { namespace, name } => {
            let entries = answers.entries(Some(&namespace));
            let entry = entries.iter().find(|entry| entry.metadata.name.as_deref() == Some(&name));
            let entry = entry.ok_or_else(|| missing("queueentries.queue.odc.dev", &name))?;
            route::object("QueueEntry", entry).map_err(unwritable)?
        }
        Asked::Availabilities(namespace) => {
            route::list("Availability", &answers.availabilities(&namespace, None)).map_err(unwritable)?
        }
        Asked::Availability { namespace, flavor } => {
            let found = answers.availabilities(&namespace, Some(&flavor));
            let found = found.first().ok_or_else(|| missing("availabilities.queue.odc.dev", &flavor))?;
            route::object("Availability", found).map_err(unwritable)?
        }
        Asked::DryRun(namespace) => {
            let mut asked: DryRun = serde_json::from_slice(body).map_err(|error| {
                Problem::new(StatusCode::BAD_REQUEST, format!("the question is no DryRun: {error}"))
            })?;
            let status = answers
                .dry_run(&namespace, &asked.spec)
                .map_err(|why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why))?;
            asked.status = Some(status);
            return Ok((StatusCode::CREATED, route::object("DryRun", &asked).map_err(unwritable)?));
        }
    };
    Ok((StatusCode::OK, found))
}

fn answer(reply: Result<(StatusCode, Value), Problem>) -> Response<Body> {
    let (code, value) = reply.unwrap_or_else(|problem| (problem.code, problem.status()));
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
