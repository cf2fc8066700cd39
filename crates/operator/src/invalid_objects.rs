//! Reports objects that were stored under an older schema and cannot be deserialized, and servers whose reconciliation
//! panics. The operator sets their condition Accepted to False and does nothing else with them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::error_boundary::InvalidObject;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{self, Message, Reason, Status, Type};
use odc_core::manifest::Kind;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::context::Context;
use crate::dynamic_api::{api, with_timeout};
use crate::error::{Error, code};
use crate::metrics::KindLabels;

/// The conditions that are not written yet, by server uid. Each entry has one task that writes it.
#[derive(Default)]
pub struct InvalidServers(Mutex<HashMap<String, Rejection>>);

#[derive(Clone, Debug, PartialEq)]
struct Rejection {
    namespace: String,
    name: String,
    /// The rejected generation. A later one causes its own watch event.
    generation: Option<i64>,
    message: String,
}

impl InvalidServers {
    /// Inserts or replaces a rejection. Returns true if a task must be started for it.
    fn insert(&self, uid: &str, rejection: Rejection) -> bool {
        match self.0.lock().entry(uid.to_owned()) {
            Entry::Occupied(mut entry) => {
                entry.insert(rejection);
                false
            }
            Entry::Vacant(entry) => {
                entry.insert(rejection);
                true
            }
        }
    }

    fn get(&self, uid: &str) -> Option<Rejection> {
        self.0.lock().get(uid).cloned()
    }

    /// Removes a rejection unless it was replaced.
    fn remove(&self, uid: &str, rejection: &Rejection) {
        let mut rejections = self.0.lock();
        if rejections.get(uid) == Some(rejection) {
            rejections.remove(uid);
        }
    }
}

/// Counts and logs an object that cannot be deserialized.
pub fn report(ctx: &Context, kind: &'static str, invalid: &InvalidObject) {
    ctx.metrics.invalid_objects.get_or_create(&KindLabels { kind }).inc();
    let name = invalid.metadata.name.as_deref().unwrap_or_default();
    tracing::warn!(kind, name, error = invalid.error.as_str(), "invalid object");
}

/// As [`report`], and sets the server's condition.
pub fn report_server(ctx: &Arc<Context>, invalid: &InvalidObject) {
    report(ctx, "DevServer", invalid);
    let message = format!("Invalid object: {}. Correct it, or delete and recreate it.", invalid.error);
    reject(ctx, &invalid.metadata, &message);
}

/// Sets the condition Accepted of a server to False, in the background.
pub fn reject(ctx: &Arc<Context>, server: &ObjectMeta, message: &str) {
    let ObjectMeta { namespace: Some(namespace), name: Some(name), uid: Some(uid), generation, .. } = server else {
        return;
    };
    // Truncated as it will be stored, so that the stored message compares equal.
    let message = Message::truncated(message).to_string();
    let rejection = Rejection { namespace: namespace.clone(), name: name.clone(), generation: *generation, message };
    if ctx.invalid_servers.insert(uid, rejection) {
        let (ctx, uid) = (ctx.clone(), uid.clone());
        tokio::spawn(async move { write_until_done(&ctx, &uid, MIN_RETRY_DELAY).await });
    }
}

const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Consecutive permanent errors before the task gives up. While a CRD is replaced, the API server can answer for
/// seconds as if the server did not exist or were invalid.
const MAX_PERMANENT_ERRORS: u32 = 5;

