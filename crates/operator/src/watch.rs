//! What is watched, and who is to be looked at when it changes.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::api::{Api, DynamicObject};
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Phase, Team};
use odc_api::{label, namespace};
use odc_core::object::Kind;
use odc_core::{holder, seen};

use crate::agents::authority;
use crate::context::{Children, Context};
use crate::facts;
use crate::follow::{Change, Guarded, follow};
use crate::reflect::{News, OwnWrites, own, reflect};
use crate::request::api;

/// The ends of the stores that only the watches write to.
pub struct Writers {
    pub servers: Writer<DevServer>,
    pub own_servers: OwnWrites<DevServer>,
    pub users: Writer<DevServerUser>,
}

/// Every watch, each running for ever.
pub fn all(ctx: &Arc<Context>, writers: Writers) -> Vec<BoxFuture<'static, ()>> {
    let mut all = vec![
        servers(ctx.clone(), writers.servers, writers.own_servers).boxed(),
        users(ctx.clone(), writers.users).boxed(),
        flavors(ctx.clone()).boxed(),
        teams(ctx.clone()).boxed(),
        pods(ctx.clone()).boxed(),
        nodes(ctx.clone()).boxed(),
        claims(ctx.clone()).boxed(),
        volumes(ctx.clone()).boxed(),
        classes(ctx.clone()).boxed(),
        attach_limits(ctx.clone()).boxed(),
        runtimes(ctx.clone()).boxed(),
        namespaces(ctx.clone()).boxed(),
        authority::follow(ctx.clone()).boxed(),
    ];
    all.extend(Children::KINDS.into_iter().map(|kind| children(ctx.clone(), kind).boxed()));
    all
}

/// Waits until everything was seen once.
pub async fn complete(ctx: &Context) -> anyhow::Result<()> {
    let cluster = &ctx.cluster;
    ctx.authority.subscribe().wait_for(authority::Known::was_looked_at).await?;
    cluster.servers.wait_until_ready().await?;
    cluster.users.wait_until_ready().await?;
    cluster.flavors.ready().await;
    cluster.teams.ready().await;
    cluster.pods.ready().await;
    cluster.nodes.ready().await;
    cluster.claims.ready().await;
    cluster.volumes.ready().await;
    cluster.classes.ready().await;
    cluster.attach_limits.ready().await;
    cluster.runtimes.ready().await;
    cluster.namespaces.ready().await;
    for kind in Children::KINDS {
        if let Some(cache) = cluster.children.of(kind) {
            cache.ready().await;
        }
    }
    Ok(())
}

/// In small pages: each is held as text and as objects at once, so they set how much memory a start takes.
fn config() -> watcher::Config {
    watcher::Config::default().page_size(100)
}

/// Only what we made.
fn ours() -> watcher::Config {
    config().labels(&format!("{}=odc-operator", label::MANAGED_BY))
}

async fn servers(ctx: Arc<Context>, writer: Writer<DevServer>, own: OwnWrites<DevServer>) {
    let api: Api<Guarded<DevServer>> = Api::all(ctx.client.clone());
    reflect(api, config(), writer, own, |news| match news {
        News::Is(server) => server_changed(&ctx, server, false),
        News::Gone(server) => server_changed(&ctx, server, true),
        News::Unreadable(bad) => crate::unreadable::server(&ctx, bad),
        News::UnreadableGone((namespace, _)) => {
            let _ = ctx.triggers.namespaces.send(namespace.clone());
        }
    })
    .await;
}

fn server_changed(ctx: &Context, server: &DevServer, gone: bool) {
    let key = crate::follow::key(server);
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    if gone {
        ctx.hints.forget(uid);
        ctx.cluster.neighbours.remove(&key);
    } else {
        ctx.hints.admit(uid);
        ctx.cluster.neighbours.add(key.clone());
    }
    let (namespace, name) = key;
    if gone || server.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::terminal) {
        for claim in facts::claims(ctx, server) {
            look_at_mounting(ctx, &namespace, &claim, &name);
        }
    }
    if gone {
        let _ = ctx.triggers.namespaces.send(namespace);
    } else {
        ctx.look_at_server(&namespace, &name);
    }
    ctx.look_at_queue();
}

