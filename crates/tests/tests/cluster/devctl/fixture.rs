//! A control plane with flavors, two users and servers in all phases.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, Patch, PatchParams, PostParams};
use odc_api::v1alpha1::{DevServer, DevServerFlavor};
use odc_tests::command::executable;
use odc_tests::{ControlPlane, manifests, user, with_control_plane};
use regex::Regex;
use serde_json::{Value, json};
use tokio::process::Command;

pub struct Fixture<'a> {
    pub plane: &'a ControlPlane,
    pub machine: Machine,
}

/// A workstation with a home directory per user.
pub struct Machine {
    directory: tempfile::TempDir,
    /// Whether devctl uses [`NOW`] instead of the current time.
    is_clock_frozen: bool,
}

/// The time of a frozen clock. Objects are created after it, so their age is zero.
const NOW: &str = "2026-01-15T12:00:00Z";

/// The output and exit code of a program.
#[derive(Debug)]
pub struct CommandOutput {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl CommandOutput {
    /// Returns standard output, or an error if the exit code is not 0.
    pub fn success(self) -> anyhow::Result<String> {
        anyhow::ensure!(self.code == Some(0), "exit code {:?}: {}", self.code, self.err);
        Ok(self.out)
    }
}

impl Machine {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { directory: tempfile::tempdir()?, is_clock_frozen: false })
    }

    /// As [`Self::new`], with a frozen clock, so that ages and estimates do not depend on the duration of a test.
    pub fn with_frozen_clock() -> anyhow::Result<Self> {
        Ok(Self { is_clock_frozen: true, ..Self::new()? })
    }

    pub fn home(&self, user: &str) -> PathBuf {
        self.directory.path().join(user)
    }

    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.directory.path().join(format!("{user}.kubeconfig"))
    }

    /// Returns a devctl command of this user in a clean environment.
    pub fn command(&self, user: &str, arguments: &[&str]) -> anyhow::Result<std::process::Command> {
        let home = self.home(user);
        let ssh = home.join(".ssh");
        std::fs::create_dir_all(&ssh)?;
        // The public key is enough to create servers.
        std::fs::write(ssh.join("id_ed25519.pub"), odc_api::fixtures::KEY)?;
        std::fs::write(ssh.join("id_ed25519"), "")?;
        let mut command = std::process::Command::new(executable("devctl")?);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &home).env("KUBECONFIG", self.kubeconfig(user)).env("TZ", "UTC").current_dir(&home);
        if self.is_clock_frozen {
            command.env("DEVCTL_NOW", NOW);
        }
        command.args(arguments);
        Ok(command)
    }

    pub async fn devctl(&self, user: &str, arguments: &[&str]) -> anyhow::Result<CommandOutput> {
        let mut command = Command::from(self.command(user, arguments)?);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(anyhow::Error::from);
        Ok(CommandOutput { out: text(output.stdout)?, err: text(output.stderr)?, code: output.status.code() })
    }
}