/// Writes the rejection of a server until it is stored or cannot be stored.
async fn write_until_done(ctx: &Context, uid: &str, min_delay: Duration) {
    let (mut delay, mut permanent_errors, mut last) = (min_delay, 0, None);
    while let Some(rejection) = ctx.invalid_servers.get(uid) {
        // A replaced rejection starts over.
        if last.replace(rejection.clone()).is_some_and(|last| last != rejection) {
            (delay, permanent_errors) = (min_delay, 0);
        }
        let result = rejection.write(ctx, uid).await;
        if let Err(error) = &result {
            tracing::debug!(name = rejection.name, %error, "failed to write the condition of an invalid server");
        }
        permanent_errors = match &result {
            Ok(WriteResult::NotFound) => permanent_errors + 1,
            Err(error) if !is_transient(error) => permanent_errors + 1,
            Ok(WriteResult::Done) | Err(_) => 0,
        };
        if matches!(result, Ok(WriteResult::Done)) || permanent_errors >= MAX_PERMANENT_ERRORS {
            ctx.invalid_servers.remove(uid, &rejection);
        } else {
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_RETRY_DELAY);
        }
    }
}

enum WriteResult {
    /// Written, or not needed.
    Done,
    NotFound,
}

/// Client errors are permanent, except conflicts and rate limits.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Status { source, .. } => {
            code(source).is_none_or(|code| matches!(code, 409 | 429) || !(400..500).contains(&code))
        }
        _ => false,
    }
}

impl Rejection {
    async fn write(&self, ctx: &Context, uid: &str) -> Result<WriteResult, Error> {
        let name = &self.name;
        let failed =
            |source| Error::Status { kind: Kind::DevServer.as_str(), name: name.clone(), source: Box::new(source) };
        let servers = api(&ctx.client, Kind::DevServer, Some(&self.namespace));
        let Some(stored) = with_timeout(servers.get_opt(name)).await.map_err(failed)? else {
            return Ok(WriteResult::NotFound);
        };
        if !self.applies_to(&stored, uid) {
            return Ok(WriteResult::Done);
        }
        ctx.ensure_leader()?;
        let accepted = condition::new(
            Type::Accepted,
            Status::False,
            Reason::Invalid,
            &self.message,
            self.generation,
            to_api_precision(ctx.now()),
        );
        let others = stored.data["status"]["conditions"].as_array().into_iter().flatten();
        let others = others.filter(|condition| condition["type"] != Type::Accepted.as_str()).cloned();
        let conditions: Vec<Value> = [json!(accepted)].into_iter().chain(others).collect();
        let body = json!({
            "metadata": {"uid": uid, "resourceVersion": stored.metadata.resource_version},
            "status": {"conditions": conditions},
        });
        // A merge patch, because server-side apply requires the stored object to be valid.
        let params = PatchParams { field_manager: Some("odc-operator-invalid".into()), ..PatchParams::default() };
        with_timeout(servers.patch_status(name, &params, &Patch::Merge(&body))).await.map_err(failed)?;
        Ok(WriteResult::Done)
    }

    /// Reports whether the stored object is the rejected generation and does not have the condition yet.
    fn applies_to(&self, stored: &DynamicObject, uid: &str) -> bool {
        let conditions = stored.data["status"]["conditions"].as_array();
        let written = conditions.is_some_and(|all| all.iter().any(|condition| condition["message"] == self.message));
        !written && stored.metadata.uid.as_deref() == Some(uid) && stored.metadata.generation == self.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, FakeApiServer, RecordedRequest};

    const TEST_DELAY: Duration = Duration::from_millis(1);

    fn invalid(uid: &str, generation: i64) -> InvalidObject {
        let metadata = ObjectMeta {
            namespace: Some("dev-ada".into()),
            name: Some("box".into()),
            uid: Some(uid.into()),
            generation: Some(generation),
            ..ObjectMeta::default()
        };
        InvalidObject { error: "invalid".into(), metadata }
    }

