//! Logs and Kubernetes Events of servers.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use http::header;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, LogParams};
use odc_api::duration::Duration;
use odc_api::http::{Claim, KubeEvent, Page};
use odc_core::access::Action;
use serde::Deserialize;
use tokio_util::compat::FuturesAsyncReadCompatExt as _;
use tokio_util::io::ReaderStream;

use super::{OwnerQuery, USER, authorize_user, wait_until_rejected};
use crate::api::App;
use crate::api::body::{Json, Name, Params};
use crate::api::context::RequestContext;
use crate::api::document::{Operation, Routes, parameter};
use crate::api::error::{Error, Result};

/// The container that users work in.
const SERVER_CONTAINER: &str = "dev";

pub(super) fn routes() -> Routes {
    let parameters = [
        USER,
        parameter::<String>("pod", "Pod of the server. Defaults to the first."),
        parameter::<String>("container", "Container. Defaults to the one that users work in."),
        parameter::<bool>("follow", "Continues with new lines."),
        parameter::<u32>("tail", "Number of last lines."),
        parameter::<Duration>("since", "Time before now, such as 10m."),
        parameter::<bool>("timestamps", "Adds the time to each line."),
        parameter::<bool>("previous", "Logs of the previous container."),
    ];
    Routes::default()
        .add(
            Operation::get("/devservers/{name}/logs", "getLogs", "Returns the logs of a server.")
                .requires(Action::ReadServers)
                .query(&parameters)
                .streams::<String>("text/plain"),
            logs,
        )
        .add(
            Operation::get(
                "/devservers/{name}/events",
                "listKubernetesEvents",
                "Returns Kubernetes Events of a server.",
            )
            .requires(Action::ReadServers)
            .query(&[USER])
            .returns::<Page<KubeEvent>>(),
            events,
        )
        .add(
            Operation::get("/claims", "listClaims", "Lists PersistentVolumeClaims that servers can mount.")
                .requires(Action::ReadDisks)
                .query(&[USER])
                .returns::<Page<Claim>>(),
            claims,
        )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    user: Option<String>,
    pod: Option<String>,
    container: Option<String>,
    #[serde(default)]
    follow: bool,
    tail: Option<u32>,
    since: Option<Duration>,
    #[serde(default)]
    timestamps: bool,
    #[serde(default)]
    previous: bool,
}

async fn logs(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<LogQuery>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::ReadServers, user, ("server", &name))?;
    app.cluster.devservers.get(user, &name).ok_or_else(|| Error::not_found("server", &name))?;
    let pod = query.pod.unwrap_or_else(|| format!("{name}-0"));
    if !is_pod_of(&pod, &name) {
        return Err(Error::not_found("pod", &pod));
    }
    let params = LogParams {
        container: Some(query.container.unwrap_or_else(|| SERVER_CONTAINER.to_owned())),
        follow: query.follow,
        tail_lines: query.tail.map(i64::from),
        since_seconds: query.since.and_then(|since| i64::try_from(since.as_std().as_secs()).ok()),
        timestamps: query.timestamps,
        previous: query.previous,
        ..LogParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(app.kube.clone(), &odc_api::namespace::for_user(user));
    let stream = pods.log_stream(&pod, &params).await?;
    let lines = ReaderStream::new(stream.compat());
    let body = Body::from_stream(lines.take_until(Box::pin(wait_until_rejected(app, ctx))));
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

/// Reports whether a name is that of a pod of a server: `NAME-0`, `NAME-1`, ….
fn is_pod_of(pod: &str, server: &str) -> bool {
    let ordinal = pod.strip_prefix(server).and_then(|rest| rest.strip_prefix('-'));
    ordinal.is_some_and(|ordinal| !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit()))
}

async fn events(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Json<Page<KubeEvent>>> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::ReadServers, user, ("server", &name))?;
    app.cluster.devservers.get(user, &name).ok_or_else(|| Error::not_found("server", &name))?;
    let events: Api<Event> = Api::namespaced(app.kube.clone(), &odc_api::namespace::for_user(user));
    let events = events.list(&ListParams::default()).await?;
    let mut items: Vec<KubeEvent> = events.items.iter().filter(|event| involves(event, &name)).map(to_body).collect();
    items.sort_by_key(|event| event.at.as_ref().map(|at| at.0));
    Ok(Json(Page { items, next_cursor: None }))
}

fn involves(event: &Event, server: &str) -> bool {
    let name = event.involved_object.name.as_deref().unwrap_or_default();
    match event.involved_object.kind.as_deref() {
        Some("DevServer") => name == server,
        Some("Pod") => is_pod_of(name, server),
        _ => false,
    }
}

fn to_body(event: &Event) -> KubeEvent {
    let object = &event.involved_object;
    let (kind, name) = (object.kind.as_deref().unwrap_or_default(), object.name.as_deref().unwrap_or_default());
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|at| at.0);
    let last = event.last_timestamp.as_ref().map(|at| at.0);
    let first = event.event_time.as_ref().map(|at| at.0);
    let created = event.metadata.creation_timestamp.as_ref().map(|at| at.0);
    KubeEvent {
        at: series.or(last).or(first).or(created).map(Time),
        object: format!("{kind} {name}"),
        warning: event.type_.as_deref() == Some("Warning"),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default(),
        count: event.count.unwrap_or(1),
    }
}

async fn claims(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<OwnerQuery>,
) -> Result<Json<Page<Claim>>> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::ReadDisks, user, ("user", user))?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(app.kube.clone(), &odc_api::namespace::for_user(user));
    let claims = claims.list(&ListParams::default()).await?;
    let body = |claim: &PersistentVolumeClaim| {
        let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
        let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
        let storage = |amounts: &BTreeMap<String, Quantity>| amounts.get("storage").map(|size| size.0.clone());
        let size = capacity.and_then(storage).or_else(|| requests.and_then(storage));
        Claim { name: claim.name_any(), size: size.unwrap_or_default() }
    };
    Ok(Json(Page { items: claims.items.iter().map(body).collect(), next_cursor: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_other_servers_are_not_read() {
        assert!(is_pod_of("box-0", "box"));
        assert!(is_pod_of("box-12", "box"));
        for other in ["box", "box-", "box-a", "box-2-0", "boxes-0", "x-box-0", "box-0/log"] {
            assert!(!is_pod_of(other, "box"), "{other}");
        }
    }
}
