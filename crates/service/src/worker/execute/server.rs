//! Requests about servers.

use kube::api::{ApiResource, DynamicObject};
use odc_api::duration::Duration;
use odc_api::v1alpha1::{DevServer, Disk, Phase};
use odc_store::queue::FinishResult;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::answer::Outcome;
use super::super::decision::fail;
use super::disk;
use super::object::{Created, Execution, Step};
use crate::message::{CreateDevServer, DeleteDevServer, ExtendDevServer, PatchObject, Preconditions, SetUser};

/// Creates a server and, before it, the disk of its home if there is none. A finished server of the same name is replaced.
pub async fn create(execution: &Execution<'_>, create: &CreateDevServer) -> Step {
    if let Some(default_disk) = &create.default_disk {
        let disks = execution.namespaced::<Disk>();
        if execution.get_opt(&disks, &default_disk.name).await?.is_none() {
            disk::create_unless_exists(execution, default_disk).await?;
        }
    }
    let api = execution.namespaced::<DevServer>();
    let resource = ApiResource::erase::<DevServer>(&());
    let spec = to_value(&create.spec)?;
    let existing = match execution.create(&api, &resource, &create.name, spec.clone()).await? {
        Created::Done => return Ok(()),
        Created::Exists(existing, _) if is_finished(&existing) => existing,
        Created::Exists(_, rejected) => return Err(rejected),
    };
    execution.delete(&api, &create.name, &Preconditions { resource_version: None, uid: existing.metadata.uid }).await?;
    match execution.create(&api, &resource, &create.name, spec).await? {
        Created::Done => Ok(()),
        Created::Exists(existing, _) if is_finished(&existing) => {
            let message = format!("The finished server {} is being deleted.", create.name);
            Err(Outcome::Retry { after: None, message })
        }
        Created::Exists(_, rejected) => Err(rejected),
    }
}

pub async fn patch(execution: &Execution<'_>, patch: &PatchObject) -> Step {
    let api = execution.namespaced::<DevServer>();
    let spec = |_: &DynamicObject| Ok(json!({"spec": patch.patch}));
    execution.change(&api, &patch.name, &patch.preconditions, spec).await
}

pub async fn extend(execution: &Execution<'_>, extend: &ExtendDevServer) -> Step {
    let api = execution.namespaced::<DevServer>();
    let change = |server: &DynamicObject| Ok(json!({"spec": {"lifetime": extended(&parse(server)?, extend.by)}}));
    execution.change(&api, &extend.name, &extend.preconditions, change).await
}

pub async fn set_user(execution: &Execution<'_>, set: &SetUser) -> Step {
    let api = execution.namespaced::<DevServer>();
    let change = |server: &DynamicObject| Ok(json!({"spec": {"access": {"users": users(&parse(server)?, set)}}}));
    execution.change(&api, &set.name, &set.preconditions, change).await
}

/// Stops a server, or deletes it if it is finished or is to be purged.
pub async fn delete(execution: &Execution<'_>, delete: &DeleteDevServer) -> Step {
    let api = execution.namespaced::<DevServer>();
    if delete.purge {
        return execution.delete(&api, &delete.name, &delete.preconditions).await;
    }
    let end = |_: &DynamicObject| Ok(json!({"spec": {"desired": "Ended"}}));
    let mut rejected = None;
    loop {
        let Some(server) = execution.get_opt(&api, &delete.name).await? else { return Ok(()) };
        if execution.is_executed(&server) {
            return Ok(());
        }
        if is_finished(&server) {
            let uid = delete.preconditions.uid.clone().or(server.metadata.uid);
            let preconditions = Preconditions { uid, ..delete.preconditions.clone() };
            return execution.delete(&api, &delete.name, &preconditions).await;
        }
        if let Some(rejected) = rejected {
            return Err(rejected);
        }
        match execution.change(&api, &delete.name, &delete.preconditions, end).await {
            // The server may have finished since it was read.
            Err(outcome @ Outcome::Finished(FinishResult::Rejected { .. })) => rejected = Some(outcome),
            changed => return changed,
        }
    }
}