/// Whoever waits for a claim may have it now that this server, or a pod of it, has let it go.
fn look_at_mounting(ctx: &Context, namespace: &str, claim: &str, but: &str) {
    for other in ctx.mounting(namespace, claim) {
        let other = other.metadata.name.as_deref().unwrap_or_default();
        if other != but {
            ctx.look_at_server(namespace, other);
        }
    }
}

async fn users(ctx: Arc<Context>, writer: Writer<DevServerUser>) {
    let api: Api<Guarded<DevServerUser>> = Api::all(ctx.client.clone());
    let (_never, own) = own();
    reflect(api, config(), writer, own, |news| match news {
        News::Is(user) => user_changed(&ctx, user, false),
        News::Gone(user) => user_changed(&ctx, user, true),
        News::Unreadable(bad) => crate::unreadable::object(&ctx, "DevServerUser", bad),
        // What they have was theirs as long as they were there.
        News::UnreadableGone((_, name)) => {
            let _ = ctx.triggers.namespaces.send(format!("dev-{name}"));
        }
    })
    .await;
}

fn user_changed(ctx: &Context, user: &DevServerUser, gone: bool) {
    let name = user.metadata.name.clone().unwrap_or_default();
    let theirs = format!("dev-{name}");
    let uid = user.metadata.uid.as_deref().unwrap_or_default();
    if gone {
        ctx.hints.forget(uid);
        let _ = ctx.triggers.namespaces.send(theirs.clone());
    } else {
        ctx.hints.admit(uid);
        ctx.look_at_user(&name);
    }
    look_at_servers(ctx, |server| {
        let lets_in = server.spec.access.users.iter().any(|guest| guest.as_str() == name);
        lets_in || server.metadata.namespace.as_deref() == Some(&theirs)
    });
    ctx.triggers.teams.notify_one();
    ctx.look_at_queue();
}

async fn flavors(ctx: Arc<Context>) {
    let api: Api<Guarded<DevServerFlavor>> = Api::all(ctx.client.clone());
    let project = |guarded: Guarded<DevServerFlavor>| {
        let refused = |bad| crate::unreadable::object(&ctx, "DevServerFlavor", &bad);
        let mut flavor = guarded.0.map_err(refused).ok()?;
        flavor.metadata.managed_fields = None;
        Some(flavor)
    };
    follow(api, config(), &ctx.cluster.flavors.kept, project, |change| {
        if change.old.map(|old| &old.spec) == change.new.map(|new| &new.spec) && change.old.is_some() {
            return;
        }
        ctx.cluster.flavors.renew();
        let name = &change.key.1;
        // A new default counts for those that name none.
        look_at_servers(&ctx, |server| server.spec.flavor.as_ref().is_none_or(|flavor| flavor.as_str() == name));
        for user in ctx.cluster.users.state() {
            ctx.look_at_user(user.metadata.name.as_deref().unwrap_or_default());
        }
        ctx.look_at_queue();
    })
    .await;
}

async fn teams(ctx: Arc<Context>) {
    let api: Api<Guarded<Team>> = Api::all(ctx.client.clone());
    let project = |guarded: Guarded<Team>| {
        let mut team = guarded.0.map_err(|bad| crate::unreadable::object(&ctx, "Team", &bad)).ok()?;
        team.metadata.managed_fields = None;
        Some(team)
    };
    follow(api, config(), &ctx.cluster.teams, project, |change| {
        ctx.triggers.teams.notify_one();
        if change.old.map(|old| &old.spec) == change.new.map(|new| &new.spec) && change.old.is_some() {
            return;
        }
        let team = &change.key.1;
        look_at_servers(&ctx, |server| server.spec.team.as_ref().is_some_and(|name| name.as_str() == team));
        let members = change.old.iter().chain(&change.new).flat_map(|team| &team.spec.members);
        for member in members {
            ctx.look_at_user(member.as_str());
        }
        ctx.look_at_queue();
    })
    .await;
}

