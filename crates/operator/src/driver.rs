//! Runs a driver: objects are looked at as they are named, each by itself, several side by side.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::{StreamExt as _, stream};
use kube::Resource;
use kube::runtime::controller::{Action, Config as Applier, applier};
use kube::runtime::reflector::{self, ObjectRef};
use tokio::sync::mpsc;

use crate::context::Context;
use crate::error::Error;

/// At most so many at once.
pub fn driver<K, F>(
    ctx: &Arc<Context>,
    store: reflector::Store<K>,
    due: mpsc::UnboundedReceiver<ObjectRef<K>>,
    at_once: u16,
    reconcile: fn(Arc<K>, Arc<Context>) -> F,
    on_error: fn(Arc<K>, &Error, Arc<Context>) -> Action,
) -> BoxFuture<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let due = stream::unfold(due, |mut due| async move {
        let next = due.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(next), due))
    });
    // A panic harms only the object it happens at; the applier is told that it failed.
    let reconcile = move |object: Arc<K>, ctx: Arc<Context>| {
        Box::pin(async move {
            let looked = tokio::spawn(reconcile(object, ctx)).await;
            looked.unwrap_or_else(|panic| Err(Error::Panicked(panic.to_string())))
        })
    };
    let settings = Applier::default().concurrency(at_once);
    applier(reconcile, on_error, ctx.clone(), store, Box::pin(due), settings).for_each(|_| async {}).boxed()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use kube::ResourceExt as _;
    use kube::runtime::watcher::Event;
    use odc_api::v1alpha1::DevServer;
    use serde_json::{Value, json};

    use super::*;
    use crate::devserver;
    use crate::fake::{self, Asked};

    const POISON: &str = "server-50";

    /// Looks at a server as usual, but for the one that nobody can look at without falling over.
    async fn look(server: Arc<DevServer>, ctx: Arc<Context>) -> Result<Action, Error> {
        assert!(server.name_any() != POISON, "this one is poison");
        devserver::reconcile(server, ctx).await
    }

    fn server(name: &str) -> Value {
        json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
            "metadata": {"name": name, "namespace": "dev-ada", "uid": name, "resourceVersion": "1", "generation": 1},
            "spec": {"home": {"ephemeral": "1Gi"}}})
    }

    /// The objects whose status was written.
    fn told(asked: &[Asked]) -> BTreeSet<String> {
        let status =
            asked.iter().filter(|asked| asked.is_write()).filter_map(|asked| asked.path.strip_suffix("/status"));
        status.filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn one_object_that_panics_keeps_nobody_else_from_anything() {
        let cluster = fake::answering(|asked| {
            let stored = server(asked.path.trim_end_matches("/status").rsplit('/').next().unwrap_or_default());
            if asked.is_write() == asked.path.ends_with("/status") { (200, stored) } else { (404, Value::Null) }
        });
        let ctx = fake::context(cluster.client.clone());
        let (servers, mut writer) = reflector::store();
        let (due, receiver) = mpsc::unbounded_channel();
        writer.apply_watcher_event(&Event::Init);
        writer.apply_watcher_event(&Event::InitDone);
        for number in 0..100 {
            let name = format!("server-{number}");
            ctx.hints.admit(&name);
            writer.apply_watcher_event(&Event::Apply(serde_json::from_value(server(&name)).unwrap()));
            due.send(ObjectRef::new(&name).within("dev-ada")).unwrap();
        }
        let driver = driver(&ctx, servers, receiver, 8, look, devserver::on_error);
        let all_others = async {
            // It is tried again meanwhile, later each time, until its owner is told, too.
            while told(&cluster.asked()).len() < 100 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = driver => panic!("the driver ended"),
            done = tokio::time::timeout(Duration::from_secs(20), all_others) => done.unwrap(),
        }
        let asked = cluster.asked();
        let of_poison: Vec<&Asked> =
            asked.iter().filter(|asked| asked.is_write() && asked.path.contains(&format!("/{POISON}/"))).collect();
        assert_eq!(of_poison.len(), 1);
        let message = of_poison[0].body["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("ODC fails at this server by a mistake of its own"), "{message}");
        assert!(ctx.hints.get(POISON).failures > 2);
        assert_eq!(ctx.hints.get("server-1").failures, 0);
    }
}
