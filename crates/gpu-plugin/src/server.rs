//! The plugin's own socket and the calls the kubelet makes on it. When to open and close it is
//! decided in [`crate::registration`].

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

use crate::allocation::{self, Refusal, VISIBLE_DEVICES};
use crate::device::{Devices, Ill};
use crate::file_id::FileId;
use crate::proto::device_plugin_server::{DevicePlugin, DevicePluginServer};
use crate::proto::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationResponse,
    DevicePluginOptions, Empty, ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse,
};

/// Also part of the registration, where the kubelet does not read it today.
pub const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true };

/// How long a call in progress may take to end before it is no longer waited for.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("another process serves {}; stop it", path.display())]
    Taken { path: PathBuf },
    #[error("removing the left-over socket {}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("making the socket {}", path.display())]
    Bind { path: PathBuf, source: io::Error },
    #[error("the new socket {} was removed at once", path.display())]
    Vanished { path: PathBuf },
}

/// Who follows the device list.
#[derive(Debug, Clone, Copy)]
pub struct Audience {
    pub streams: usize,
    /// When the number of streams last changed.
    pub since: Instant,
}

/// One life of the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    file: FileId,
    audience: watch::Receiver<Audience>,
    /// Dropped to end the streams and the server.
    closing: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    /// Makes the socket and serves on it.
    ///
    /// A socket that a dead plugin left is replaced; that of a living one is not, or the two would
    /// take it from each other for ever.
    pub async fn open(path: &Path, devices: Arc<Devices>, ill: watch::Receiver<Ill>) -> Result<Self, Error> {
        let path = path.to_owned();
        clear(&path).await?;
        let listener = UnixListener::bind(&path).map_err(|source| Error::Bind { path: path.clone(), source })?;
        let file = match FileId::of(&path) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(Error::Vanished { path }),
            Err(source) => return Err(Error::Bind { path, source }),
        };
        let (closing, closed) = watch::channel(());
        let (audience_sender, audience) = watch::channel(Audience { streams: 0, since: Instant::now() });
        let plugin = Plugin { devices, ill, audience: Arc::new(audience_sender), closed: closed.clone() };
        let serve = Grpc::builder()
            .add_service(DevicePluginServer::new(plugin))
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), until_dropped(closed));
        let shown = path.display().to_string();
        let task = tokio::spawn(async move {
            if let Err(error) = serve.await {
                tracing::error!("serving {shown}: {error}");
            }
        });
        Ok(Self { path, file, audience, closing, task })
    }

    pub fn file(&self) -> FileId {
        self.file
    }

    /// The present audience; [`Self::audience_changed`] waits for another.
    pub fn audience(&mut self) -> Audience {
        *self.audience.borrow_and_update()
    }

    pub async fn audience_changed(&mut self) {
        // An error says that the server has ended, and then the number stays as it is.
        if self.audience.changed().await.is_err() {
            pending::<()>().await;
        }
    }

    /// Ends all streams and removes the socket, unless another file has taken its place.
    pub async fn close(self) {
        let Self { path, file, audience: _, closing, mut task } = self;
        if matches!(FileId::of(&path), Ok(Some(there)) if there == file)
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::error!("removing {}: {error}", path.display());
        }
        drop(closing);
        if timeout(FAREWELL, &mut task).await.is_err() {
            task.abort();
        }
    }
}

async fn clear(path: &Path) -> Result<(), Error> {
    let left_over = |path: &Path| fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    match UnixStream::connect(path).await {
        Ok(_) => Err(Error::Taken { path: path.to_owned() }),
        Err(err) if err.kind() == io::ErrorKind::ConnectionRefused && left_over(path) => {
            fs::remove_file(path).map_err(|source| Error::Remove { path: path.to_owned(), source })
        }
        // Nothing there, or something that making the socket will name.
        Err(_) => Ok(()),
    }
}

async fn until_dropped(mut signal: watch::Receiver<()>) {
    while signal.changed().await.is_ok() {}
}

/// The answers to the kubelet.
#[derive(Debug)]
struct Plugin {
    devices: Arc<Devices>,
    ill: watch::Receiver<Ill>,
    audience: Arc<watch::Sender<Audience>>,
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
        let listener = Listener::new(&self.audience);
        let feed = feed(Arc::clone(&self.devices), self.ill.clone(), sender);
        let closed = until_dropped(self.closed.clone());
        tokio::spawn(async move {
            let _listener = listener;
            tokio::select! {
                () = feed => {}
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
        for asked in request.into_inner().container_requests {
            let size = usize::try_from(asked.allocation_size).unwrap_or(0);
            let device_ids = allocation::prefer(&self.devices, &asked.available_ids, &asked.must_include_ids, size);
            container_responses.push(ContainerPreferredAllocationResponse { device_ids });
        }
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let mut container_responses = Vec::new();
        for asked in request.into_inner().container_requests {
            let visible = allocation::visible(&self.devices, &self.ill.borrow(), &asked.device_ids);
            let envs = HashMap::from([(VISIBLE_DEVICES.to_owned(), visible.map_err(refuse)?)]);
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

#[expect(clippy::needless_pass_by_value, reason = "a conversion of errors")]
fn refuse(refusal: Refusal) -> Status {
    tracing::warn!("allocation refused: {refusal}");
    match refusal {
        Refusal::Unknown { .. } => Status::not_found(refusal.to_string()),
        Refusal::Ill { .. } => Status::failed_precondition(refusal.to_string()),
    }
}

/// Sends the list now and at each change, until the kubelet leaves.
async fn feed(
    devices: Arc<Devices>,
    mut ill: watch::Receiver<Ill>,
    kubelet: mpsc::Sender<Result<ListAndWatchResponse, Status>>,
) {
    loop {
        let list = devices.report(&ill.borrow_and_update());
        if kubelet.send(Ok(list)).await.is_err() {
            return;
        }
        tokio::select! {
            changed = ill.changed() => if changed.is_err() { return },
            () = kubelet.closed() => return,
        }
    }
}

/// Counts one stream for as long as it lives.
struct Listener(Arc<watch::Sender<Audience>>);

impl Listener {
    fn new(audience: &Arc<watch::Sender<Audience>>) -> Self {
        audience.send_modify(|audience| {
            *audience = Audience { streams: audience.streams + 1, since: Instant::now() };
        });
        Self(Arc::clone(audience))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.send_modify(|audience| {
            *audience = Audience { streams: audience.streams.saturating_sub(1), since: Instant::now() };
        });
    }
}
