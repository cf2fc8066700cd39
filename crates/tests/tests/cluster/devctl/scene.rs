//! A cluster with flavors and two users, and servers in every state.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, Patch, PatchParams, PostParams};
use odc_api::v1alpha1::{DevServer, DevServerFlavor};
use odc_tests::bed::executable;
use odc_tests::{ControlPlane, odc, person, with_control_plane};
use regex::Regex;
use serde_json::{Value, json};
use tokio::process::Command;

pub struct Scene<'a> {
    pub plane: &'a ControlPlane,
    pub machine: Machine,
}

/// Where people type: a home directory for each, and the programs.
pub struct Machine {
    directory: tempfile::TempDir,
}

/// What a program said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl Said {
    /// What it printed, if all went well.
    pub fn good(self) -> anyhow::Result<String> {
        anyhow::ensure!(self.code == Some(0), "it ended with {:?}: {}", self.code, self.err);
        Ok(self.out)
    }
}

impl Machine {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { directory: tempfile::tempdir()? })
    }

    pub fn home(&self, user: &str) -> PathBuf {
        self.directory.path().join(user)
    }

    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.directory.path().join(format!("{user}.kubeconfig"))
    }

    /// devctl as this user types it, with nothing around it that could differ from machine to machine.
    pub fn command(&self, user: &str, words: &[&str]) -> anyhow::Result<std::process::Command> {
        let home = self.home(user);
        let ssh = home.join(".ssh");
        std::fs::create_dir_all(&ssh)?;
        // A public key alone is enough to be let in.
        std::fs::write(ssh.join("id_ed25519.pub"), odc_api::fixtures::KEY)?;
        std::fs::write(ssh.join("id_ed25519"), "")?;
        let mut command = std::process::Command::new(executable("devctl")?);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &home).env("KUBECONFIG", self.kubeconfig(user)).env("TZ", "UTC").current_dir(&home);
        command.args(words);
        Ok(command)
    }

    pub async fn devctl(&self, user: &str, words: &[&str]) -> anyhow::Result<Said> {
        let mut command = Command::from(self.command(user, words)?);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(anyhow::Error::from);
        Ok(Said { out: text(output.stdout)?, err: text(output.stderr)?, code: output.status.code() })
    }
}

pub async fn with_scene<T>(test: impl AsyncFnOnce(&Scene<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
    with_control_plane(async |plane| {
        odc::install(&plane.client).await?;
        let machine = Machine::new()?;
        for user in ["ada", "bob"] {
            person::settle(&plane.client, &plane.kubeconfig, user, &machine.kubeconfig(user)).await?;
        }
        std::fs::copy(&plane.kubeconfig, machine.kubeconfig("admin"))?;
        let scene = Scene { plane, machine };
        scene.flavors().await?;
        test(&scene).await
    })
    .await
}

impl Scene<'_> {
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
            odc::apply(&self.plane.client, &object).await?;
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

    /// As the operator would say it.
    pub async fn status(&self, user: &str, name: &str, mut status: Value) -> anyhow::Result<()> {
        status["observedGeneration"] = json!(1);
        let body = json!({"status": status});
        self.servers(user).patch_status(name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        Ok(())
    }

    /// One of ada's in each state that people see.
    pub async fn every_state(&self) -> anyhow::Result<()> {
        let pods = json!([{"name": "box-0", "run": 1, "node": "gpu-1", "ready": true}]);
        self.server("ada", "box", json!({"flavor": "h100", "count": 2, "lifetime": "8h", "access": {"users": ["bob"],
            "ports": [{"name": "app", "port": 8000}]}}),
            json!({"phase": "Running", "flavor": "h100", "pods": pods, "conditions": [ready("True", "Running", "It runs.")],
                "lifetime": {"asked": "8h", "granted": "8h"}, "startedAt": ago(30), "expiresAt": after(7 * 3600 + 59 * 60 + 45),
                "access": {"hostKey": odc_api::fixtures::KEY}, "oomKills": 2, "restarts": 1,
                "timeline": [{"phase": "Running", "at": ago(600), "reason": "Running"}]})).await?;
        self.server("ada", "train", json!({"flavor": "h100", "count": 8, "nodes": 2}),
            json!({"phase": "Queued", "flavor": "h100", "admission": {"run": 0, "epoch": 1, "position": 3, "queuedAt": ago(600),
                "eta": {"p50": after(2428), "p90": after(7200)}, "reason": "InsufficientCapacity",
                "message": "It needs 8 devices on each of 2 nodes, and 6 are free."}})).await?;
        self.server(
            "ada",
            "notes",
            json!({"flavor": "cpu", "home": {"claim": "home"}, "idle": {"action": "Hibernate"}, "lifetime": "24h"}),
            json!({"phase": "Hibernated", "flavor": "cpu", "hibernation": {"since": ago(7500), "by": "Idle"},
                "lifetime": {"asked": "24h", "granted": "24h"},
                "conditions": [ready("False", "HibernatedByIdleness", "Nobody used it, so it sleeps.")]}),
        )
        .await?;
        self.server("ada", "broken", json!({"flavor": "cpu", "image": {"ref": "registry.example.org/team/img:1", "keepEntrypoint": true}}),
            json!({"phase": "Failed", "flavor": "cpu", "finishedAt": ago(300), "lastFailure": {"reason": "DiesAtStart",
                "message": "The image's program ends at once.", "time": ago(300), "logTail": "Traceback\nKeyError: 'TOKEN'\n"},
                "timeline": [{"phase": "Failed", "at": ago(300), "reason": "DiesAtStart"}]})).await?;
        self.server("ada", "long-gone", json!({}), json!({"phase": "Expired", "finishedAt": ago(7200)})).await?;
        self.server("ada", "refused", json!({"flavor": "nope"}),
            json!({"phase": "Pending", "conditions": [condition("Accepted", "False", "UnknownFlavor", "There is no flavor nope.")]})).await?;
        self.server("bob", "secret", json!({}), json!({"phase": "Running"})).await
    }
}

pub fn ready(status: &str, reason: &str, message: &str) -> Value {
    condition("Ready", status, reason, message)
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(60)})
}

pub fn ago(seconds: i64) -> String {
    whole(Timestamp::now().as_second() - seconds)
}

pub fn after(seconds: i64) -> String {
    whole(Timestamp::now().as_second() + seconds)
}

fn whole(second: i64) -> String {
    (Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)).to_string()
}

/// The same text whenever the test runs. Ages change and with them the width of their column, so runs of spaces count as
/// two; how columns line up is tested beside the code that lines them up.
pub fn steady(text: &str) -> anyhow::Result<String> {
    let rules = [
        (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "<time>"),
        (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d\d [A-Z][a-z]{2} ", ""),
        (r"\b\d\d:\d\d\b", "<clock>"),
        (r"\b\d{1,3}s\b", "<age>"),
        (r"(\S)  +", "$1  "),
        (r" \S*…", " …"),
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
