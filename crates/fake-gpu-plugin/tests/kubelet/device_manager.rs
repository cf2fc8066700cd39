//! A fake of the kubelet's device manager: it accepts registrations, connects to plugins, watches
//! their devices, and removes all sockets when it starts.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use odc_fake_gpu_plugin::proto::device_plugin_client::DevicePluginClient;
use odc_fake_gpu_plugin::proto::registration_server::{Registration, RegistrationServer};
use odc_fake_gpu_plugin::proto::{
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

/// A running kubelet. Dropping it leaves its socket behind, like a killed kubelet.
pub(crate) struct Kubelet {
    plugins: mpsc::UnboundedReceiver<Plugin>,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Kubelet {
    pub(crate) fn start(directory: &Path, rejections: usize) -> Result<Self> {
        fs::create_dir_all(directory)?;
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_socket() {
                fs::remove_file(entry.path())?;
            }
        }
        let listener = UnixListener::bind(directory.join("kubelet.sock"))?;
        let (registered, plugins) = mpsc::unbounded_channel();
        let rejections = AtomicUsize::new(rejections);
        let manager = DeviceManager { directory: directory.to_owned(), registered, rejections };
        let serve = Server::builder()
            .add_service(RegistrationServer::new(manager))
            .serve_with_incoming(UnixListenerStream::new(listener));
        Ok(Self { plugins, task: tokio::spawn(serve) })
    }

    /// Returns the next plugin that has registered and accepted the connection.
    pub(crate) async fn registered(&mut self) -> Result<Plugin> {
        within(self.plugins.recv()).await?.context("the kubelet is running")
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
    rejections: AtomicUsize,
}

#[tonic::async_trait]
impl Registration for DeviceManager {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let decrement = |remaining: usize| remaining.checked_sub(1);
        if self.rejections.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement).is_ok() {
            return Err(Status::unavailable("not yet"));
        }
        let request = request.into_inner();
        let address = format!("unix:{}", self.directory.join(&request.endpoint).display());
        let connect = async { Endpoint::from_shared(address)?.connect().await };
        let channel = connect.await.map_err(|err| Status::unknown(err.to_string()))?;
        let mut client = DevicePluginClient::new(channel);
        let options = client.get_device_plugin_options(Empty {}).await?.into_inner();
        let registered = self.registered.clone();
        // The kubelet calls `ListAndWatch` only after it has responded to the registration.
        tokio::spawn(async move {
            if let Ok(lists) = client.list_and_watch(Empty {}).await {
                let _ = registered.send(Plugin { request, options, client, lists: lists.into_inner() });
            }
        });
        Ok(Response::new(Empty {}))
    }
}

/// A registered plugin.
pub(crate) struct Plugin {
    pub(crate) request: RegisterRequest,
    pub(crate) options: DevicePluginOptions,
    pub(crate) client: DevicePluginClient<Channel>,
    lists: Streaming<ListAndWatchResponse>,
}

impl Plugin {
    /// Returns the next list from the stream, one line per device.
    pub(crate) async fn next_list(&mut self) -> Result<Vec<String>> {
        let list = within(self.lists.message()).await??.context("the stream ended")?;
        let line = |(id, health): (String, String)| match health.as_str() {
            "Healthy" => Ok(id),
            "Unhealthy" => Ok(format!("{id} unhealthy")),
            other => bail!("unknown health {other} of {id}"),
        };
        list.devices.into_iter().map(|device| line((device.id, device.health))).collect()
    }

    pub(crate) async fn allocate(&mut self, ids: &[&str]) -> Result<AllocateResponse, Status> {
        let container_requests = vec![ContainerAllocateRequest { device_ids: strings(ids) }];
        let response = within(self.client.allocate(AllocateRequest { container_requests })).await;
        Ok(response.map_err(|timeout| Status::deadline_exceeded(timeout.to_string()))??.into_inner())
    }
}
