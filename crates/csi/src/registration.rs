//! Registers the driver with the kubelet, which watches its directory `plugins_registry` for sockets.

use std::path::Path;

use tokio::sync::watch;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::DRIVER_NAME;
use crate::proto::registration::registration_server::{Registration as RegistrationApi, RegistrationServer};
use crate::proto::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use crate::server::{self, Server};

const PLUGIN_TYPE: &str = "CSIPlugin";
/// Versions of the CSI, as the kubelet compares them.
const CSI_VERSION: &str = "1.0.0";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the kubelet rejected the driver: {message}")]
    Rejected { message: String },
}

/// The open registration socket.
#[derive(Debug)]
pub struct Registration {
    server: Server,
    rejection: watch::Receiver<Option<String>>,
}

impl Registration {
    /// Serves the registration API for the driver at `endpoint`, which must be reachable already.
    pub async fn open(socket: &Path, endpoint: &Path) -> Result<Self, server::Error> {
        let (rejected, rejection) = watch::channel(None);
        let api = Api { endpoint: endpoint.display().to_string(), rejected };
        let server = Server::open(socket, Routes::new(RegistrationServer::new(api))).await?;
        Ok(Self { server, rejection })
    }

    pub async fn close(self) {
        self.server.close().await;
    }
}

/// Waits until the kubelet rejects the driver. It does not try again until the socket is created again, so the driver
/// must restart.
pub async fn wait_for_rejection(registration: Option<&Registration>) -> Error {
    if let Some(registration) = registration {
        let mut rejection = registration.rejection.clone();
        if let Ok(message) = rejection.wait_for(Option::is_some).await {
            return Error::Rejected { message: message.clone().unwrap_or_default() };
        }
    }
    std::future::pending().await
}

#[derive(Debug)]
struct Api {
    endpoint: String,
    rejected: watch::Sender<Option<String>>,
}

#[tonic::async_trait]
impl RegistrationApi for Api {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: PLUGIN_TYPE.to_owned(),
            name: DRIVER_NAME.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec![CSI_VERSION.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        if plugin_registered {
            tracing::info!("registered with the kubelet");
        } else {
            self.rejected.send_replace(Some(error));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
