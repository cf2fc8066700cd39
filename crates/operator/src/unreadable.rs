//! Objects that were stored under other rules and cannot be read, and servers over which a driver stumbles. They are told so,
//! and nothing else happens to them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::error_boundary::InvalidObject;
use odc_api::time::stored;
use odc_api::v1alpha1::condition::{self, Reason, Sentence, Status, Type};
use odc_core::object::Kind;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{Error, code};
use crate::metrics::Controller;
use crate::request::{api, in_time};

/// What servers are still to be told, by their uid. There is one task for each of them.
#[derive(Default)]
pub struct Refusals(Mutex<HashMap<String, Refusal>>);

#[derive(Clone, Debug, PartialEq)]
struct Refusal {
    namespace: String,
    name: String,
    /// What is refused. A later one is told by its own event.
    generation: Option<i64>,
    message: String,
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if nobody was about to tell that server anything.
    fn add(&self, uid: &str, refusal: Refusal) -> bool {
        match self.lock().entry(uid.to_owned()) {
            Entry::Occupied(mut there) => {
                there.insert(refusal);
                false
            }
            Entry::Vacant(free) => {
                free.insert(refusal);
                true
            }
        }
    }

    fn get(&self, uid: &str) -> Option<Refusal> {
        self.lock().get(uid).cloned()
    }

    /// It is settled, unless there is something else to be told by now.
    fn settle(&self, uid: &str, refusal: &Refusal) {
        let mut all = self.lock();
        if all.get(uid) == Some(refusal) {
            all.remove(uid);
        }
    }
}

pub fn object(ctx: &Context, kind: &'static str, bad: &InvalidObject) {
    ctx.metrics.unreadable.get_or_create(&Controller { controller: kind }).inc();
    let name = bad.metadata.name.as_deref().unwrap_or_default();
    tracing::warn!(kind, name, error = bad.error.as_str(), "an object cannot be read");
}

/// A server's owner is told by its condition.
pub fn server(ctx: &Arc<Context>, bad: &InvalidObject) {
    object(ctx, "DevServer", bad);
    let message = format!("It cannot be read: {}. Correct it, or delete it and create it anew.", bad.error);
    refuse(ctx, &bad.metadata, &message);
}

pub fn refuse(ctx: &Arc<Context>, server: &ObjectMeta, message: &str) {
    let ObjectMeta { namespace: Some(namespace), name: Some(name), uid: Some(uid), generation, .. } = server else {
        return;
    };
    // As it will be stored, so that it is known again.
    let message = Sentence::start_of(message).to_string();
    let refusal = Refusal { namespace: namespace.clone(), name: name.clone(), generation: *generation, message };
    if ctx.refusals.add(uid, refusal) {
        let (ctx, uid) = (ctx.clone(), uid.clone());
        tokio::spawn(async move { tell(&ctx, &uid, SOON).await });
    }
}

/// How soon it is tried again to tell, at first and at the latest.
const SOON: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(60);
/// How often in a row it is answered that nothing can be told before that is believed. While a definition is replaced, as it
/// is when rules change, the API server can answer for seconds as if the server were gone or all wrong.
const TRIES: u32 = 5;

/// Until nothing is left to be told, or there is no hope.
async fn tell(ctx: &Context, uid: &str, soon: Duration) {
    let (mut pause, mut hopeless, mut last) = (soon, 0, None);
    while let Some(refusal) = ctx.refusals.get(uid) {
        // Another one than in the round before has its own tries.
        if last.replace(refusal.clone()).is_some_and(|last| last != refusal) {
            (pause, hopeless) = (soon, 0);
        }
        let told = refusal.tell(ctx, uid).await;
        if let Err(error) = &told {
            tracing::debug!(name = refusal.name, %error, "telling that a server is refused");
        }
        hopeless = match &told {
            Ok(Told::Gone) => hopeless + 1,
            Err(error) if !may_pass(error) => hopeless + 1,
            Ok(Told::Done) | Err(_) => 0,
        };
        if matches!(told, Ok(Told::Done)) || hopeless >= TRIES {
            ctx.refusals.settle(uid, &refusal);
        } else {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LATEST);
        }
    }
}

enum Told {
    /// Or there is nothing to tell.
    Done,
    Gone,
}

/// What is wrong with a request is wrong the next time, too. A conflict is none of that: somebody was faster.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Status { source, .. } => {
            code(source).is_none_or(|code| matches!(code, 409 | 429) || !(400..500).contains(&code))
        }
        _ => false,
    }
}

impl Refusal {
    async fn tell(&self, ctx: &Context, uid: &str) -> Result<Told, Error> {
        let name = &self.name;
        let failed =
            |source| Error::Status { kind: Kind::DevServer.as_str(), name: name.clone(), source: Box::new(source) };
        let servers = api(&ctx.client, Kind::DevServer, Some(&self.namespace));
        let Some(there) = in_time(servers.get_opt(name)).await.map_err(failed)? else { return Ok(Told::Gone) };
        if !self.concerns(&there, uid) {
            return Ok(Told::Done);
        }
        ctx.may_write()?;
        let refused = condition::new(
            Type::Accepted,
            Status::False,
            Reason::Invalid,
            &self.message,
            self.generation,
            stored(ctx.now()),
        );
        let others = there.data["status"]["conditions"].as_array().into_iter().flatten();
        let others = others.filter(|condition| condition["type"] != Type::Accepted.as_str()).cloned();
        let conditions: Vec<Value> = [json!(refused)].into_iter().chain(others).collect();
        let body = json!({
            "metadata": {"uid": uid, "resourceVersion": there.metadata.resource_version},
            "status": {"conditions": conditions},
        });
        // Not applied like everything else: for that the API server has to understand all of the stored object, too.
        let how = PatchParams { field_manager: Some("odc-operator-unreadable".into()), ..PatchParams::default() };
        in_time(servers.patch_status(name, &how, &Patch::Merge(&body))).await.map_err(failed)?;
        Ok(Told::Done)
    }

