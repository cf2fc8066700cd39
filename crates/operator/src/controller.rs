//! Runs a controller: reconciles the objects of a work queue, each object serially, several objects concurrently.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::{StreamExt as _, stream};
use kube::Resource;
use kube::runtime::controller::{Action, Config as Applier, applier};
use kube::runtime::reflector::{self, ObjectRef};
use tokio::sync::mpsc;

use crate::context::Context;
use crate::error::Error;

/// Returns a task that reconciles at most `max_concurrent` objects at a time.
pub fn run_controller<K, F>(
    ctx: &Arc<Context>,
    store: reflector::Store<K>,
    queue: mpsc::UnboundedReceiver<ObjectRef<K>>,
    max_concurrent: u16,
    reconcile: fn(Arc<K>, Arc<Context>) -> F,
    on_error: fn(Arc<K>, &Error, Arc<Context>) -> Action,
) -> BoxFuture<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let requests = stream::unfold(queue, |mut queue| async move {
        let next = queue.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(next), queue))
    });
    // A panic fails only the reconciliation of its object.
    let reconcile = move |object: Arc<K>, ctx: Arc<Context>| {
        Box::pin(async move {
            let result = tokio::spawn(reconcile(object, ctx)).await;
            result.unwrap_or_else(|panic| Err(Error::Panicked(panic.to_string())))
        })
    };
    let config = Applier::default().concurrency(max_concurrent);
    applier(reconcile, on_error, ctx.clone(), store, Box::pin(requests), config).for_each(|_| async {}).boxed()
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
    use crate::fake::{self, RecordedRequest};

    const PANICKING: &str = "server-50";

    /// Reconciles a server, and panics for one of them.
    async fn reconcile_or_panic(server: Arc<DevServer>, ctx: Arc<Context>) -> Result<Action, Error> {
        assert!(server.name_any() != PANICKING, "test panic");
        devserver::reconcile(server, ctx).await
    }

    fn server(name: &str) -> Value {
        json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
            "metadata": {"name": name, "namespace": "dev-ada", "uid": name, "resourceVersion": "1", "generation": 1},
            "spec": {"home": {"ephemeral": "1Gi"}}})
    }

    /// Returns the objects whose status was written.
    fn status_writes(requests: &[RecordedRequest]) -> BTreeSet<String> {
        let writes = requests.iter().filter(|request| request.is_write());
        let status = writes.filter_map(|request| request.path.strip_suffix("/status"));
        status.filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn panic_in_one_object_does_not_affect_others() {
        let cluster = fake::api_server(|request| {
            let stored = server(request.path.trim_end_matches("/status").rsplit('/').next().unwrap_or_default());
            if request.is_write() == request.path.ends_with("/status") { (200, stored) } else { (404, Value::Null) }
        });
        let ctx = fake::context(cluster.client.clone());
        let (servers, mut writer) = reflector::store();
        let (queue, receiver) = mpsc::unbounded_channel();
        writer.apply_watcher_event(&Event::Init);
        writer.apply_watcher_event(&Event::InitDone);
        for number in 0..100 {
            let name = format!("server-{number}");
            ctx.soft_states.insert(&name);
            writer.apply_watcher_event(&Event::Apply(serde_json::from_value(server(&name)).unwrap()));
            queue.send(ObjectRef::new(&name).within("dev-ada")).unwrap();
        }
        let controller = run_controller(&ctx, servers, receiver, 8, reconcile_or_panic, devserver::on_error);
        let all_written = async {
            // The panicking server is retried with backoff until its condition is written, too.
            while status_writes(&cluster.requests()).len() < 100 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = controller => panic!("the controller ended"),
            done = tokio::time::timeout(Duration::from_secs(20), all_written) => done.unwrap(),
        }
        let requests = cluster.requests();
        let is_panicking = |request: &&RecordedRequest| request.path.contains(&format!("/{PANICKING}/"));
        let status_updates: Vec<_> =
            requests.iter().filter(|request| request.is_write()).filter(is_panicking).collect();
        assert_eq!(status_updates.len(), 1);
        let message = status_updates[0].body["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("Internal error while reconciling this server; retrying."), "{message}");
        assert!(ctx.soft_states.get(PANICKING).failures > 2);
        assert_eq!(ctx.soft_states.get("server-1").failures, 0);
    }
}
