//! The controller service: volumes and snapshots of the pool.
//!
//! Calls that change the pool run in tasks of their own, so that they complete when the client gives up.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::access::Access;
use crate::capacity::{CapacityRange, MAX_VOLUME_SIZE, MIN_VOLUME_SIZE};
use crate::name::PoolId;
use crate::operation::{Operations, Subject};
use crate::page::PageRequest;
use crate::pool::Pool;
use crate::proto::csi::controller_server::{Controller as ControllerApi, ControllerServer};
use crate::proto::csi::controller_service_capability::rpc::Type as RpcType;
use crate::proto::csi::controller_service_capability::{Rpc, Type};
use crate::proto::csi::validate_volume_capabilities_response::Confirmed;
use crate::proto::csi::volume_content_source::{self, SnapshotSource, VolumeSource};
use crate::proto::csi::{
    self, ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, ControllerGetVolumeRequest,
    ControllerGetVolumeResponse, ControllerServiceCapability, CreateSnapshotRequest, CreateSnapshotResponse,
    CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, ListSnapshotsRequest, ListSnapshotsResponse,
    ListVolumesRequest, ListVolumesResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
    VolumeContentSource,
};
use crate::request::{self, InvalidRequest};
use crate::status::Error;
use crate::topology;
use crate::volume::{Snapshot, Source, Volume, VolumeRequest};

const CAPABILITIES: [RpcType; 8] = [
    RpcType::CreateDeleteVolume,
    RpcType::ListVolumes,
    RpcType::GetCapacity,
    RpcType::CreateDeleteSnapshot,
    RpcType::ListSnapshots,
    RpcType::CloneVolume,
    RpcType::GetVolume,
    RpcType::SingleNodeMultiWriter,
];

#[derive(Debug)]
pub struct Controller {
    pool: Arc<Pool>,
    pool_id: PoolId,
    operations: Operations,
}

impl Controller {
    pub fn new(pool: Arc<Pool>, pool_id: PoolId, operations: Operations) -> Self {
        Self { pool, pool_id, operations }
    }

    pub fn into_server(self) -> ControllerServer<Self> {
        ControllerServer::new(self)
    }

    fn parse_create_volume(&self, request: &CreateVolumeRequest) -> Result<VolumeRequest, InvalidRequest> {
        let name = request::parse_name(&request.name)?;
        Access::parse_all(&request.volume_capabilities)?;
        request::check_parameters(&request.parameters)?;
        request::check_parameters(&request.mutable_parameters)?;
        let range = CapacityRange::parse(request.capacity_range.as_ref())?;
        let source = request::parse_source(request.volume_content_source.as_ref())?;
        if !topology::satisfies(request.accessibility_requirements.as_ref(), &self.pool_id) {
            return Err(InvalidRequest::Topology { pool: self.pool_id.as_str().to_owned() });
        }
        Ok(VolumeRequest { name, range, source })
    }

