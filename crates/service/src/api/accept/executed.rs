//! Waits until reads of this replica have the result of an executed request, so that a client reads its own changes.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use odc_api::annotation;
use serde_json::Value;
use uuid::Uuid;

use crate::api::AppState;
use crate::api::cluster::Watched;
use crate::api::resource::{ApiResource, Watchable};
use crate::message::Message;

/// A watch delivers changes within milliseconds, unless it is interrupted.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the object after the request, if it exists.
pub(super) async fn wait_for_object(app: &AppState, user: &str, id: Uuid, message: &Message) -> Option<Value> {
    let cluster = &app.cluster;
    match message {
        Message::DevServerCreate(_)
        | Message::DevServerPatch(_)
        | Message::DevServerExtend(_)
        | Message::DevServerSetUser(_)
        | Message::DevServerDelete(_) => wait(&cluster.devservers, user, id, message).await,
        Message::DiskCreate(_) | Message::DiskPatch(_) | Message::DiskDelete(_) => {
            wait(&cluster.disks, user, id, message).await
        }
        Message::DiskOperationCreate(_) | Message::DiskOperationDelete(_) => {
            wait(&cluster.operations, user, id, message).await
        }
        Message::UserApply(_) | Message::UserDelete(_) => wait(&cluster.users, "", id, message).await,
        Message::TeamApply(_) | Message::TeamDelete(_) => wait(&cluster.teams, "", id, message).await,
        Message::FlavorApply(_) | Message::FlavorDelete(_) => wait(&cluster.flavors, "", id, message).await,
        Message::NodeOperationCreate(_) => None,
    }
}

async fn wait<K: ApiResource + Watchable>(
    objects: &Watched<K>,
    user: &str,
    id: Uuid,
    message: &Message,
) -> Option<Value> {
    let is_current = |object: Option<&K>| match object {
        Some(object) => is_executed(object, id) || (message.is_delete() && object.meta().deletion_timestamp.is_some()),
        None => message.is_delete(),
    };
    let object = objects.wait_for(user, message.object_name(), TIMEOUT, is_current).await?;
    serde_json::to_value(object.to_body(user, Timestamp::now())).ok()
}

/// Reports whether an object has the changes of a request.
fn is_executed<K: Watchable>(object: &K, id: Uuid) -> bool {
    let ids = object.annotations().get(annotation::EXECUTED_REQUESTS);
    ids.is_some_and(|ids| ids.split(',').any(|other| other.trim().parse() == Ok(id)))
}
