//! Pods for tests: made in a line, waited for, asked.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, AttachParams, ListParams, LogParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::Namespace;

/// Includes the first pull of the base image on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A pod of the base image, not yet created. Tests change its manifest as they like.
pub fn manifest(name: &str, script: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": odc_local::image::reference(odc_local::image::DEV_BASE),
                "command": ["sh", "-c", script],
            }],
        },
    })
}

pub async fn create(namespace: &Namespace, manifest: Value) -> anyhow::Result<Pod> {
    let pod: Pod = serde_json::from_value(manifest)?;
    Ok(namespace.api().create(&PostParams::default(), &pod).await?)
}

/// Creates it and waits until it is ready.
pub async fn run(namespace: &Namespace, manifest: Value) -> anyhow::Result<Pod> {
    let name = manifest["metadata"]["name"].as_str().context("a pod needs a name")?.to_owned();
    create(namespace, manifest).await?;
    until(namespace, &name, "ready", is_ready).await
}

pub async fn until(namespace: &Namespace, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> anyhow::Result<Pod> {
    let condition = |pod: Option<&Pod>| pod.is_some_and(&holds);
    match tokio::time::timeout(LIMIT, await_condition(namespace.api::<Pod>(), name, condition)).await {
        Ok(pod) => pod?.with_context(|| format!("pod {name} is gone")),
        Err(_) => {
            anyhow::bail!("pod {name} is not {what} after {} s:\n{}", LIMIT.as_secs(), story(namespace, name).await?)
        }
    }
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"))
}

/// Runs a command in the pod; gives its standard output, an error if it failed.
pub async fn exec(namespace: &Namespace, name: &str, command: &[&str]) -> anyhow::Result<String> {
    let how = AttachParams::default().stderr(true);
    let mut process = namespace.api::<Pod>().exec(name, command.iter().copied(), &how).await?;
    let (mut out, mut err) = (String::new(), String::new());
    let (mut stdout, mut stderr) = (process.stdout().context("no stdout")?, process.stderr().context("no stderr")?);
    tokio::try_join!(stdout.read_to_string(&mut out), stderr.read_to_string(&mut err))?;
    let status = process.take_status().context("no status")?.await.context("no status")?;
    anyhow::ensure!(
        status.status.as_deref() == Some("Success"),
        "`{}` in {name}: {}{err}",
        command.join(" "),
        status.message.unwrap_or_default()
    );
    Ok(out)
}

pub async fn logs(namespace: &Namespace, name: &str) -> anyhow::Result<String> {
    Ok(namespace.api::<Pod>().logs(name, &LogParams::default()).await?)
}

/// What Kubernetes has to say about a pod, for a failing test.
async fn story(namespace: &Namespace, name: &str) -> anyhow::Result<String> {
    let pod = namespace.api::<Pod>().get(name).await?;
    let mut lines = vec![serde_json::to_string_pretty(&pod.status)?];
    let events: Api<Event> = namespace.api();
    for event in events.list(&ListParams::default().fields(&format!("involvedObject.name={name}"))).await? {
        lines.push(format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default()));
    }
    Ok(lines.join("\n"))
}
