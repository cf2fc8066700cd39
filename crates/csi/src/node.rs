//! The node service: mounts, expansion and usage of volumes on this node.

use std::path::PathBuf;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::access::{Access, AccessError};
use crate::capacity::CapacityRange;
use crate::name::{Name, NodeId, PoolId};
use crate::operation::{Operations, Subject};
use crate::pool::Pool;
use crate::proto::csi::node_server::{Node as NodeApi, NodeServer};
use crate::proto::csi::node_service_capability::rpc::Type as RpcType;
use crate::proto::csi::node_service_capability::{Rpc, Type};
use crate::proto::csi::volume_usage::Unit;
use crate::proto::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetInfoRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse, VolumeUsage,
};
use crate::publish;
use crate::request::{self, InvalidRequest};
use crate::status::Error;
use crate::topology;

/// Volumes are expanded by the node service only. csi-resizer then changes the `PersistentVolume` without a call, so that
/// its leader does not have to be on a node with the volume's pool.
const CAPABILITIES: [RpcType; 4] =
    [RpcType::GetVolumeStats, RpcType::ExpandVolume, RpcType::SingleNodeMultiWriter, RpcType::VolumeMountGroup];

#[derive(Debug)]
pub struct Node {
    pool: Arc<Pool>,
    id: NodeId,
    pool_id: PoolId,
    operations: Operations,
}

impl Node {
    pub fn new(pool: Arc<Pool>, id: NodeId, pool_id: PoolId, operations: Operations) -> Self {
        Self { pool, id, pool_id, operations }
    }

    pub fn into_server(self) -> NodeServer<Self> {
        NodeServer::new(self)
    }

    /// Runs a change of a volume to its end, even if the client disconnects.
    async fn run<T: Send + 'static>(
        &self,
        volume: Name,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let guard = self.operations.start(Subject::Volume(volume))?;
        let task = tokio::spawn(async move {
            let result = work.await;
            drop(guard);
            result
        });
        task.await.map_err(Error::Task)?
    }

    /// Returns the volume and its path, which is mounted on this node.
    async fn find_published(&self, volume_id: &str, volume_path: &str) -> Result<Name, Error> {
        let name = request::parse_volume_id(volume_id)?;
        if volume_path.is_empty() {
            return Err(InvalidRequest::Missing { field: "volume_path" }.into());
        }
        self.pool.volume(&name).await?;
        let (data, target) = (self.pool.volume_data(&name), PathBuf::from(volume_path));
        mount_task(move || publish::check_published(&data, &target)).await?;
        Ok(name)
    }
}

#[tonic::async_trait]
impl NodeApi for Node {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let NodePublishVolumeRequest { volume_id, target_path, volume_capability, readonly } = request.into_inner();
        let name = request::parse_volume_id(&volume_id).map_err(Error::from)?;
        let target = request::parse_path("target_path", &target_path).map_err(Error::from)?;
        let capability = volume_capability.ok_or(AccessError::Missing).map_err(InvalidRequest::from);
        let capability = capability.map_err(Error::from)?;
        let mut access = Access::parse(&capability).map_err(InvalidRequest::from).map_err(Error::from)?;
        access.read_only |= readonly;
        let pool = Arc::clone(&self.pool);
        self.run(name.clone(), async move {
            pool.volume(&name).await?;
            let data = pool.volume_data(&name);
            mount_task(move || publish::publish(&data, &target, &access)).await
        })
        .await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let NodeUnpublishVolumeRequest { volume_id, target_path } = request.into_inner();
        let name = request::parse_volume_id(&volume_id).map_err(Error::from)?;
        let target = request::parse_path("target_path", &target_path).map_err(Error::from)?;
        let root = self.pool.root().to_owned();
        self.run(name, async move { mount_task(move || publish::unpublish(&root, &target)).await }).await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let NodeGetVolumeStatsRequest { volume_id, volume_path } = request.into_inner();
        let name = self.find_published(&volume_id, &volume_path).await?;
        let total = self.pool.volume(&name).await.map_err(Error::from)?.size;
        let used = self.pool.volume_usage(&name).await.map_err(Error::from)?.referenced;
        let free = self.pool.available_space().await.map_err(Error::from)?;
        let usage = VolumeUsage {
            available: to_bytes(total.saturating_sub(used).min(free)),
            total: to_bytes(total),
            used: to_bytes(used),
            unit: Unit::Bytes.into(),
        };
        Ok(Response::new(NodeGetVolumeStatsResponse { usage: vec![usage] }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let NodeExpandVolumeRequest { volume_id, volume_path, capacity_range } = request.into_inner();
        let name = self.find_published(&volume_id, &volume_path).await?;
        let range = CapacityRange::parse(capacity_range.as_ref()).map_err(InvalidRequest::from).map_err(Error::from)?;
        let pool = Arc::clone(&self.pool);
        let size = self.run(name.clone(), async move { Ok(pool.expand_volume(&name, range).await?) }).await?;
        Ok(Response::new(NodeExpandVolumeResponse { capacity_bytes: to_bytes(size) }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let capability = |rpc: RpcType| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: rpc.into() })) };
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities: CAPABILITIES.map(capability).into() }))
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.id.as_str().to_owned(),
            // No limit.
            max_volumes_per_node: 0,
            accessible_topology: Some(topology::segment(&self.pool_id)),
        }))
    }
}

/// Runs mount operations on the blocking pool.
async fn mount_task(work: impl FnOnce() -> Result<(), publish::Error> + Send + 'static) -> Result<(), Error> {
    let result = tokio::task::spawn_blocking(work).await.map_err(publish::Error::Task)?;
    Ok(result?)
}

fn to_bytes(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
