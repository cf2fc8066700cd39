//! Drives a person's namespace and what is in it, and clears up after people who are gone. Decides in `odc_core::user`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use odc_api::namespace;
use odc_api::v1alpha1::{DevServer, DevServerUser, DevServerUserStatus, Team};
use odc_core::object::Kind;
use odc_core::plan::{Again, Target};
use odc_core::seen::Child;
use odc_core::user::{self, Holds};
use tokio::sync::mpsc;

use crate::apply::apply;
use crate::context::Context;
use crate::error::Error;
use crate::report::{self, Manager};
use crate::request::in_time;
use crate::requeue;

const NAME: &str = "user";

pub async fn reconcile(user: Arc<DevServerUser>, ctx: Arc<Context>) -> Result<Action, Error> {
    let started = Instant::now();
    let done = drive(&user, &ctx).await;
    ctx.metrics.looked(NAME, started.elapsed());
    if done.is_ok() {
        ctx.hints.change(user.metadata.uid.as_deref().unwrap_or_default(), |hint| hint.failures = 0);
    }
    done
}

async fn drive(person: &DevServerUser, ctx: &Context) -> Result<Action, Error> {
    let name = person.name_any();
    let place = format!("dev-{name}");
    let namespace = ctx.cluster.namespaces.get("", &place);
    let children = ctx.cluster.children.in_namespace(&place);
    let teams = ctx.cluster.teams.all();
    let flavors = ctx.cluster.flavors.all();
    let devices = flavors.values().filter_map(|flavor| Some(flavor.spec.device.as_ref()?.resource.clone()));
    let seen = user::Seen {
        namespace: namespace.as_deref(),
        children: children.iter().map(|child| &**child).collect(),
        teams: teams.iter().map(|team| &**team).collect::<Vec<&Team>>(),
        devices: devices.collect::<BTreeSet<String>>(),
    };
    let plan = user::decide(person, &seen, &ctx.user_settings, ctx.now());
    for write in &plan.writes {
        apply(ctx, write).await?;
    }
    if person.status.as_ref() != Some(&plan.status) {
        let own = serde_json::to_value(DevServerUserStatus { usage: None, ..plan.status }).unwrap_or_default();
        report::status(ctx, person, own, Manager::Driver).await?;
    }
    ctx.reporter.tell(&person.object_ref(&()), &plan.events);
    Ok(match plan.again {
        Again::OnChange => Action::await_change(),
        Again::After(time) => Action::requeue(time),
    })
}

#[expect(clippy::needless_pass_by_value, reason = "the applier's signature")]
pub fn on_error(user: Arc<DevServerUser>, error: &Error, ctx: Arc<Context>) -> Action {
    let failures = ctx.hints.failed(user.metadata.uid.as_deref().unwrap_or_default());
    requeue::failed(&ctx, NAME, &user.name_any(), error, failures)
}

/// How long to wait before a namespace that could not be cleared is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Clears up, one namespace after the other: it is rare, and asks the API server about everything.
pub async fn clear_abandoned(ctx: Arc<Context>, mut places: mpsc::UnboundedReceiver<String>) {
    let mut due = BTreeSet::new();
    loop {
        tokio::select! {
            place = places.recv() => match place {
                Some(place) => due.insert(place),
                None => return,
            },
            () = tokio::time::sleep(AGAIN), if !due.is_empty() => true,
        };
        // Many changes in one namespace are one reason to look.
        while let Ok(place) = places.try_recv() {
            due.insert(place);
        }
        let mut left = BTreeSet::new();
        for place in std::mem::take(&mut due) {
            if !is_abandoned(&ctx, &place) {
                continue;
            }
            match clear(&ctx, &place).await {
                Ok(true) => {}
                Ok(false) => {
                    left.insert(place);
                }
                Err(error) => {
                    requeue::failed(&ctx, NAME, &place, &error, 1);
                    left.insert(place);
                }
            }
        }
        due = left;
    }
}

fn is_abandoned(ctx: &Context, place: &str) -> bool {
    let owner = namespace::owner(place);
    let ours = ctx.cluster.namespaces.get("", place).is_some_and(|namespace| {
        owner.as_ref().is_some_and(|owner| namespace.label(odc_api::label::OWNER) == Some(owner.as_str()))
    });
    ours && owner.is_some_and(|owner| ctx.user(owner.as_str()).is_none())
}

/// True when nothing is left to be done until something changes.
async fn clear(ctx: &Context, place: &str) -> Result<bool, Error> {
    let Some(namespace) = ctx.cluster.namespaces.get("", place) else { return Ok(true) };
    let Some(owner) = namespace::owner(place) else { return Ok(true) };
    let failed = |kind: Kind| move |source| Error::Read { kind, name: place.to_owned(), source: Box::new(source) };
    // Asked of the API server itself: a copy that is behind would make a full namespace look empty.
    let users: Api<DevServerUser> = Api::all(ctx.client.clone());
    // One that nobody can read is there, too, and the watch tells when they go.
    if in_time(users.get_metadata_opt(owner.as_str())).await.map_err(failed(Kind::DevServer))?.is_some() {
        return Ok(true);
    }
    let list = ListParams::default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), place);
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), place);
    let servers: Api<DevServer> = Api::namespaced(ctx.client.clone(), place);
    let servers = in_time(servers.list_metadata(&list)).await.map_err(failed(Kind::DevServer))?.items;
    let (leaving, staying): (Vec<_>, Vec<_>) =
        servers.into_iter().partition(|server| server.metadata.deletion_timestamp.is_some());
    let target = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| Target {
        kind: Kind::DevServer,
        namespace: meta.namespace.clone(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        grace: None,
    };
    let holds = Holds {
        claims: in_time(claims.list_metadata(&list)).await.map_err(failed(Kind::Namespace))?.items.len(),
        pods: in_time(pods.list_metadata(&list)).await.map_err(failed(Kind::Pod))?.items.len(),
        servers: staying.iter().map(|server| target(&server.metadata)).collect(),
        leaving: leaving.len(),
    };
    let children = ctx.cluster.children.in_namespace(place);
    let children: Vec<&Child> = children.iter().map(|child| &**child).collect();
    let writes = user::abandoned(&namespace, &holds, &children);
    for write in &writes {
        apply(ctx, write).await?;
    }
    let emptying = !holds.servers.is_empty() || holds.leaving > 0 || holds.pods > 0;
    Ok(writes.is_empty() && !emptying)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake;

    #[tokio::test]
    async fn whoever_is_there_but_unreadable_is_asked_for_once() {
        let cluster = fake::answering(|asked| {
            let mut head = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"});
            head["metadata"] = json!({"name": "ada", "uid": "u"});
            if asked.path.ends_with("/ada") { (200, head) } else { (404, json!(null)) }
        });
        let ctx = fake::context(cluster.client.clone());
        let stored = json!({"metadata": {"name": "dev-ada", "uid": "n", "labels": {odc_api::label::OWNER: "ada"}}});
        let key = (String::new(), "dev-ada".to_owned());
        ctx.cluster.namespaces.insert_listed(key, Child::of(Kind::Namespace, stored), 1);
        assert!(is_abandoned(&ctx, "dev-ada"));
        assert!(clear(&ctx, "dev-ada").await.unwrap());
        let asked: Vec<_> = cluster.asked().into_iter().map(|asked| asked.path).collect();
        assert_eq!(asked, ["/apis/odc.dev/v1alpha1/devserverusers/ada"]);
    }
}
