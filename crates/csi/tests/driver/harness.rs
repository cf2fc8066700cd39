//! A pool in a temporary directory, and driver processes on it. Dropping a pool unmounts everything below its directory.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use odc_csi::proto::csi::controller_client::ControllerClient;
use odc_csi::proto::csi::node_client::NodeClient;
use odc_csi::proto::csi::volume_capability::access_mode::Mode;
use odc_csi::proto::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use odc_csi::proto::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
use odc_csi::proto::csi::{
    CapacityRange, CreateSnapshotRequest, CreateVolumeRequest, DeleteVolumeRequest, ListVolumesRequest,
    NodeExpandVolumeRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeUnpublishVolumeRequest, Snapshot,
    Volume, VolumeCapability, VolumeContentSource, VolumeUsage,
};
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

pub const MIB: u64 = 1 << 20;
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A directory with a pool file, its mount point and target paths.
pub struct TestPool {
    directory: TempDir,
    /// Values of --pool-size and --pool-max-size.
    sizes: (&'static str, &'static str),
}

impl TestPool {
    pub fn new() -> Self {
        Self::with_sizes("1Gi", "1Gi")
    }

    pub fn with_sizes(size: &'static str, max_size: &'static str) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts file systems; run it as root");
        let directory = tempfile::Builder::new().prefix("odc-csi-").tempdir().unwrap();
        Self { directory, sizes: (size, max_size) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the mount point of the pool.
    pub fn root(&self) -> PathBuf {
        self.path("pool")
    }

    pub fn image(&self) -> PathBuf {
        self.path("pool.img")
    }

    /// Returns the subvolume of a volume.
    pub fn data(&self, volume: &str) -> PathBuf {
        self.root().join("volumes").join(volume).join("data")
    }

    /// Returns the entries under construction of all processes.
    pub fn temporaries(&self) -> Vec<PathBuf> {
        let list = |path: PathBuf| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        list(self.root().join("tmp")).flat_map(list).collect()
    }

    pub async fn start(&self) -> Driver {
        self.start_as("n1").await
    }

    /// Returns the socket of the registration service. It is served independently of the CSI services.
    pub async fn registration_socket(&self) -> PathBuf {
        let socket = self.path("registry/csi.odc.dev-reg.sock");
        wait_until("the registration service accepts connections", || UnixStream::connect(&socket).ok()).await;
        socket
    }

    pub async fn start_as(&self, node: &str) -> Driver {
        let (size, max_size) = self.sizes;
        let endpoint = self.path(&format!("{node}.sock"));
        let log = self.path(&format!("{node}.log"));
        fs::create_dir_all(self.path("registry")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_odc-csi"))
            .args(["--node", node, "--pool-id", "test", "--pool-size", size, "--pool-max-size", max_size])
            .arg("--endpoint")
            .arg(&endpoint)
            .arg("--pool")
            .arg(self.root())
            .arg("--pool-file")
            .arg(self.image())
            .arg("--registration-dir")
            .arg(if node == "n1" { self.path("registry") } else { self.directory.path().to_owned() })
            .stderr(File::options().create(true).append(true).open(&log).unwrap())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut driver = Driver { child, endpoint: endpoint.clone(), channel: None };
        let address = format!("unix:{}", endpoint.display());
        let connect = async {
            loop {
                if let Some(status) = driver.child.try_wait().unwrap() {
                    panic!("the driver ended ({status}): {}", fs::read_to_string(&log).unwrap());
                }
                if let Ok(channel) = Endpoint::from_shared(address.clone()).unwrap().connect().await {
                    return channel;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let connected = tokio::time::timeout(START_TIMEOUT, connect).await;
        driver.channel = Some(connected.unwrap_or_else(|_| panic!("{}", fs::read_to_string(&log).unwrap())));
        driver
    }
}

impl Drop for TestPool {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let targets = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
        let ours: Vec<&Path> = targets.filter(|target| target.starts_with(self.directory.path())).collect();
        for target in ours.into_iter().rev() {
            if unmount(target, UnmountFlags::empty()).is_err() {
                // In use by a process of the test; the loop device is freed when it ends.
                let _: Result<(), _> = unmount(target, UnmountFlags::DETACH);
            }
        }
    }
}

/// A running driver, which is killed when it is dropped.
pub struct Driver {
    child: Child,
    pub endpoint: PathBuf,
    channel: Option<Channel>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.child.wait();
    }
}

impl Driver {
    /// Sends SIGKILL and waits for the end of the process.
    pub fn kill(self) {
        drop(self);
    }

    /// Waits until the process ends by itself.
    pub async fn wait(mut self) -> std::process::ExitStatus {
        wait_until("the end of the driver", || self.child.try_wait().unwrap()).await
    }

    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone().unwrap())
    }

    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone().unwrap())
    }

    pub async fn create(&self, name: &str, size: u64) -> Result<Volume, Status> {
        let response = self.controller().create_volume(create_request(name, size, None)).await?;
        Ok(response.into_inner().volume.unwrap())
    }

    pub async fn create_from(&self, name: &str, size: u64, source: Type) -> Result<Volume, Status> {
        let response = self.controller().create_volume(create_request(name, size, Some(source))).await?;
        Ok(response.into_inner().volume.unwrap())
    }

    pub async fn delete(&self, name: &str) -> Result<(), Status> {
        self.controller().delete_volume(DeleteVolumeRequest { volume_id: name.into() }).await.map(drop)
    }

    pub async fn snapshot(&self, name: &str, volume: &str) -> Result<Snapshot, Status> {
        let request =
            CreateSnapshotRequest { source_volume_id: volume.into(), name: name.into(), ..Default::default() };
        Ok(self.controller().create_snapshot(request).await?.into_inner().snapshot.unwrap())
    }

    /// Returns the ids of all volumes.
    pub async fn list(&self) -> Vec<String> {
        let response = self.controller().list_volumes(ListVolumesRequest::default()).await.unwrap().into_inner();
        response.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect()
    }

    pub async fn publish(&self, volume: &str, target: &Path) -> Result<(), Status> {
        self.publish_with(volume, target, capability(Mode::SingleNodeWriter), false).await
    }

    pub async fn publish_with(
        &self,
        volume: &str,
        target: &Path,
        capability: VolumeCapability,
        readonly: bool,
    ) -> Result<(), Status> {
        let request = NodePublishVolumeRequest {
            volume_id: volume.into(),
            target_path: target.display().to_string(),
            volume_capability: Some(capability),
            readonly,
        };
        self.node().node_publish_volume(request).await.map(drop)
    }

    pub async fn unpublish(&self, volume: &str, target: &Path) -> Result<(), Status> {
        let request =
            NodeUnpublishVolumeRequest { volume_id: volume.into(), target_path: target.display().to_string() };
        self.node().node_unpublish_volume(request).await.map(drop)
    }

    pub async fn expand(&self, volume: &str, target: &Path, size: u64) -> Result<u64, Status> {
        let request = NodeExpandVolumeRequest {
            volume_id: volume.into(),
            volume_path: target.display().to_string(),
            capacity_range: Some(CapacityRange { required_bytes: size.cast_signed(), limit_bytes: 0 }),
        };
        let response = self.node().node_expand_volume(request).await?;
        Ok(response.into_inner().capacity_bytes.cast_unsigned())
    }

    pub async fn stats(&self, volume: &str, target: &Path) -> Result<VolumeUsage, Status> {
        let request = NodeGetVolumeStatsRequest { volume_id: volume.into(), volume_path: target.display().to_string() };
        Ok(self.node().node_get_volume_stats(request).await?.into_inner().usage.remove(0))
    }
}

pub fn create_request(name: &str, size: u64, source: Option<Type>) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.into(),
        capacity_range: Some(CapacityRange { required_bytes: size.cast_signed(), limit_bytes: 0 }),
        volume_capabilities: vec![capability(Mode::SingleNodeWriter)],
        volume_content_source: source.map(|source| VolumeContentSource { r#type: Some(source) }),
        ..Default::default()
    }
}

pub fn capability(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}

pub fn from_snapshot(name: &str) -> Type {
    Type::Snapshot(SnapshotSource { snapshot_id: name.into() })
}

pub fn from_volume(name: &str) -> Type {
    Type::Volume(VolumeSource { volume_id: name.into() })
}

/// Waits until `probe` returns a value.
pub async fn wait_until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(value) = probe() {
                return value;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(START_TIMEOUT, wait).await.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}

/// Runs a command that must succeed.
pub fn run(program: &str, arguments: &[&Path]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
