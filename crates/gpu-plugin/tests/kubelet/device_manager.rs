//! The part of a kubelet that device plugins meet. It registers plugins, dials them back and
//! follows their devices as the real one does, and removes all sockets when it starts.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use odc_gpu_plugin::proto::device_plugin_client::DevicePluginClient;
use odc_gpu_plugin::proto::registration_server::{Registration, RegistrationServer};
use odc_gpu_plugin::proto::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, DevicePluginOptions, Empty, ListAndWatchResponse,
    RegisterRequest,
};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use crate::{strings, within};

/// One life of a kubelet. Dropping it leaves its socket behind, as a killed kubelet does.
pub(crate) struct Kubelet {
    plugins: mpsc::UnboundedReceiver<Plugin>,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Kubelet {
    pub(crate) fn start(directory: &Path, refusals: usize) -> Result<Self> {
        fs::create_dir_all(directory)?;
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_socket() {
                fs::remove_file(entry.path())?;
            }
        }
        let listener = UnixListener::bind(directory.join("kubelet.sock"))?;
        let (registered, plugins) = mpsc::unbounded_channel();
        let refusals = AtomicUsize::new(refusals);
        let manager = DeviceManager { directory: directory.to_owned(), registered, refusals };
        let serve = Server::builder()
            .add_service(RegistrationServer::new(manager))
            .serve_with_incoming(UnixListenerStream::new(listener));
        Ok(Self { plugins, task: tokio::spawn(serve) })
    }

    /// The next plugin that registered and was dialled back.
    pub(crate) async fn registered(&mut self) -> Result<Plugin> {
        within(self.plugins.recv()).await?.context("the kubelet serves")
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct DeviceManager {
    directory: PathBuf,
    registered: mpsc::UnboundedSender<Plugin>,
    refusals: AtomicUsize,
}

#[tonic::async_trait]
impl Registration for DeviceManager {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let refuse = |left: usize| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuse).is_ok() {
            return Err(Status::unavailable("not yet"));
        }
        let request = request.into_inner();
        let address = format!("unix:{}", self.directory.join(&request.endpoint).display());
        let dialled = async { Endpoint::from_shared(address)?.connect().await };
        let channel = dialled.await.map_err(|err| Status::unknown(err.to_string()))?;
        let mut client = DevicePluginClient::new(channel);
        let options = client.get_device_plugin_options(Empty {}).await?.into_inner();
        let registered = self.registered.clone();
        // The list is asked for only after the registration was answered.
        tokio::spawn(async move {
            if let Ok(lists) = client.list_and_watch(Empty {}).await {
                let _ = registered.send(Plugin { request, options, client, lists: lists.into_inner() });
            }
        });
        Ok(Response::new(Empty {}))
    }
}

/// A plugin as the kubelet knows it.
pub(crate) struct Plugin {
    pub(crate) request: RegisterRequest,
    pub(crate) options: DevicePluginOptions,
    pub(crate) client: DevicePluginClient<Channel>,
    lists: Streaming<ListAndWatchResponse>,
}

impl Plugin {
    /// The next list from the stream, one line per device.
    pub(crate) async fn list(&mut self) -> Result<Vec<String>> {
        let list = within(self.lists.message()).await??.context("the stream ended")?;
        let line = |(id, health): (String, String)| match health.as_str() {
            "Healthy" => Ok(id),
            "Unhealthy" => Ok(format!("{id} ill")),
            other => bail!("{id} has the unknown health {other}"),
        };
        list.devices.into_iter().map(|device| line((device.id, device.health))).collect()
    }

    pub(crate) async fn allocate(&mut self, ids: &[&str]) -> Result<AllocateResponse, Status> {
        let container_requests = vec![ContainerAllocateRequest { device_ids: strings(ids) }];
        let answer = within(self.client.allocate(AllocateRequest { container_requests })).await;
        Ok(answer.map_err(|late| Status::deadline_exceeded(late.to_string()))??.into_inner())
    }
}
