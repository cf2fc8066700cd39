//! Reads and writes of single objects on behalf of a request.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use odc_api::{annotation, label, namespace};
use odc_store::queue::{FinishResult, Work};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::answer::{self, Call, Outcome, classify, timed_out};
use crate::message::Preconditions;

/// A call that takes longer is repeated later. The API server ends calls after a minute.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a change is computed again after a concurrent change of the object.
const MAX_CONFLICTS: usize = 5;
/// The number of requests that an object names. A message is delivered again within the visibility timeout, and few
/// requests change the same object meanwhile.
const MAX_EXECUTED_REQUESTS: usize = 8;

/// The result of one step. An error ends the execution.
pub type Step<T = ()> = Result<T, Outcome>;

/// The execution of a request.
pub struct Execution<'a> {
    client: &'a Client,
    pub work: &'a Work,
}

/// The result of a create.
pub enum Created {
    /// The object was created, now or by an earlier delivery of the message.
    Done,
    /// Another object of this name exists. The outcome is that of the create.
    Exists(Box<DynamicObject>, Outcome),
}

impl<'a> Execution<'a> {
    pub const fn new(client: &'a Client, work: &'a Work) -> Self {
        Self { client, work }
    }

    /// Returns the objects of a kind in the namespace of the user.
    pub fn namespaced<K: Resource<DynamicType = ()>>(&self) -> Api<DynamicObject> {
        let namespace = namespace::for_user(&self.work.user);
        Api::namespaced_with(self.client.clone(), &namespace, &ApiResource::erase::<K>(&()))
    }

    /// Returns the objects of a cluster-scoped kind.
    pub fn all(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), resource)
    }

    /// Returns an object, or none if it does not exist.
    pub async fn get_opt(&self, api: &Api<DynamicObject>, name: &str) -> Step<Option<DynamicObject>> {
        match call(api.get(name)).await? {
            Ok(object) => Ok(Some(object)),
            Err(error) if answer::is_not_found(&error) => Ok(None),
            Err(error) => Err(classify(&error, Call::Unconditional)),
        }
    }

    async fn get(&self, api: &Api<DynamicObject>, name: &str) -> Step<DynamicObject> {
        call(api.get(name)).await?.map_err(|error| classify(&error, Call::Unconditional))
    }

    /// Creates an object with this name and spec.
    pub async fn create(
        &self,
        api: &Api<DynamicObject>,
        resource: &ApiResource,
        name: &str,
        spec: Value,
    ) -> Step<Created> {
        let mut object = DynamicObject::new(name, resource).data(json!({"spec": spec}));
        object.metadata.annotations = serde_json::from_value(self.annotations(None)).ok();
        let params = PostParams { dry_run: false, field_manager: Some(label::WORKER.to_owned()) };
        match call(api.create(&params, &object)).await? {
            Ok(_) => Ok(Created::Done),
            Err(error) if answer::is_already_exists(&error) => {
                let outcome = classify(&error, Call::Unconditional);
                match self.get_opt(api, name).await? {
                    Some(existing) if self.is_executed(&existing) => Ok(Created::Done),
                    Some(existing) => Ok(Created::Exists(Box::new(existing), outcome)),
                    // It was deleted in between.
                    None => Err(Outcome::Retry { after: None, message: format!("{name} is being deleted.") }),
                }
            }
            // The operator creates the namespace of a new user within seconds.
            Err(error) if answer::is_namespace_missing(&error) => {
                Err(Outcome::Retry { after: None, message: answer::message(&error) })
            }
            Err(error) => Err(classify(&error, Call::Unconditional)),
        }
    }

    /// Changes an object with a merge patch that is computed from its current state.
    pub async fn change(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        preconditions: &Preconditions,
        patch: impl Fn(&DynamicObject) -> Step<Value>,
    ) -> Step {
        for _ in 0..MAX_CONFLICTS {
            let object = self.get(api, name).await?;
            if self.is_executed(&object) {
                return Ok(());
            }
            check_uid(preconditions, &object)?;
            let patch = self.complete(patch(&object)?, &object, preconditions);
            match call(api.patch(name, &patch_params(), &Patch::Merge(patch))).await? {
                Ok(_) => return Ok(()),
                Err(error) if answer::is_conflict(&error) && preconditions.resource_version.is_none() => {}
                Err(error) => return Err(classify(&error, Call::Conditional)),
            }
        }
        Err(Outcome::Retry { after: None, message: format!("{name} is changed by others at the same time.") })
    }

    /// Deletes an object. Succeeds if it does not exist.
    pub async fn delete(&self, api: &Api<DynamicObject>, name: &str, preconditions: &Preconditions) -> Step {
        let Preconditions { uid, resource_version } = preconditions.clone();
        let has_preconditions = uid.is_some() || resource_version.is_some();
        let preconditions = has_preconditions.then_some(kube::api::Preconditions { uid, resource_version });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match call(api.delete(name, &params)).await? {
            Ok(_) => Ok(()),
            Err(error) if answer::is_not_found(&error) => Ok(()),
            Err(error) => Err(classify(&error, Call::Conditional)),
        }
    }

    /// Sends a patch without reading the object first. Returns whether the object exists.
    pub async fn patch<P: serde::Serialize + Debug>(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Step<bool> {
        match call(api.patch(name, params, patch)).await? {
            Ok(_) => Ok(true),
            Err(error) if answer::is_not_found(&error) => Ok(false),
            Err(error) => Err(classify(&error, Call::Conditional)),
        }
    }

    /// Adds the annotations and the version to which a patch applies.
    fn complete(&self, mut patch: Value, object: &DynamicObject, preconditions: &Preconditions) -> Value {
        let version = preconditions.resource_version.as_ref().or(object.metadata.resource_version.as_ref());
        let metadata = json!({"metadata": {"resourceVersion": version, "annotations": self.annotations(Some(object))}});
        merge(&mut patch, metadata);
        patch
    }

    /// Returns the annotations of an object that the request creates or changes.
    pub fn annotations(&self, existing: Option<&DynamicObject>) -> Value {
        let earlier = existing.map(executed_requests).unwrap_or_default();
        let executed = std::iter::once(self.work.id).chain(earlier).take(MAX_EXECUTED_REQUESTS);
        let executed: Vec<String> = executed.map(|id| id.to_string()).collect();
        json!({
            annotation::REQUESTED_BY: self.work.actor,
            annotation::REQUEST_ID: self.work.id,
            annotation::EXECUTED_REQUESTS: executed.join(","),
        })
    }

    /// Reports whether an earlier delivery of the message changed the object.
    pub fn is_executed(&self, object: &DynamicObject) -> bool {
        executed_requests(object).contains(&self.work.id)
    }
}

