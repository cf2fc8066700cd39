//! Fixture of tests on two real nodes: a user with a namespace of their own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use odc_tests::{Cluster, cleanup::with_cleanup, user, wait, with_cluster, with_exclusive_cluster};
use serde_json::{Value, json};

/// Includes the first pull of an image on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A user, and commands as this user.
pub struct Tenant<'a> {
    pub cluster: &'a Cluster,
    pub user: String,
    /// Kubeconfig of the user.
    kubeconfig: PathBuf,
}

impl Tenant<'_> {
    pub fn namespace(&self) -> String {
        format!("dev-{}", self.user)
    }

    /// Runs kubectl in the namespace of the user and returns its standard output.
    async fn run_kubectl(&self, kubeconfig: &Path, arguments: &[&str], input: Option<&str>) -> anyhow::Result<String> {
        use tokio::io::AsyncWriteExt as _;
        let mut child = tokio::process::Command::new(self.cluster.directory.join("bin/kubectl"))
            .env("KUBECONFIG", kubeconfig)
            .args(["--namespace", &self.namespace()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().context("kubectl has no stdin")?;
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
        self.run_kubectl(&self.kubeconfig, arguments, None).await
    }

    /// Runs kubectl as the administrator of the cluster.
    pub async fn kubectl_as_admin(&self, arguments: &[&str], input: Option<&str>) -> anyhow::Result<String> {
        let arguments = [&["--context", "odc-local"], arguments].concat();
        self.run_kubectl(&self.cluster.directory.join("kubeconfig"), &arguments, input).await
    }

    pub async fn create(&self, name: &str, changes: Value) -> anyhow::Result<()> {
        let mut spec = json!({"home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}});
        if let (Some(spec), Some(changes)) = (spec.as_object_mut(), changes.as_object()) {
            spec.extend(changes.clone());
        }
        let server =
            json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "metadata": {"name": name}, "spec": spec});
        self.create_object(&server).await
    }

    /// Creates an object in the namespace of the user.
    pub async fn create_object(&self, object: &Value) -> anyhow::Result<()> {
        self.run_kubectl(&self.kubeconfig, &["create", "-f", "-"], Some(&object.to_string())).await.map(drop)
    }

    pub async fn patch_spec(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let patch = json!({"spec": spec}).to_string();
        self.kubectl(&["patch", "dsv", name, "--type=merge", "-p", &patch]).await.map(drop)
    }

    pub async fn get(&self, name: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&["get", "dsv", name, "-o", "json"]).await?)?)
    }

    /// Waits for a phase with `kubectl wait`.
    pub async fn wait_for_phase(&self, name: &str, phase: &str) -> anyhow::Result<Value> {
        let condition = format!("--for=jsonpath={{.status.phase}}={phase}");
        let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
        if let Err(error) = self.kubectl(&["wait", &format!("dsv/{name}"), &condition, &timeout]).await {
            let description = self.kubectl(&["describe", "dsv", name]).await.unwrap_or_default();
            let pods =
                self.kubectl(&["describe", "pods", "-l", &format!("odc.dev/server={name}")]).await.unwrap_or_default();
            return Err(error.context(format!("{name} is not {phase}:\n{description}\n{pods}")));
        }
        self.get(name).await
    }

    /// Runs a script in a pod as the administrator. Owners have no `exec` permission and use SSH.
    pub async fn exec(&self, pod: &str, script: &str) -> anyhow::Result<String> {
        self.kubectl_as_admin(&["exec", pod, "-c", "dev", "--", "sh", "-c", script], None).await
    }

    pub async fn pods(&self) -> anyhow::Result<Vec<String>> {
        let names = self.kubectl(&["get", "pods", "-o", "name"]).await?;
        Ok(names.lines().map(|line| line.trim_start_matches("pod/").to_owned()).collect())
    }
}

/// For tests that use a few devices and change nothing but the objects of their user.
pub async fn with_tenant(test: impl AsyncFnOnce(&Tenant<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    with_cluster(2, async |cluster| with_tenant_on(cluster, test).await).await
}

/// For tests that use all devices, stop nodes, kill components or change the operator.
pub async fn with_exclusive_tenant(test: impl AsyncFnOnce(&Tenant<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    with_exclusive_cluster(2, async |cluster| with_tenant_on(cluster, test).await).await
}

/// Creates a user for the test. Afterwards deletes its servers, so that their devices are free, its claims and the user.
pub async fn with_tenant_on(
    cluster: &Cluster,
    test: impl AsyncFnOnce(&Tenant<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    // The name of the test's namespace is unique.
    let user = cluster.namespace.name.clone();
    let admin = cluster.directory.join("kubeconfig");
    user::create_user(&cluster.namespace.client, &admin, &user, &kubeconfig).await?;
    let tenant = Tenant { cluster, user, kubeconfig };
    with_cleanup(test(&tenant), async || {
        // A failed test may have left the API server down.
        wait::until("deletion of all servers", TIMEOUT, async || {
            tenant.kubectl(&["delete", "dsv", "--all", "--wait=true"]).await.map(drop)
        })
        .await?;
        wait::until("deletion of all pods", TIMEOUT, async || {
            let left = tenant.pods().await?;
            anyhow::ensure!(left.is_empty(), "pods {left:?} are left");
            Ok(())
        })
        .await?;
        tenant.kubectl_as_admin(&["delete", "pvc", "--all", "--wait=false"], None).await?;
        let volumes = format!("odc-tests/user={}", tenant.user);
        tenant.kubectl_as_admin(&["delete", "pv", "--wait=false", "-l", &volumes], None).await?;
        tenant.kubectl_as_admin(&["delete", "devserveruser", "--wait=false", &tenant.user], None).await.map(drop)
    })
    .await
}

/// Creates a volume on node n1 and a claim for it.
pub async fn create_claim(tenant: &Tenant<'_>, name: &str) -> anyhow::Result<()> {
    let path = tenant.cluster.directory.join(format!("volume-{}-{name}", tenant.user));
    std::fs::create_dir_all(&path)?;
    let local = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {
        "name": format!("{}-{name}", tenant.user), "labels": {"odc-tests/user": tenant.user}}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
        "local": {"path": path}, "nodeAffinity": {"required": {"nodeSelectorTerms": [local]}},
        "claimRef": {"namespace": tenant.namespace(), "name": name},
    }});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "",
        "volumeName": format!("{}-{name}", tenant.user),
    }});
    for object in [volume, claim] {
        tenant.kubectl_as_admin(&["apply", "-f", "-"], Some(&object.to_string())).await?;
    }
    Ok(())
}
