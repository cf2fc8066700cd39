//! The user demo on a cloud with two real nodes.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use odc_tests::{Cluster, finally::finally, wait, with_cluster_alone};
use serde_json::{Value, json};

/// Includes the first pull of an image on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The user demo with kubectl, and what they made.
pub struct Demo<'a> {
    pub cluster: &'a Cluster,
}

impl Demo<'_> {
    /// Runs kubectl in a context of the cloud's kubeconfig; gives what it printed.
    pub async fn kubectl_as(&self, context: &str, arguments: &[&str], input: Option<&str>) -> anyhow::Result<String> {
        use tokio::io::AsyncWriteExt as _;
        let directory = &self.cluster.directory;
        let mut child = tokio::process::Command::new(directory.join("bin/kubectl"))
            .env("KUBECONFIG", directory.join("kubeconfig"))
            .args(["--context", context, "--namespace", "dev-demo"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().context("kubectl reads")?;
        stdin.write_all(input.unwrap_or_default().as_bytes()).await?;
        drop(stdin);
        let output = child.wait_with_output().await?;
        anyhow::ensure!(
            output.status.success(),
            "kubectl {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.kubectl_as("demo", arguments, None).await
    }

    pub async fn create(&self, name: &str, changes: Value) -> anyhow::Result<()> {
        let mut spec = json!({"home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}});
        if let (Some(spec), Some(changes)) = (spec.as_object_mut(), changes.as_object()) {
            spec.extend(changes.clone());
        }
        let server =
            json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "metadata": {"name": name}, "spec": spec});
        self.kubectl_as("demo", &["create", "-f", "-"], Some(&server.to_string())).await.map(drop)
    }

    pub async fn change(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let patch = json!({"spec": spec}).to_string();
        self.kubectl(&["patch", "dsv", name, "--type=merge", "-p", &patch]).await.map(drop)
    }

    pub async fn get(&self, name: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&["get", "dsv", name, "-o", "json"]).await?)?)
    }

    /// As `kubectl wait` does it.
    pub async fn until_phase(&self, name: &str, phase: &str) -> anyhow::Result<Value> {
        let condition = format!("--for=jsonpath={{.status.phase}}={phase}");
        let timeout = format!("--timeout={}s", LIMIT.as_secs());
        if let Err(error) = self.kubectl(&["wait", &format!("dsv/{name}"), &condition, &timeout]).await {
            let about = self.kubectl(&["describe", "dsv", name]).await.unwrap_or_default();
            let pods =
                self.kubectl(&["describe", "pods", "-l", &format!("odc.dev/server={name}")]).await.unwrap_or_default();
            return Err(error.context(format!("{name} is not {phase}:\n{about}\n{pods}")));
        }
        self.get(name).await
    }

    /// Runs a command inside, with the administrator's rights: owners come in by SSH.
    pub async fn inside(&self, pod: &str, script: &str) -> anyhow::Result<String> {
        self.kubectl_as("odc-local", &["exec", pod, "-c", "dev", "--", "sh", "-c", script], None).await
    }

    pub async fn pods(&self) -> anyhow::Result<Vec<String>> {
        let names = self.kubectl(&["get", "pods", "-o", "name"]).await?;
        Ok(names.lines().map(|line| line.trim_start_matches("pod/").to_owned()).collect())
    }
}

/// Whatever a test made is deleted, so that the next finds the devices free.
pub async fn with_demo(test: impl AsyncFnOnce(&Demo<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    with_cluster_alone(2, async |cluster| {
        let demo = Demo { cluster };
        finally(test(&demo), async || {
            demo.kubectl(&["delete", "dsv", "--all", "--wait=true"]).await?;
            wait::until("the pods are gone", LIMIT, async || {
                let left = demo.pods().await?;
                anyhow::ensure!(left.is_empty(), "{left:?} are left");
                Ok(())
            })
            .await
        })
        .await
    })
    .await
}

/// A volume on node n1 and a claim for it.
pub async fn claim(demo: &Demo<'_>, name: &str) -> anyhow::Result<()> {
    let path = demo.cluster.directory.join(format!("volume-{name}"));
    std::fs::create_dir_all(&path)?;
    let local = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("demo-{name}")}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
        "local": {"path": path}, "nodeAffinity": {"required": {"nodeSelectorTerms": [local]}},
        "claimRef": {"namespace": "dev-demo", "name": name},
    }});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "",
        "volumeName": format!("demo-{name}"),
    }});
    for object in [volume, claim] {
        demo.kubectl_as("odc-local", &["apply", "-f", "-"], Some(&object.to_string())).await?;
    }
    Ok(())
}