async fn pods(ctx: Arc<Context>) {
    let api: Api<k8s::Pod> = Api::all(ctx.client.clone());
    let project = |pod: k8s::Pod| Some(seen::Pod::of(&pod));
    follow(api, config(), &ctx.cluster.pods, project, |change| {
        let matters = |pod: Option<&seen::Pod>| {
            pod.map(|pod| {
                let refused = pod.server.as_ref().and_then(|server| server.unschedulable);
                (pod.uid.clone(), pod.node.clone(), pod.is_over(), pod.deleting.is_some(), refused)
            })
        };
        if let Some(server) = server_of(&change) {
            ctx.look_at_server(&change.key.0, server);
        }
        for claim in holder::let_go(change.old, change.new) {
            look_at_mounting(&ctx, &change.key.0, claim, server_of(&change).unwrap_or_default());
        }
        if let Some(old) = change.old
            && change.new.is_none_or(|new| new.uid != old.uid)
            && let Some(owner) = old.server.as_ref().and_then(|details| details.owner.as_deref())
        {
            ctx.hints.forget_pod(owner, &old.uid);
        }
        if matters(change.old) != matters(change.new) || change.new.is_none() {
            ctx.look_at_queue();
        }
    })
    .await;
}

/// The server a pod belongs to, by its label, or by its name if somebody took that away.
fn server_of<'a>(change: &'a Change<'_, seen::Pod>) -> Option<&'a str> {
    let labelled = change.new.or(change.old).and_then(|pod| pod.server.as_ref()).and_then(|pod| pod.server.as_deref());
    labelled.or_else(|| change.key.1.rsplit_once('-').map(|(server, _)| server))
}

async fn nodes(ctx: Arc<Context>) {
    let api: Api<k8s::Node> = Api::all(ctx.client.clone());
    let project = |node: k8s::Node| Some(seen::Node::of(&node));
    follow(api, config(), &ctx.cluster.nodes, project, |change| {
        // Heartbeats change nothing that counts.
        if change.old == change.new && change.old.is_some() {
            return;
        }
        if change.new.is_some() {
            ctx.cluster.missing.found(&change.key.1);
        }
        let readiness = |node: Option<&seen::Node>| node.map(|node| node.readiness);
        if readiness(change.old) != readiness(change.new) || change.new.is_none() {
            let name = Some(change.key.1.as_str());
            for pod in ctx.cluster.pods.all().iter().filter(|pod| pod.node.as_deref() == name) {
                if let Some(server) = pod.server.as_ref().and_then(|pod| pod.server.as_deref()) {
                    ctx.look_at_server(&pod.namespace, server);
                }
            }
        }
        ctx.look_at_queue();
    })
    .await;
}

async fn claims(ctx: Arc<Context>) {
    let api: Api<k8s::PersistentVolumeClaim> = Api::all(ctx.client.clone());
    let project = |claim: k8s::PersistentVolumeClaim| Some(seen::Claim::of(&claim));
    follow(api, config(), &ctx.cluster.claims, project, |change| {
        if change.old == change.new && change.old.is_some() {
            return;
        }
        let (namespace, name) = change.key;
        for server in ctx.mounting(namespace, name) {
            ctx.look_at_server(namespace, server.metadata.name.as_deref().unwrap_or_default());
        }
        if change.new.is_none() {
            let _ = ctx.triggers.namespaces.send(change.key.0.clone());
        }
        ctx.look_at_queue();
    })
    .await;
}

async fn volumes(ctx: Arc<Context>) {
    let api: Api<k8s::PersistentVolume> = Api::all(ctx.client.clone());
    let project = |volume: k8s::PersistentVolume| Some(seen::VolumeSeen::of(&volume));
    follow(api, config(), &ctx.cluster.volumes, project, |_| ctx.look_at_queue()).await;
}

async fn classes(ctx: Arc<Context>) {
    let api: Api<StorageClass> = Api::all(ctx.client.clone());
    let project = |class: StorageClass| Some(seen::Class::of(&class));
    follow(api, config(), &ctx.cluster.classes, project, |_| {
        look_at_servers(&ctx, |_| true);
        ctx.look_at_queue();
    })
    .await;
}

async fn attach_limits(ctx: Arc<Context>) {
    let api: Api<CSINode> = Api::all(ctx.client.clone());
    let project = |node: CSINode| seen::AttachLimits::of(&node);
    follow(api, config(), &ctx.cluster.attach_limits, project, |change| {
        if change.old != change.new {
            ctx.look_at_queue();
        }
    })
    .await;
}

