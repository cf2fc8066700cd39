//! Pods of tests: creation, waiting, exec and logs.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, AttachParams, ListParams, LogParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::Namespace;

/// Includes the first pull of the base image on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the manifest of a pod that runs `script` in the base image.
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

/// Creates a pod and waits until it is ready.
pub async fn run(namespace: &Namespace, manifest: Value) -> anyhow::Result<Pod> {
    let name = manifest["metadata"]["name"].as_str().context("the manifest has no name")?.to_owned();
    create(namespace, manifest).await?;
    wait_for(namespace, &name, "ready", is_ready).await
}

/// Waits until a pod meets `condition`, which failures report as `expected`.
pub async fn wait_for(
    namespace: &Namespace,
    name: &str,
    expected: &str,
    condition: impl Fn(&Pod) -> bool,
) -> anyhow::Result<Pod> {
    let condition = |pod: Option<&Pod>| pod.is_some_and(&condition);
    let reached = await_condition(namespace.api::<Pod>(), name, condition);
    let Ok(pod) = tokio::time::timeout(READY_TIMEOUT, reached).await else {
        let report = describe(namespace, name).await?;
        anyhow::bail!("pod {name} is not {expected} after {}s:\n{report}", READY_TIMEOUT.as_secs())
    };
    pod?.with_context(|| format!("pod {name} does not exist"))
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"))
}

/// Runs a command in a pod and returns its standard output. Fails if the command fails.
pub async fn exec(namespace: &Namespace, name: &str, command: &[&str]) -> anyhow::Result<String> {
    let params = AttachParams::default().stderr(true);
    let mut process = namespace.api::<Pod>().exec(name, command.iter().copied(), &params).await?;
    let (mut output, mut errors) = (String::new(), String::new());
    let (mut stdout, mut stderr) = (process.stdout().context("no stdout")?, process.stderr().context("no stderr")?);
    tokio::try_join!(stdout.read_to_string(&mut output), stderr.read_to_string(&mut errors))?;
    let status = process.take_status().context("no status")?.await.context("no status")?;
    anyhow::ensure!(
        status.status.as_deref() == Some("Success"),
        "`{}` in {name}: {}{errors}",
        command.join(" "),
        status.message.unwrap_or_default()
    );
    Ok(output)
}

pub async fn logs(namespace: &Namespace, name: &str) -> anyhow::Result<String> {
    Ok(namespace.api::<Pod>().logs(name, &LogParams::default()).await?)
}

/// Returns status and events of a pod for the message of a failed test.
async fn describe(namespace: &Namespace, name: &str) -> anyhow::Result<String> {
    let pod = namespace.api::<Pod>().get(name).await?;
    let mut lines = vec![serde_json::to_string_pretty(&pod.status)?];
    let events: Api<Event> = namespace.api();
    for event in events.list(&ListParams::default().fields(&format!("involvedObject.name={name}"))).await? {
        lines.push(format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default()));
    }
    Ok(lines.join("\n"))
}