/// Returns the lifetime after an extension.
fn extended(server: &DevServer, by: Duration) -> Duration {
    let requested = server.spec.lifetime;
    // The operator can grant less than requested. What it has not processed yet is an earlier extension.
    let granted = server.status.as_ref().and_then(|status| status.lifetime.as_ref());
    let current =
        granted.filter(|lifetime| lifetime.requested == requested).map_or(requested, |lifetime| lifetime.granted);
    let extended = current.as_std().saturating_add(by.as_std());
    // If a limit reduced the same request before, the spec would not change and the operator would not react.
    let unchanged = Duration::from_std(extended) == requested && current < requested;
    Duration::from_std(if unchanged { extended + std::time::Duration::from_secs(1) } else { extended })
}

/// Returns the users with access to a server after the change.
fn users(server: &DevServer, set: &SetUser) -> Vec<String> {
    let others = server.spec.access.users.iter().filter(|user| **user != set.user);
    let set = set.has_access.then_some(&set.user);
    others.chain(set).map(ToString::to_string).collect()
}

fn is_finished(server: &DynamicObject) -> bool {
    let phase = server.data.pointer("/status/phase");
    let phase: Option<Phase> = phase.and_then(|phase| serde_json::from_value(phase.clone()).ok());
    phase.is_some_and(Phase::is_terminal)
}

fn parse(server: &DynamicObject) -> Step<DevServer> {
    let parsed = server.clone().try_parse();
    parsed.map_err(|error| Outcome::Finished(fail("InvalidObject", &format!("The server cannot be parsed: {error}."))))
}

/// Serializes a spec.
pub fn to_value(spec: &impl Serialize) -> Step<Value> {
    let invalid =
        |error| Outcome::Finished(fail("InvalidPayload", &format!("The spec cannot be serialized: {error}.")));
    serde_json::to_value(spec).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::GrantedLifetime;

    use super::*;

    #[test]
    fn extension_is_added_to_the_granted_lifetime() {
        let server = DevServer::test().lifetime("8h");
        assert_eq!(extended(&server, "2h".parse().unwrap()), "10h".parse().unwrap());
        let lifetime = GrantedLifetime { requested: "8h".parse().unwrap(), granted: "4h".parse().unwrap() };
        let limited = server.status(|status| status.lifetime = Some(lifetime));
        assert_eq!(extended(&limited, "2h".parse().unwrap()), "6h".parse().unwrap());
        assert_eq!(extended(&limited, "4h".parse().unwrap()), "8h1s".parse().unwrap());
    }

    #[test]
    fn extension_is_added_to_one_that_is_not_granted_yet() {
        let lifetime = GrantedLifetime { requested: "8h".parse().unwrap(), granted: "8h".parse().unwrap() };
        let server = DevServer::test().lifetime("10h").status(|status| status.lifetime = Some(lifetime));
        assert_eq!(extended(&server, "2h".parse().unwrap()), "12h".parse().unwrap());
    }

    #[test]
    fn user_is_added_once_and_removed() {
        let mut server = DevServer::test();
        server.spec.access.users = vec!["bob".parse().unwrap(), "eve".parse().unwrap()];
        let set = |user: &str, has_access| {
            let user = user.parse().unwrap();
            let set = SetUser { name: "box".to_owned(), preconditions: Preconditions::default(), user, has_access };
            users(&server, &set)
        };
        assert_eq!(set("dan", true), ["bob", "eve", "dan"]);
        assert_eq!(set("eve", true), ["bob", "eve"]);
        assert_eq!(set("bob", false), ["eve"]);
        assert_eq!(set("dan", false), ["bob", "eve"]);
    }

    #[test]
    fn server_in_a_final_phase_is_finished() {
        let in_phase = |phase| {
            let server = serde_json::to_value(DevServer::test().in_phase(phase)).unwrap();
            is_finished(&serde_json::from_value(server).unwrap())
        };
        assert!(in_phase(Phase::Expired) && in_phase(Phase::Cancelled) && in_phase(Phase::Failed));
        assert!(!in_phase(Phase::Stopping) && !in_phase(Phase::Running));
    }
}
