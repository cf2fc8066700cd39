//! The device plugin API on the plugin's socket. [`crate::registration`] decides when to open and
//! close it.

use std::collections::HashMap;
use std::fs;
use std::future::pending;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::Server as Grpc;
use tonic::{Request, Response, Status};

use crate::allocation::{self, AllocationError, VISIBLE_DEVICES};
use crate::device::{Devices, UnhealthyDevices};
use crate::file_id::FileId;
use crate::proto::device_plugin_server::{DevicePlugin, DevicePluginServer};
use crate::proto::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationResponse,
    DevicePluginOptions, Empty, ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse,
};

/// Also sent in the registration, where current kubelets ignore them.
pub const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true };

/// Time for calls in progress to complete on shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("another process is serving {}", path.display())]
    InUse { path: PathBuf },
    #[error("removing the stale socket {}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("creating the socket {}", path.display())]
    Bind { path: PathBuf, source: io::Error },
    #[error("the new socket {} was removed by another process", path.display())]
    Removed { path: PathBuf },
}

/// The open `ListAndWatch` streams.
#[derive(Debug, Clone, Copy)]
pub struct Watchers {
    pub streams: usize,
    /// When the number of streams last changed.
    pub since: Instant,
}

/// A running server. Every recreation of the socket is a new one.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    file: FileId,
    watchers: watch::Receiver<Watchers>,
    /// Dropped to close the streams and the server.
    shutdown: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    /// Creates the socket and serves on it.
    ///
    /// Replaces the stale socket of a process that has exited, but not that of a running one: two
    /// plugins would keep replacing each other's socket.
    pub async fn open(
        path: &Path,
        devices: Arc<Devices>,
        unhealthy: watch::Receiver<UnhealthyDevices>,
    ) -> Result<Self, Error> {
        let path = path.to_owned();
        remove_stale_socket(&path).await?;
        let listener = UnixListener::bind(&path).map_err(|source| Error::Bind { path: path.clone(), source })?;
        let file = match FileId::from_path(&path) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(Error::Removed { path }),
            Err(source) => return Err(Error::Bind { path, source }),
        };
        let (shutdown, closed) = watch::channel(());
        let (watchers_sender, watchers) = watch::channel(Watchers { streams: 0, since: Instant::now() });
        let plugin = Plugin { devices, unhealthy, watchers: Arc::new(watchers_sender), closed: closed.clone() };
        let serve = Grpc::builder()
            .add_service(DevicePluginServer::new(plugin))
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), until_dropped(closed));
        let socket = path.display().to_string();
        let task = tokio::spawn(async move {
            if let Err(error) = serve.await {
                tracing::error!("serving {socket}: {error}");
            }
        });
        Ok(Self { path, file, watchers, shutdown, task })
    }

    pub fn file(&self) -> FileId {
        self.file
    }

    /// Returns the current watchers and marks them as seen by [`Self::watchers_changed`].
    pub fn watchers(&mut self) -> Watchers {
        *self.watchers.borrow_and_update()
    }

    pub async fn watchers_changed(&mut self) {
        // An error means that the server has stopped, so the number does not change any more.
        if self.watchers.changed().await.is_err() {
            pending::<()>().await;
        }
    }

    /// Closes all streams and removes the socket, unless the file was replaced.
    pub async fn close(self) {
        let Self { path, file, watchers: _, shutdown, mut task } = self;
        if matches!(FileId::from_path(&path), Ok(Some(current)) if current == file)
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::error!("removing {}: {error}", path.display());
        }
        drop(shutdown);
        if timeout(SHUTDOWN_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

async fn remove_stale_socket(path: &Path) -> Result<(), Error> {
    let is_socket = |path: &Path| fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    match UnixStream::connect(path).await {
        Ok(_) => Err(Error::InUse { path: path.to_owned() }),
        Err(err) if err.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
            fs::remove_file(path).map_err(|source| Error::Remove { path: path.to_owned(), source })
        }
        // The file does not exist, or bind will report the error.
        Err(_) => Ok(()),
    }
}

async fn until_dropped(mut signal: watch::Receiver<()>) {
    while signal.changed().await.is_ok() {}
}

/// Implementation of the device plugin API.
#[derive(Debug)]
struct Plugin {
    devices: Arc<Devices>,
    unhealthy: watch::Receiver<UnhealthyDevices>,
    watchers: Arc<watch::Sender<Watchers>>,
    closed: watch::Receiver<()>,
}

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    type ListAndWatchStream = ReceiverStream<Result<ListAndWatchResponse, Status>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let (sender, receiver) = mpsc::channel(1);
        let guard = WatcherGuard::new(&self.watchers);
        let stream = stream_devices(Arc::clone(&self.devices), self.unhealthy.clone(), sender);
        let closed = until_dropped(self.closed.clone());
        tokio::spawn(async move {
            let _guard = guard;
            tokio::select! {
                () = stream => {}
                () = closed => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let mut container_responses = Vec::new();
        for container in request.into_inner().container_requests {
            let size = usize::try_from(container.allocation_size).unwrap_or(0);
            let device_ids =
                allocation::prefer(&self.devices, &container.available_ids, &container.must_include_ids, size);
            container_responses.push(ContainerPreferredAllocationResponse { device_ids });
        }
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let mut container_responses = Vec::new();
        for container in request.into_inner().container_requests {
            let visible = allocation::visible_devices(&self.devices, &self.unhealthy.borrow(), &container.device_ids);
            let envs = HashMap::from([(VISIBLE_DEVICES.to_owned(), visible.map_err(reject)?)]);
            container_responses.push(ContainerAllocateResponse { envs });
        }
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
fn reject(error: AllocationError) -> Status {
    tracing::warn!("allocation rejected: {error}");
    match error {
        AllocationError::Unknown { .. } => Status::not_found(error.to_string()),
        AllocationError::Unhealthy { .. } => Status::failed_precondition(error.to_string()),
    }
}

/// Sends the list at once and at every change, until the kubelet disconnects.
async fn stream_devices(
    devices: Arc<Devices>,
    mut unhealthy: watch::Receiver<UnhealthyDevices>,
    kubelet: mpsc::Sender<Result<ListAndWatchResponse, Status>>,
) {
    loop {
        let list = devices.list_response(&unhealthy.borrow_and_update());
        if kubelet.send(Ok(list)).await.is_err() {
            return;
        }
        tokio::select! {
            changed = unhealthy.changed() => if changed.is_err() { return },
            () = kubelet.closed() => return,
        }
    }
}

/// Counts a stream until it is dropped.
struct WatcherGuard(Arc<watch::Sender<Watchers>>);

impl WatcherGuard {
    fn new(watchers: &Arc<watch::Sender<Watchers>>) -> Self {
        watchers.send_modify(|watchers| {
            *watchers = Watchers { streams: watchers.streams + 1, since: Instant::now() };
        });
        Self(Arc::clone(watchers))
    }
}

impl Drop for WatcherGuard {
    fn drop(&mut self) {
        self.0.send_modify(|watchers| {
            *watchers = Watchers { streams: watchers.streams.saturating_sub(1), since: Instant::now() };
        });
    }
}
