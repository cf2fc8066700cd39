//! The writer of statuses and events. It computes nothing: a status comes whole from `odc-core`. Of servers that cannot be
//! read there is none; what they are told is in [`unreadable`](crate::unreadable).

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, Patch, PatchParams};
use kube::core::object::HasStatus;
use kube::runtime::events::{Event, EventType, Recorder, Reporter as Who};
use kube::{Client, Resource, ResourceExt};
use odc_core::plan;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::context::Context;
use crate::error::{Error, code};
use crate::own::Copied;
use crate::request::in_time;

/// Events that are written at once. A connection is opened for each and kept for a while.
const EVENTS_AT_ONCE: usize = 4;

#[derive(Clone)]
pub struct Reporter {
    client: Client,
    who: Who,
    at_once: Arc<Semaphore>,
}

impl Reporter {
    pub fn new(client: Client, instance: &str) -> Self {
        let who = Who { controller: "odc-operator".into(), instance: Some(instance.to_owned()) };
        Self { client, who, at_once: Arc::new(Semaphore::new(EVENTS_AT_ONCE)) }
    }

    /// Tells people what happened. They can do without it, so nothing waits for it and its failure is no failure.
    pub fn tell(&self, about: &ObjectReference, events: &[plan::Event]) {
        for event in events {
            // A new one each time: a recorder remembers what it wrote for minutes, to count repetitions, and we repeat
            // nothing.
            let recorder = Recorder::new(self.client.clone(), self.who.clone());
            let about = about.clone();
            let event = Event {
                type_: if event.serious { EventType::Warning } else { EventType::Normal },
                reason: event.reason.to_string(),
                // The API server takes at most 1024 bytes.
                note: Some(event.note.chars().take(256).collect()),
                action: event.action.to_owned(),
                secondary: None,
            };
            let at_once = self.at_once.clone();
            tokio::spawn(async move {
                let Ok(_permit) = at_once.acquire().await else { return };
                // On the heap from here on, so that the many that wait for their turn are small.
                let told = Box::pin(in_time(recorder.publish(&event, &about))).await;
                if told.is_err() {
                    tracing::debug!(name = about.name, ?told, "an event was not written");
                }
            });
        }
    }
}

/// Who writes which part of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// A driver, everything but the queue's part.
    Driver,
    /// The queue.
    Queue,
}

impl Manager {
    const fn name(self) -> &'static str {
        match self {
            Self::Driver => "odc-operator",
            Self::Queue => "odc-queue",
        }
    }
}

/// Writes a status in the version of the object it was computed from; gives the object as it is now.
///
/// Statuses are ours alone, but others can write them. Where somebody did, what we write is written over theirs, and
/// what should not be there is taken away.
pub async fn status<K>(ctx: &Context, object: &K, status: Value, manager: Manager) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + ResourceExt + HasStatus<Status: Serialize>,
    K: Clone + DeserializeOwned + Debug + Copied,
    Api<K>: Scoped<K>,
{
    ctx.may_write()?;
    let lists = K::lists(ctx);
    let name = object.name_any();
    let api = <Api<K> as Scoped<K>>::of(ctx.client.clone(), object.namespace().as_deref());
    let head = |version: Option<String>| json!({"name": name, "resourceVersion": version});
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": head(object.resource_version()),
        "status": status,
    });
    let failed = |source| Error::Status { kind: kind::<K>(), name: name.clone(), source: Box::new(source) };
    let gentle = PatchParams::apply(manager.name());
    let mut answer = in_time(api.patch_status(&name, &gentle, &Patch::Apply(&body))).await;
    if matches!(&answer, Err(error) if is_taken(error)) {
        tracing::warn!(kind = kind::<K>(), name, "a status was edited by somebody else; it is written over");
        ctx.may_write()?;
        answer = in_time(api.patch_status(&name, &gentle.clone().force(), &Patch::Apply(&body))).await;
    }
    let mut stored = answer.map_err(failed)?;
    if let Some(surplus) = surplus(&stored, &status, manager) {
        tracing::warn!(kind = kind::<K>(), name, "a status was edited by somebody else; it is cleared");
        ctx.may_write()?;
        let body = json!({"metadata": head(stored.resource_version()), "status": surplus});
        let plain = PatchParams::default();
        stored = in_time(api.patch_status(&name, &plain, &Patch::Merge(&body))).await.map_err(failed)?;
    }
    ctx.metrics.wrote("status", kind::<K>());
    stored.remember(ctx, lists);
    Ok(stored)
}

/// The fields of a driver's part that are stored and should not be, as a patch that takes them away.
fn surplus<K: HasStatus<Status: Serialize>>(stored: &K, wanted: &Value, manager: Manager) -> Option<Value> {
    if manager == Manager::Queue {
        return None;
    }
    let stored = serde_json::to_value(stored.status()?).ok()?;
    let fields = stored.as_object()?;
    let gone = fields.keys().filter(|field| wanted.get(field).is_none() && !OF_THE_QUEUE.contains(&field.as_str()));
    let gone: serde_json::Map<String, Value> = gone.map(|field| (field.clone(), Value::Null)).collect();
    (!gone.is_empty()).then_some(Value::Object(gone))
}

/// Fields of any kind's status that drivers leave to the queue.
const OF_THE_QUEUE: [&str; 4] = ["admission", "flavor", "usage", "record"];

fn kind<K: Resource<DynamicType = ()>>() -> &'static str {
    match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(_) => "object",
    }
}

/// A conflict over fields, not over versions.
fn is_taken(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    code(error) == Some(409) && causes.clone().any(|cause| cause.reason == "FieldManagerConflict")
}

/// Kinds in a namespace, and kinds of the whole cluster.
pub trait Scoped<K> {
    fn of(client: Client, namespace: Option<&str>) -> Self;
}

impl Scoped<odc_api::v1alpha1::DevServer> for Api<odc_api::v1alpha1::DevServer> {
    fn of(client: Client, namespace: Option<&str>) -> Self {
        Self::namespaced(client, namespace.unwrap_or_default())
    }
}

macro_rules! of_the_cluster {
    ($($kind:ty),+) => {
        $(impl Scoped<$kind> for Api<$kind> {
            fn of(client: Client, _: Option<&str>) -> Self {
                Self::all(client)
            }
        })+
    };
}

of_the_cluster!(odc_api::v1alpha1::DevServerFlavor, odc_api::v1alpha1::DevServerUser, odc_api::v1alpha1::Team);
