//! Answers the API server, over TLS and to nobody else.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use odc_api::queue::{DryRun, WhatIf};
use rustls::ServerConfig;
use rustls::sign::SingleCertAndKey;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::door::{Door, Knock};
use super::front::{Caller, Front};
use super::identity::Identity;
use super::route::{self, Asked, Problem};
use super::{Answers, Known};
use crate::requeue::back_off;

/// Connections of the API servers at once. Each keeps some dozens open; whoever else connects gets no further than the
/// door, which counts for itself.
const AT_ONCE: usize = 256;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a question may take to arrive,
const QUESTION: Duration = Duration::from_secs(5);
/// and how long it may wait for its turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection that is to end may take over what is being answered on it.
const FAREWELL: Duration = Duration::from_secs(30);
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
    listen(listener, known, answers).await;
}

async fn listen(listener: TcpListener, known: watch::Receiver<Known>, answers: Arc<dyn Answers>) {
    let (door, room) = (Door::default(), Arc::new(Semaphore::new(AT_ONCE)));
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // Such as too many open files: what is open is answered meanwhile.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some(knock) = door.enter(from.ip()) else {
            tracing::debug!(%from, "too many knock at queue.odc.dev from there");
            continue;
        };
        let (known, room, answers) = (known.clone(), room.clone(), answers.clone());
        tokio::spawn(async move {
            if let Err(error) = converse(stream, knock, known, &room, answers).await {
                tracing::debug!(error = format!("{error:#}"), %from, "a connection to queue.odc.dev ended");
            }
        });
    }
}

fn tls(front: &Front, identity: &Identity) -> TlsAcceptor {
    let config = ServerConfig::builder()
        .with_client_cert_verifier(front.verifier())
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity.pair.clone())));
    TlsAcceptor::from(Arc::new(config))
}

/// One connection, from the handshake to its end: when the other side wants it, or when whom we trust or who we are has
/// changed, since it began with what was true before.
async fn converse(
    stream: TcpStream,
    knock: Knock,
    mut known: watch::Receiver<Known>,
    room: &Semaphore,
    answers: Arc<dyn Answers>,
) -> anyhow::Result<()> {
    let trusted = {
        let known = known.borrow_and_update();
        known.front.clone().zip(known.identity.clone())
    };
    let Some((front, identity)) = trusted else { return Ok(()) };
    let stream = tokio::time::timeout(HANDSHAKE, tls(&front, &identity).accept(stream)).await??;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    anyhow::ensure!(shown.is_some_and(|shown| front.is_front_proxy(shown)), "it is not the front proxy");
    let _place = tokio::time::timeout(HANDSHAKE, room.acquire()).await??;
    drop(knock);
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (front, answers) = (front.clone(), answers.clone());
        async move { Ok::<_, std::convert::Infallible>(respond(request, &front, answers).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(120))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        _ = known.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    Ok(tokio::time::timeout(FAREWELL, connection).await??)
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
    let asked = match route::read(&parts.method, parts.uri.path(), parts.uri.query()) {
        Ok(asked) => asked,
        Err(problem) => return answer(Err(problem)),
    };
    tracing::debug!(person, ?asked, "asked about the queue");
    let body = match tokio::time::timeout(QUESTION, Limited::new(body, LARGEST).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let words = format!("a question has at most {LARGEST} bytes");
            return answer(Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, words)));
        }
        Ok(Err(error)) => return answer(Err(Problem::new(StatusCode::BAD_REQUEST, error.to_string()))),
        Err(_) => return answer(Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the question did not come in time"))),
    };
    // Beside everything else the leader does: in a long queue an answer takes a while.
    let Ok(Ok(_turn)) = tokio::time::timeout(PATIENCE, TURNS.acquire()).await else {
        let words = "too many ask about the queue at once";
        return answer(Err(Problem::not_now(StatusCode::TOO_MANY_REQUESTS, words)));
    };
    let answered = tokio::task::spawn_blocking(move || reply(asked, &body, answers.as_ref())).await;
    answer(answered.unwrap_or_else(|panic| Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, panic.to_string()))))
}

fn reply(asked: Asked, body: &[u8], answers: &dyn Answers) -> Result<(StatusCode, Value), Problem> {
    if asked.is_about_the_queue() && !answers.are_there() {
        let words = "the operator has just begun to lead and knows nothing of the queue yet";
        return Err(Problem::not_now(StatusCode::SERVICE_UNAVAILABLE, words));
    }
    let unwritable = |error: serde_json::Error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let found = match asked {
        Asked::Group => route::group(),
        Asked::Resources => route::resources(),
        Asked::Queues => route::list("Queue", &answers.queues()).map_err(unwritable)?,
        Asked::Queue(name) => {
            let queues = answers.queues();
            let queue = queues.iter().find(|queue| queue.metadata.name.as_deref() == Some(&name));
            route::object("Queue", queue.ok_or_else(|| Problem::missing("queues", &name))?).map_err(unwritable)?
        }
        Asked::Entries(namespace) => {
            route::list("QueueEntry", &answers.entries(namespace.as_deref())).map_err(unwritable)?
        }
        Asked::Entry { namespace, name } => {
            let entries = answers.entries(Some(&namespace));
            let entry = entries.iter().find(|entry| entry.metadata.name.as_deref() == Some(&name));
            let entry = entry.ok_or_else(|| Problem::missing("queueentries", &name))?;
            route::object("QueueEntry", entry).map_err(unwritable)?
        }
        Asked::Availabilities(namespace) => {
            route::list("Availability", &answers.availabilities(&namespace, None)).map_err(unwritable)?
        }
        Asked::Availability { namespace, flavor } => {
            let found = answers.availabilities(&namespace, Some(&flavor));
            let found = found.first().ok_or_else(|| Problem::missing("availabilities", &flavor))?;
            route::object("Availability", found).map_err(unwritable)?
        }
        Asked::DryRun(namespace) => {
            let asked: DryRun = question("DryRun", body)?;
            let status = Some(answers.dry_run(&namespace, &asked.spec).map_err(impossible)?);
            let answered = route::object("DryRun", &DryRun { status, ..asked }).map_err(unwritable)?;
            return Ok((StatusCode::CREATED, answered));
        }
        Asked::WhatIf => {
            let asked: WhatIf = question("WhatIf", body)?;
            let status = Some(answers.what_if(asked.spec.clone()).map_err(impossible)?);
            let answered = route::object("WhatIf", &WhatIf { status, ..asked }).map_err(unwritable)?;
            return Ok((StatusCode::CREATED, answered));
        }
    };
    Ok((StatusCode::OK, found))
}

fn question<T: DeserializeOwned>(kind: &str, body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("the question is no {kind}: {error}")))
}

fn impossible(why: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why)
}

fn answer(reply: Result<(StatusCode, Value), Problem>) -> Response<Body> {
    let retry_after = reply.as_ref().err().and_then(|problem| problem.retry_after);
    let (code, value) = reply.unwrap_or_else(|problem| (problem.code, problem.status()));
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.extend(retry_after.map(|seconds| (header::RETRY_AFTER, HeaderValue::from(seconds))));
    response
}