    /// An API server with one server of this uid that responds to writes with these codes.
    fn cluster(uid: &'static str, codes: &[u16]) -> FakeApiServer {
        let mut codes = std::collections::VecDeque::from(codes.to_vec());
        fake::api_server(move |request: &RecordedRequest| {
            let stored = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
                "metadata": {"name": "box", "namespace": "dev-ada", "uid": uid, "generation": 1, "resourceVersion": "7"}});
            (if request.is_write() { codes.pop_front().unwrap() } else { 200 }, stored)
        })
    }

    /// Returns the writes made until no rejection is left.
    async fn written(cluster: &FakeApiServer, objects: &[InvalidObject]) -> Vec<Value> {
        let ctx = fake::context(cluster.client.clone());
        for object in objects {
            let meta = &object.metadata;
            let message = format!("Invalid object: {}", object.error);
            let rejection =
                Rejection { namespace: "dev-ada".into(), name: "box".into(), generation: meta.generation, message };
            ctx.invalid_servers.insert(meta.uid.as_deref().unwrap(), rejection);
        }
        write_until_done(&ctx, objects[0].metadata.uid.as_deref().unwrap(), TEST_DELAY).await;
        assert!(ctx.invalid_servers.0.lock().is_empty());
        cluster.requests().into_iter().filter(RecordedRequest::is_write).map(|request| request.body).collect()
    }

    #[tokio::test]
    async fn condition_is_written_to_the_version_that_was_read() {
        let all = written(&cluster("a", &[200]), &[invalid("a", 1)]).await;
        assert_eq!(all.len(), 1);
        assert_eq!(all[0]["metadata"], json!({"uid": "a", "resourceVersion": "7"}));
        assert_eq!(all[0]["status"]["conditions"][0]["message"], "Invalid object: invalid");
    }

    #[tokio::test]
    async fn write_is_retried_until_permanent_errors_repeat() {
        assert_eq!(written(&cluster("a", &[503, 429, 409, 200]), &[invalid("a", 1)]).await.len(), 4);
        for permanent in [400, 403, 404, 422] {
            assert_eq!(written(&cluster("a", &[permanent; 5]), &[invalid("a", 1)]).await.len(), 5, "{permanent}");
            // The CRD was being replaced.
            assert_eq!(written(&cluster("a", &[permanent, 200]), &[invalid("a", 1)]).await.len(), 2, "{permanent}");
        }
        // Only consecutive errors count.
        assert_eq!(
            written(&cluster("a", &[503, 422, 422, 422, 422, 503, 422, 200]), &[invalid("a", 1)]).await.len(),
            8
        );
    }

    #[tokio::test]
    async fn missing_server_is_retried() {
        for (missing, writes) in [(MAX_PERMANENT_ERRORS, 0), (MAX_PERMANENT_ERRORS - 1, 1)] {
            let mut missing = missing;
            let cluster = fake::api_server(move |request: &RecordedRequest| {
                let stored = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
                    "metadata": {"name": "box", "namespace": "dev-ada", "uid": "a", "generation": 1}});
                let not_found = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
                if request.is_write() || missing == 0 {
                    return (200, stored);
                }
                missing -= 1;
                (404, not_found)
            });
            assert_eq!(written(&cluster, &[invalid("a", 1)]).await.len(), writes);
        }
    }

    #[tokio::test]
    async fn recreated_or_newer_server_is_not_written() {
        assert_eq!(written(&cluster("other", &[]), &[invalid("a", 1)]).await, [Value::Null; 0]);
        assert_eq!(written(&cluster("a", &[]), &[invalid("a", 2)]).await, [Value::Null; 0]);
    }

    #[tokio::test]
    async fn repeated_rejection_is_written_once() {
        let cluster = cluster("a", &[200]);
        assert_eq!(written(&cluster, &[invalid("a", 1), invalid("a", 1), invalid("a", 1)]).await.len(), 1);
        let rejections = InvalidServers::default();
        let rejection = |generation| Rejection {
            namespace: "dev-ada".into(),
            name: "box".into(),
            generation: Some(generation),
            message: String::new(),
        };
        assert!(rejections.insert("a", rejection(1)));
        assert!(!rejections.insert("a", rejection(2)), "a second task would be started");
        // A rejection that was replaced during the write is kept.
        rejections.remove("a", &rejection(1));
        assert_eq!(rejections.get("a"), Some(rejection(2)));
        rejections.remove("a", &rejection(2));
        assert!(rejections.insert("a", rejection(2)));
    }
}