    /// Whether this is still the one that is refused, and does not say so yet.
    fn concerns(&self, there: &DynamicObject, uid: &str) -> bool {
        let conditions = there.data["status"]["conditions"].as_array();
        let told = conditions.is_some_and(|all| all.iter().any(|condition| condition["message"] == self.message));
        !told && there.metadata.uid.as_deref() == Some(uid) && there.metadata.generation == self.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, Asked, Fake};

    const QUICK: Duration = Duration::from_millis(1);

    fn bad(uid: &str, generation: i64) -> InvalidObject {
        let metadata = ObjectMeta {
            namespace: Some("dev-ada".into()),
            name: Some("box".into()),
            uid: Some(uid.into()),
            generation: Some(generation),
            ..ObjectMeta::default()
        };
        InvalidObject { error: "no".into(), metadata }
    }

    /// An API server that has a server of this uid, and answers writes with these codes, one after the other.
    fn cluster(uid: &'static str, codes: &[u16]) -> Fake {
        let mut codes = std::collections::VecDeque::from(codes.to_vec());
        fake::answering(move |asked: &Asked| {
            let there = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
                "metadata": {"name": "box", "namespace": "dev-ada", "uid": uid, "generation": 1, "resourceVersion": "7"}});
            (if asked.is_write() { codes.pop_front().unwrap() } else { 200 }, there)
        })
    }

    /// What was written until all was told.
    async fn written(cluster: &Fake, objects: &[InvalidObject]) -> Vec<Value> {
        let ctx = fake::context(cluster.client.clone());
        for bad in objects {
            let meta = &bad.metadata;
            let message = format!("It cannot be read: {}", bad.error);
            let refusal =
                Refusal { namespace: "dev-ada".into(), name: "box".into(), generation: meta.generation, message };
            ctx.refusals.add(meta.uid.as_deref().unwrap(), refusal);
        }
        tell(&ctx, objects[0].metadata.uid.as_deref().unwrap(), QUICK).await;
        assert!(ctx.refusals.lock().is_empty());
        cluster.asked().into_iter().filter(Asked::is_write).map(|asked| asked.body).collect()
    }

    #[tokio::test]
    async fn it_is_told_in_the_version_that_was_read() {
        let all = written(&cluster("a", &[200]), &[bad("a", 1)]).await;
        assert_eq!(all.len(), 1);
        assert_eq!(all[0]["metadata"], json!({"uid": "a", "resourceVersion": "7"}));
        assert_eq!(all[0]["status"]["conditions"][0]["message"], "It cannot be read: no");
    }

    #[tokio::test]
    async fn it_is_tried_again_while_there_is_hope() {
        assert_eq!(written(&cluster("a", &[503, 429, 409, 200]), &[bad("a", 1)]).await.len(), 4);
        for never in [400, 403, 404, 422] {
            assert_eq!(written(&cluster("a", &[never; 5]), &[bad("a", 1)]).await.len(), 5, "{never}");
            // A definition was being replaced.
            assert_eq!(written(&cluster("a", &[never, 200]), &[bad("a", 1)]).await.len(), 2, "{never}");
        }
        // Only what is said in a row counts.
        assert_eq!(written(&cluster("a", &[503, 422, 422, 422, 422, 503, 422, 200]), &[bad("a", 1)]).await.len(), 8);
    }

    #[tokio::test]
    async fn one_that_seems_to_be_gone_is_looked_for_again() {
        for (missing, told) in [(TRIES, 0), (TRIES - 1, 1)] {
            let mut missing = missing;
            let cluster = fake::answering(move |asked: &Asked| {
                let there = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
                    "metadata": {"name": "box", "namespace": "dev-ada", "uid": "a", "generation": 1}});
                let gone = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
                if asked.is_write() || missing == 0 {
                    return (200, there);
                }
                missing -= 1;
                (404, gone)
            });
            assert_eq!(written(&cluster, &[bad("a", 1)]).await.len(), told);
        }
    }

    #[tokio::test]
    async fn a_namesake_and_a_newer_one_are_not_told() {
        assert_eq!(written(&cluster("other", &[]), &[bad("a", 1)]).await, [Value::Null; 0]);
        assert_eq!(written(&cluster("a", &[]), &[bad("a", 2)]).await, [Value::Null; 0]);
    }

    #[tokio::test]
    async fn however_often_it_is_seen_it_is_told_once() {
        let cluster = cluster("a", &[200]);
        assert_eq!(written(&cluster, &[bad("a", 1), bad("a", 1), bad("a", 1)]).await.len(), 1);
        let refusals = Refusals::default();
        let refusal = |generation| Refusal {
            namespace: "dev-ada".into(),
            name: "box".into(),
            generation: Some(generation),
            message: String::new(),
        };
        assert!(refusals.add("a", refusal(1)));
        assert!(!refusals.add("a", refusal(2)), "a second task would be started");
        // What came while it was told is not lost.
        refusals.settle("a", &refusal(1));
        assert_eq!(refusals.get("a"), Some(refusal(2)));
        refusals.settle("a", &refusal(2));
        assert!(refusals.add("a", refusal(2)));
    }
}