/// Returns the parameters of a merge patch.
pub fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(label::WORKER.to_owned()), ..PatchParams::default() }
}

fn executed_requests(object: &DynamicObject) -> Vec<Uuid> {
    let ids = object.metadata.annotations.as_ref().and_then(|all| all.get(annotation::EXECUTED_REQUESTS));
    ids.map(|ids| ids.split(',').filter_map(|id| id.trim().parse().ok()).collect()).unwrap_or_default()
}

async fn call<T>(call: impl Future<Output = kube::Result<T>>) -> Step<kube::Result<T>> {
    tokio::time::timeout(CALL_TIMEOUT, call).await.map_err(|_| timed_out())
}

/// Rejects the request if the object was replaced by another one of the same name.
fn check_uid(preconditions: &Preconditions, object: &DynamicObject) -> Step {
    let found = object.metadata.uid.as_deref().unwrap_or_default();
    match preconditions.uid.as_deref() {
        Some(expected) if expected != found => Err(Outcome::Finished(FinishResult::Rejected {
            status_code: 409,
            message: format!("Precondition failed: UID in precondition: {expected}, UID in object meta: {found}"),
        })),
        _ => Ok(()),
    }
}

/// Merges the objects of a document into another.
pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert_with(|| Value::Object(Map::new())), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use odc_api::v1alpha1::DevServer;

    use super::*;

    fn work(id: u8) -> Work {
        Work {
            id: Uuid::from_u128(id.into()),
            user: "ada".to_owned(),
            actor: "root".to_owned(),
            action: "devserver.extend".to_owned(),
            object_name: "box".to_owned(),
            payload: Value::Null,
            created_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn client() -> Client {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::empty()))
        });
        Client::new(service, "default")
    }

    fn annotated(existing: Option<&DynamicObject>, id: u8) -> DynamicObject {
        let (client, work) = (client(), work(id));
        let mut object = DynamicObject::new("box", &ApiResource::erase::<DevServer>(&()));
        let annotations = Execution::new(&client, &work).annotations(existing);
        object.metadata.annotations = Some(serde_json::from_value(annotations).unwrap());
        object
    }

    fn is_executed(object: &DynamicObject, id: u8) -> bool {
        let (client, work) = (client(), work(id));
        Execution::new(&client, &work).is_executed(object)
    }

    #[tokio::test]
    async fn repeated_request_is_recognized_after_other_requests() {
        let mut object = annotated(None, 1);
        assert!(is_executed(&object, 1) && !is_executed(&object, 2));
        assert_eq!(object.metadata.annotations.as_ref().unwrap()[annotation::REQUESTED_BY], "root");
        for id in 2..=8 {
            object = annotated(Some(&object), id);
            assert!(is_executed(&object, 1), "{id}");
        }
        object = annotated(Some(&object), 9);
        assert!(!is_executed(&object, 1) && is_executed(&object, 9));
    }

    #[tokio::test]
    async fn patch_applies_to_the_version_that_was_read_or_requested() {
        let (client, work) = (client(), work(1));
        let execution = Execution::new(&client, &work);
        let mut object = DynamicObject::new("box", &ApiResource::erase::<DevServer>(&()));
        object.metadata.resource_version = Some("7".to_owned());
        let complete = |preconditions| execution.complete(json!({"spec": {"wake": "x"}}), &object, &preconditions);
        let patch = complete(Preconditions::default());
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["spec"]["wake"], "x");
        let patch = complete(Preconditions { resource_version: Some("6".to_owned()), uid: None });
        assert_eq!(patch["metadata"]["resourceVersion"], "6");
    }

    #[test]
    fn object_of_another_uid_is_rejected() {
        let mut object = DynamicObject::new("box", &ApiResource::erase::<DevServer>(&()));
        object.metadata.uid = Some("b".to_owned());
        let check = |uid: Option<&str>| {
            check_uid(&Preconditions { uid: uid.map(str::to_owned), resource_version: None }, &object)
        };
        assert!(check(None).is_ok() && check(Some("b")).is_ok());
        let rejected =
            matches!(check(Some("a")), Err(Outcome::Finished(FinishResult::Rejected { status_code: 409, .. })));
        assert!(rejected);
    }

    #[test]
    fn merge_keeps_other_fields() {
        let mut value = json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"x": 1}});
        merge(&mut value, json!({"metadata": {"annotations": {"b": "2"}}}));
        assert_eq!(value, json!({"metadata": {"annotations": {"a": "1", "b": "2"}}, "spec": {"x": 1}}));
    }
}