pub async fn with_fixture<T>(test: impl AsyncFnOnce(&Fixture<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
    with_control_plane(async |plane| test(&Fixture::new(plane, &["ada", "bob"]).await?).await).await
}

impl<'a> Fixture<'a> {
    /// Creates users and flavors on a control plane.
    pub async fn new(plane: &'a ControlPlane, users: &[&str]) -> anyhow::Result<Self> {
        let machine = Machine::with_frozen_clock()?;
        for user in users {
            user::create_user_without_operator(&plane.client, &plane.kubeconfig, user, &machine.kubeconfig(user))
                .await?;
        }
        std::fs::copy(&plane.kubeconfig, machine.kubeconfig("admin"))?;
        let fixture = Self { plane, machine };
        fixture.flavors().await?;
        Ok(fixture)
    }

    async fn flavors(&self) -> anyhow::Result<()> {
        let flavors: Api<DevServerFlavor> = Api::all(self.plane.client.clone());
        let all = [
            (
                "cpu",
                json!({"default": true, "displayName": "Half a core",
                "resources": {"per": "Server", "cpu": "500m", "memory": "1Gi"}}),
                json!({"total": 40, "free": 12, "queueLength": 0, "schedulable": "Yes"}),
            ),
            (
                "h100",
                json!({"displayName": "NVIDIA H100 – 高速", "resources": {"per": "Device", "cpu": "24", "memory": "240Gi"},
                "device": {"resource": "nvidia.com/gpu", "model": "H100", "memory": "80Gi", "perNode": 8, "counts": [1, 2, 4, 8]},
                "limits": {"lifetime": "24h", "extension": "24h", "total": "48h"}}),
                json!({"total": 16, "free": 6, "largestBlock": 3, "wholeNodesFree": 0, "queueLength": 3, "schedulable": "Yes"}),
            ),
            (
                "mig",
                json!({"maintenance": {"message": "New drivers until noon."}, "resources": {"per": "Device", "cpu": "4", "memory": "30Gi"},
                "device": {"resource": "nvidia.com/mig-1g.10gb", "perNode": 7}}),
                json!({"total": 14, "free": 14, "largestBlock": 7, "wholeNodesFree": 2, "queueLength": 0, "schedulable": "Yes"}),
            ),
            (
                "spot",
                json!({"spot": true, "resources": {"per": "Server", "cpu": "2", "memory": "4Gi"}}),
                json!({"total": 4, "free": 0, "queueLength": 0, "schedulable": "No"}),
            ),
        ];
        for (name, spec, status) in all {
            let object = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": name}, "spec": spec});
            manifests::apply(&self.plane.client, &object).await?;
            let status = json!({"status": status});
            flavors.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        }
        Ok(())
    }

    pub fn servers(&self, user: &str) -> Api<DevServer> {
        Api::namespaced(self.plane.client.clone(), &format!("dev-{user}"))
    }

    pub async fn server(&self, user: &str, name: &str, spec: Value, status: Value) -> anyhow::Result<()> {
        let mut whole = json!({"home": {"ephemeral": "10Gi"}, "idle": {"action": "End"}});
        if let (Some(whole), Some(spec)) = (whole.as_object_mut(), spec.as_object()) {
            whole.extend(spec.clone());
        }
        let object =
            json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "metadata": {"name": name}, "spec": whole});
        self.servers(user).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        self.status(user, name, status).await
    }

    /// Writes a status like the operator.
    pub async fn status(&self, user: &str, name: &str, mut status: Value) -> anyhow::Result<()> {
        status["observedGeneration"] = json!(1);
        let body = json!({"status": status});
        self.servers(user).patch_status(name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        Ok(())
    }

    /// Creates a server of ada in each phase, and one of bob.
    pub async fn create_servers_in_all_phases(&self) -> anyhow::Result<()> {
        self.create_servers_of("ada").await?;
        self.server("bob", "secret", json!({}), json!({"phase": "Running"})).await
    }

    /// Creates a server of a user in each phase.
    pub async fn create_servers_of(&self, user: &str) -> anyhow::Result<()> {
        let pods = json!([{"name": "box-0", "run": 1, "node": "gpu-1", "ready": true}]);
        self.server(user, "box", json!({"flavor": "h100", "count": 2, "lifetime": "8h", "access": {"users": ["bob"],
            "ports": [{"name": "app", "port": 8000}]}}),
            json!({"phase": "Running", "flavor": "h100", "pods": pods, "conditions": [ready("True", "Running", "The server is running.")],
                "lifetime": {"requested": "8h", "granted": "8h"}, "startedAt": ago(600), "expiresAt": after(8 * 3600 - 600),
                "access": {"hostKey": odc_api::fixtures::KEY}, "oomKills": 2, "restarts": 1,
                "timeline": [{"phase": "Running", "at": ago(600), "reason": "Running"}]})).await?;
        self.server(user, "train", json!({"flavor": "h100", "count": 8, "nodes": 2}),
            json!({"phase": "Queued", "flavor": "h100", "admission": {"run": 0, "epoch": 1, "position": 3, "queuedAt": ago(600),
                "eta": {"p50": after(2400), "p90": after(7200)}, "reason": "InsufficientCapacity",
                "message": "Insufficient nvidia.com/gpu: requires 8 on each of 2 nodes; 6 free in total."}})).await?;
        self.server(
            user,
            "notes",
            json!({"flavor": "cpu", "home": {"claim": "home"}, "idle": {"action": "Hibernate"}, "lifetime": "24h"}),
            json!({"phase": "Hibernated", "flavor": "cpu", "hibernation": {"since": ago(7500), "cause": "Idle"},
                "lifetime": {"requested": "24h", "granted": "24h"},
                "conditions": [ready("False", "HibernatedByIdleness", "Hibernated because it was idle.")]}),
        )
        .await?;
        self.server(user, "broken", json!({"flavor": "cpu", "image": {"ref": "registry.example.org/team/img:1", "keepEntrypoint": true}}),
            json!({"phase": "Failed", "flavor": "cpu", "finishedAt": ago(300), "lastFailure": {"reason": "CrashLoop",
                "message": "The entrypoint of the image exits immediately.", "time": ago(300), "logTail": "Traceback\nKeyError: 'TOKEN'\n"},
                "timeline": [{"phase": "Failed", "at": ago(300), "reason": "CrashLoop"}]})).await?;
        self.server(user, "long-gone", json!({}), json!({"phase": "Expired", "finishedAt": ago(7200)})).await?;
        self.server(user, "refused", json!({"flavor": "nope"}),
            json!({"phase": "Pending", "conditions": [condition("Accepted", "False", "FlavorNotFound", "Flavor nope not found.")]})).await
    }
}

pub fn ready(status: &str, reason: &str, message: &str) -> Value {
    condition("Ready", status, reason, message)
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(60)})
}

/// Returns a time before the frozen clock.
pub fn ago(seconds: i64) -> String {
    after(-seconds)
}

/// Returns a time after the frozen clock.
pub fn after(seconds: i64) -> String {
    let now: Timestamp = NOW.parse().unwrap_or_default();
    (now + SignedDuration::from_secs(seconds)).to_string()
}

/// Replaces what differs between runs: creation times, ids and the address of the API server.
pub fn normalize(text: &str) -> anyhow::Result<String> {
    let rules = [
        (r#"(createdAt"?: "?)\d{4}-\d\d-\d\dT[0-9:.]+Z"#, "${1}<time>"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>"),
        (r"https://127\.0\.0\.1:\d+/?", "<api>"),
    ];
    rules
        .iter()
        .try_fold(text.to_owned(), |text, (pattern, by)| Ok(Regex::new(pattern)?.replace_all(&text, *by).into_owned()))
}

pub fn read(path: &Path) -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(path)?)
}