async fn runtimes(ctx: Arc<Context>) {
    let api: Api<RuntimeClass> = Api::all(ctx.client.clone());
    let project = |class: RuntimeClass| Some(seen::Runtime::of(&class));
    follow(api, config(), &ctx.cluster.runtimes, project, |change| {
        if change.old != change.new {
            look_at_servers(&ctx, |_| true);
            ctx.look_at_queue();
        }
    })
    .await;
}

async fn namespaces(ctx: Arc<Context>) {
    let api = api(&ctx.client, Kind::Namespace, None);
    let project = |object: DynamicObject| {
        // Of all other namespaces it is enough that a user may not have their name.
        namespace::owner(object.metadata.name.as_deref()?)?;
        Some(seen::Child::of(Kind::Namespace, serde_json::to_value(object).unwrap_or_default()))
    };
    let dynamic = |change: Change<'_, seen::Child>| {
        if let Some(owner) = namespace::owner(&change.key.1) {
            ctx.look_at_user(owner.as_str());
            let _ = ctx.triggers.namespaces.send(change.key.1.clone());
            // Servers are whose namespace it is.
            let mark =
                |place: Option<&seen::Child>| place.and_then(|place| place.label(label::OWNER).map(str::to_owned));
            if mark(change.old) != mark(change.new) {
                look_at_servers(&ctx, |server| server.metadata.namespace.as_ref() == Some(&change.key.1));
                ctx.look_at_queue();
            }
        }
    };
    follow(api, config(), &ctx.cluster.namespaces, project, dynamic).await;
}

async fn children(ctx: Arc<Context>, kind: Kind) {
    let api = api(&ctx.client, kind, None);
    let Some(cache) = ctx.cluster.children.of(kind) else { return };
    let project = |object: DynamicObject| Some(seen::Child::of(kind, serde_json::to_value(object).unwrap_or_default()));
    let changed = |change: Change<'_, seen::Child>| {
        if change.old == change.new && change.old.is_some() {
            return;
        }
        let labelled = change.new.or(change.old).and_then(|child| child.label(label::SERVER));
        if kind == Kind::Service {
            ctx.look_at_server(&change.key.0, labelled.unwrap_or(&change.key.1));
        } else if let Some(owner) = namespace::owner(&change.key.0) {
            ctx.look_at_user(owner.as_str());
        }
        let _ = ctx.triggers.namespaces.send(change.key.0.clone());
    };
    follow(api, ours(), cache, project, changed).await;
}

fn look_at_servers(ctx: &Context, which: impl Fn(&DevServer) -> bool) {
    for server in ctx.cluster.servers.state() {
        if which(&server) {
            let (namespace, name) = crate::follow::key(&*server);
            ctx.look_at_server(&namespace, &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake;

    #[tokio::test]
    async fn nothing_is_kept_of_those_who_came_and_went() {
        let ctx = fake::context(fake::answering(|_| (404, Value::Null)).client);
        for number in 0..500 {
            let uid = |kind: &str| Some(format!("{kind}-{number}"));
            let mut server: DevServer =
                serde_json::from_value(json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
                    "metadata": {}, "spec": {"home": {"ephemeral": "1Gi"}}}))
                .unwrap();
            server.metadata = ObjectMeta {
                name: uid("s"),
                namespace: Some("dev-ada".into()),
                uid: uid("s"),
                ..ObjectMeta::default()
            };
            let mut user: DevServerUser =
                serde_json::from_value(json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerUser",
                    "metadata": {}, "spec": {}}))
                .unwrap();
            user.metadata = ObjectMeta { name: uid("u"), uid: uid("u"), ..ObjectMeta::default() };
            server_changed(&ctx, &server, false);
            user_changed(&ctx, &user, false);
            assert_eq!(ctx.hints.failed(&uid("s").unwrap()), 1);
            server_changed(&ctx, &server, true);
            user_changed(&ctx, &user, true);
            // The looks that were under way end now, well and not so well.
            let (server, user) = (Arc::new(server), Arc::new(user));
            let failed = crate::error::Error::NotLeading;
            crate::devserver::reconcile(server.clone(), ctx.clone()).await.unwrap();
            crate::devserver::on_error(server, &failed, ctx.clone());
            crate::user::on_error(user, &failed, ctx.clone());
        }
        assert_eq!(ctx.hints.count(), 0);
        assert_eq!(ctx.cluster.neighbours.of("dev-ada"), [""; 0]);
    }
}