    fn volume_to_proto(&self, volume: Volume) -> csi::Volume {
        let Volume { name, size, source } = volume;
        let source = source.map(|source| match source {
            Source::Snapshot(name) => {
                volume_content_source::Type::Snapshot(SnapshotSource { snapshot_id: name.to_string() })
            }
            Source::Volume(name) => volume_content_source::Type::Volume(VolumeSource { volume_id: name.to_string() }),
        });
        csi::Volume {
            capacity_bytes: to_bytes(size),
            volume_id: name.to_string(),
            content_source: source.map(|source| VolumeContentSource { r#type: Some(source) }),
            accessible_topology: vec![topology::segment(&self.pool_id)],
            ..csi::Volume::default()
        }
    }

    /// Runs an operation on a subject to its end, even if the client disconnects.
    async fn run<T: Send + 'static>(
        &self,
        subject: Subject,
        work: impl Future<Output = Result<T, crate::pool::Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let guard = self.operations.start(subject)?;
        let task = tokio::spawn(async move {
            let result = work.await;
            drop(guard);
            result
        });
        Ok(task.await.map_err(Error::Task)??)
    }
}

#[tonic::async_trait]
impl ControllerApi for Controller {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = self.parse_create_volume(request.get_ref()).map_err(Error::from)?;
        let pool = Arc::clone(&self.pool);
        let subject = Subject::Volume(request.name.clone());
        let volume = self.run(subject, async move { pool.create_volume(&request).await }).await?;
        Ok(Response::new(CreateVolumeResponse { volume: Some(self.volume_to_proto(volume)) }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        match request::parse_volume_id(&request.get_ref().volume_id) {
            Ok(name) => {
                let pool = Arc::clone(&self.pool);
                self.run(Subject::Volume(name.clone()), async move { pool.delete_volume(&name).await }).await?;
            }
            // Deleting what does not exist succeeds.
            Err(InvalidRequest::VolumeNotFound { .. }) => {}
            Err(error) => return Err(Error::from(error).into()),
        }
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        let name = request::parse_volume_id(&request.volume_id).map_err(Error::from)?;
        if request.volume_capabilities.is_empty() {
            return Err(Error::from(InvalidRequest::Missing { field: "volume_capabilities" }).into());
        }
        self.pool.volume(&name).await.map_err(Error::from)?;
        let supported = Access::parse_all(&request.volume_capabilities)
            .map_err(InvalidRequest::from)
            .and_then(|_| request::check_parameters(&request.parameters))
            .and_then(|()| request::check_parameters(&request.mutable_parameters));
        Ok(Response::new(match supported {
            Ok(()) => ValidateVolumeCapabilitiesResponse {
                confirmed: Some(Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                }),
                message: String::new(),
            },
            Err(error) => ValidateVolumeCapabilitiesResponse { confirmed: None, message: error.to_string() },
        }))
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let ListVolumesRequest { max_entries, starting_token } = request.into_inner();
        let page =
            PageRequest::parse(max_entries, &starting_token).map_err(InvalidRequest::from).map_err(Error::from)?;
        let (volumes, next_token) = self.pool.list_volumes(page).await.map_err(Error::from)?;
        let entry = |volume| csi::list_volumes_response::Entry { volume: Some(self.volume_to_proto(volume)) };
        Ok(Response::new(ListVolumesResponse { entries: volumes.into_iter().map(entry).collect(), next_token }))
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let GetCapacityRequest { volume_capabilities, parameters, accessible_topology } = request.into_inner();
        // Volumes that cannot be created have no capacity.
        let supported = volume_capabilities.is_empty() || Access::parse_all(&volume_capabilities).is_ok();
        let reachable = accessible_topology.is_none_or(|topology| topology::includes(&topology, &self.pool_id));
        let available = if supported && reachable && request::check_parameters(&parameters).is_ok() {
            self.pool.available_space().await.map_err(Error::from)?
        } else {
            0
        };
        Ok(Response::new(GetCapacityResponse {
            available_capacity: to_bytes(available),
            maximum_volume_size: Some(to_bytes(available.min(MAX_VOLUME_SIZE))),
            minimum_volume_size: Some(to_bytes(MIN_VOLUME_SIZE)),
        }))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capability =
            |rpc: RpcType| ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: rpc.into() })) };
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities: CAPABILITIES.map(capability).into() }))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let CreateSnapshotRequest { source_volume_id, name, parameters } = request.into_inner();
        let name = request::parse_name(&name).map_err(Error::from)?;
        let volume = request::parse_volume_id(&source_volume_id).map_err(Error::from)?;
        request::check_parameters(&parameters).map_err(Error::from)?;
        let pool = Arc::clone(&self.pool);
        let subject = Subject::Snapshot(name.clone());
        let snapshot = self.run(subject, async move { pool.create_snapshot(&name, &volume).await }).await?;
        Ok(Response::new(CreateSnapshotResponse { snapshot: Some(snapshot_to_proto(snapshot)) }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        match request::parse_snapshot_id(&request.get_ref().snapshot_id) {
            Ok(name) => {
                let pool = Arc::clone(&self.pool);
                self.run(Subject::Snapshot(name.clone()), async move { pool.delete_snapshot(&name).await }).await?;
            }
            // Deleting what does not exist succeeds.
            Err(InvalidRequest::SnapshotNotFound { .. }) => {}
            Err(error) => return Err(Error::from(error).into()),
        }
        Ok(Response::new(DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        let ListSnapshotsRequest { max_entries, starting_token, source_volume_id, snapshot_id } = request.into_inner();
        let page =
            PageRequest::parse(max_entries, &starting_token).map_err(InvalidRequest::from).map_err(Error::from)?;
        // An id that cannot exist matches nothing.
        let (snapshots, next_token) = if !snapshot_id.is_empty() {
            let found = match snapshot_id.parse() {
                Ok(name) => self.pool.find_snapshot(&name).await.map_err(Error::from)?,
                Err(_) => None,
            };
            let matching =
                |snapshot: &Snapshot| source_volume_id.is_empty() || snapshot.volume.as_str() == source_volume_id;
            (found.into_iter().filter(matching).collect(), String::new())
        } else if source_volume_id.is_empty() {
            self.pool.list_snapshots(None, page).await.map_err(Error::from)?
        } else {
            match source_volume_id.parse() {
                Ok(volume) => self.pool.list_snapshots(Some(&volume), page).await.map_err(Error::from)?,
                Err(_) => (Vec::new(), String::new()),
            }
        };
        let entry = |snapshot| csi::list_snapshots_response::Entry { snapshot: Some(snapshot_to_proto(snapshot)) };
        Ok(Response::new(ListSnapshotsResponse { entries: snapshots.into_iter().map(entry).collect(), next_token }))
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        let name = request::parse_volume_id(&request.get_ref().volume_id).map_err(Error::from)?;
        let volume = self.pool.volume(&name).await.map_err(Error::from)?;
        Ok(Response::new(ControllerGetVolumeResponse {
            volume: Some(self.volume_to_proto(volume)),
            status: Some(csi::controller_get_volume_response::VolumeStatus::default()),
        }))
    }
}

fn snapshot_to_proto(snapshot: Snapshot) -> csi::Snapshot {
    let Snapshot { name, volume, size, created } = snapshot;
    csi::Snapshot {
        size_bytes: to_bytes(size),
        snapshot_id: name.to_string(),
        source_volume_id: volume.to_string(),
        creation_time: Some(created.to_proto()),
        // A snapshot is complete when it appears.
        ready_to_use: true,
    }
}

fn to_bytes(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
