//! Persistent volumes and snapshots on a control plane: the CSI driver and its sidecars as child processes. Nothing mounts
//! the volumes, because the nodes are simulated.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{conditions, wait::await_condition};
use odc_local::artifact::Executables;
use odc_local::progress::Progress;
use serde_json::{Value, json};

use crate::command::executable;
use crate::control_plane::ControlPlane;
use crate::{manifests, wait};

const TIMEOUT: Duration = Duration::from_secs(60);
const POOL: &str = "test";
const SIDECARS: [&str; 4] = ["csi-provisioner", "csi-snapshotter", "csi-resizer", "snapshot-controller"];

/// The running driver and sidecars. Dropping it stops them and unmounts the pool. Requires root.
pub struct Storage {
    processes: Vec<Child>,
    directory: PathBuf,
}

impl Storage {
    /// Installs the CRDs and classes, starts all processes with files in `directory`, and labels the nodes.
    pub async fn start(plane: &ControlPlane, directory: &Path, nodes: &[&str]) -> anyhow::Result<Self> {
        let executables = Executables::find()?;
        executables.ensure_csi_sidecars(Progress::new()).await?;
        install(plane, &executables.snapshot_crds).await?;
        let all: Api<Node> = Api::all(plane.client.clone());
        for node in nodes {
            let labels = json!({"metadata": {"labels": {"csi.odc.dev/pool": POOL}}});
            all.patch(node, &PatchParams::default(), &Patch::Merge(labels)).await?;
            // As the kubelet reports it.
            let driver = json!({"name": "csi.odc.dev", "nodeID": node, "topologyKeys": ["csi.odc.dev/pool"]});
            let registered = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node},
                "spec": {"drivers": [driver]}});
            manifests::apply(&plane.client, &registered).await?;
        }
        let mut storage = Self { processes: vec![], directory: directory.to_owned() };
        let socket = directory.join("csi.sock");
        let mut driver = Command::new(executable("odc-csi")?);
        driver.args(["--node", "node-1", "--pool-id", POOL, "--pool-size", "1Gi"]);
        driver.arg("--endpoint").arg(&socket).arg("--pool").arg(storage.pool());
        driver.arg("--pool-file").arg(directory.join("pool.img"));
        storage.spawn(&mut driver, directory, "odc-csi")?;
        wait::until("socket of the CSI driver", TIMEOUT, async || {
            let log = fs::read_to_string(directory.join("odc-csi.log")).unwrap_or_default();
            anyhow::ensure!(socket.exists(), "{log}");
            Ok(())
        })
        .await?;
        for name in SIDECARS {
            let mut sidecar = Command::new(&executables.csi_sidecars);
            sidecar.arg(name).arg(format!("--kubeconfig={}", plane.kubeconfig.display()));
            if name != "snapshot-controller" {
                sidecar.arg(format!("--csi-address={}", socket.display()));
            }
            storage.spawn(&mut sidecar, directory, name)?;
        }
        Ok(storage)
    }

    /// Returns the last lines of all logs.
    pub fn log_tail(&self) -> String {
        let tail = |name: &&str| {
            let text = fs::read_to_string(self.directory.join(format!("{name}.log"))).unwrap_or_default();
            format!("--- {name}\n{}", odc_local::artifact::tail(&text, 8))
        };
        std::iter::once(&"odc-csi").chain(&SIDECARS).map(tail).collect::<Vec<_>>().join("\n")
    }

    fn pool(&self) -> PathBuf {
        self.directory.join("pool")
    }

    fn spawn(&mut self, command: &mut Command, directory: &Path, name: &str) -> anyhow::Result<()> {
        let log = File::create(directory.join(format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.processes.push(command.spawn().with_context(|| format!("starting {name}"))?);
        Ok(())
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // An error means that it has ended.
            let _: std::io::Result<()> = process.kill();
            let _: std::io::Result<std::process::ExitStatus> = process.wait();
        }
        // Fails if the driver did not mount it.
        let _: rustix::io::Result<()> = rustix::mount::unmount(self.pool(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Installs the kinds of snapshots and the classes. Volumes are bound at once, because no kubelet reports topology.
async fn install(plane: &ControlPlane, crds: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(crds).with_context(|| format!("reading {}", crds.display()))?;
    let definitions = Api::all(plane.client.clone());
    for crd in manifests::documents(&text)? {
        manifests::apply(&plane.client, &crd).await?;
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let established = await_condition(definitions.clone(), name, conditions::is_crd_established());
        tokio::time::timeout(TIMEOUT, established)
            .await
            .with_context(|| format!("CRD {name} is not established"))??;
    }
    for file in ["driver.yaml", "classes.yaml"] {
        let text = fs::read_to_string(manifests::deploy_directory().join("csi/base").join(file))?;
        for mut object in manifests::documents(&text)? {
            if object["kind"] == "StorageClass" {
                object["volumeBindingMode"] = Value::from("Immediate");
                object["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
            }
            manifests::apply(&plane.client, &object).await?;
        }
    }
    Ok(())
}
