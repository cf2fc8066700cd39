//! The identity service.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::DRIVER_NAME;
use crate::pool::Pool;
use crate::proto::csi::identity_server::{Identity as IdentityApi, IdentityServer};
use crate::proto::csi::plugin_capability::service::Type as ServiceType;
use crate::proto::csi::plugin_capability::volume_expansion::Type as ExpansionType;
use crate::proto::csi::plugin_capability::{Service, Type, VolumeExpansion};
use crate::proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};
use crate::status::Error;

#[derive(Debug)]
pub struct Identity {
    pool: Arc<Pool>,
}

impl Identity {
    pub fn new(pool: Arc<Pool>) -> Self {
        Self { pool }
    }

    pub fn into_server(self) -> IdentityServer<Self> {
        IdentityServer::new(self)
    }
}

#[tonic::async_trait]
impl IdentityApi for Identity {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: DRIVER_NAME.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service = |service: ServiceType| Type::Service(Service { r#type: service.into() });
        let expansion = Type::VolumeExpansion(VolumeExpansion { r#type: ExpansionType::Online.into() });
        let types =
            [service(ServiceType::ControllerService), service(ServiceType::VolumeAccessibilityConstraints), expansion];
        let capabilities = types.map(|r#type| PluginCapability { r#type: Some(r#type) }).into();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        let ready = self.pool.is_mounted().await.map_err(Error::from)?;
        Ok(Response::new(ProbeResponse { ready: Some(ready) }))
    }
}
