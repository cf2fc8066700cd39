//! Validated requests of servers, shared by the server controller, the scheduler and the flavor loop.
//!
//! A request is kept with the versions of the objects that it was derived from, and validated again when one of them
//! differs. So a scheduling cycle validates only the servers that changed.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use odc_api::namespace;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, Phase};
use odc_core::admission::volume_limits::VolumeLimits;
use odc_core::admission::{Request, Server, hold_time};
use odc_core::cluster::Pod;
use odc_core::devserver::validate::{Valid, Violation, effective_priority, validate};
use odc_core::devserver::{QueueIntent, QueueRequest, Settings, active_admission, build, pods, queue_intent};
use odc_core::flavor::NodeConstraints;
use odc_core::plan::Requeue;
use odc_core::time::until;
use parking_lot::Mutex;

use crate::cache::cluster::ClusterCache;
use crate::devserver::validation_inputs::ValidationInputs;

/// Returns since when a server is in the queue if its status does not say, or `None` to keep what is known.
pub type QueuedSince<'a> = &'a mut dyn FnMut(&DevServer, Timestamp) -> Option<Timestamp>;

/// The requests by the uid of their server. Entries exist only while the server is in the cache, so that a late
/// validation cannot leak one.
#[derive(Default)]
pub struct ValidatedServers(Mutex<HashMap<String, Option<Arc<ValidatedServer>>>>);

pub struct ValidatedServer {
    /// The resource version of the server.
    version: Option<String>,
    inputs: ValidationInputs,
    /// The revision of the attach limits.
    attach_limits: u64,
    /// The flavor of a valid request.
    flavor: Option<Arc<DevServerFlavor>>,
    is_disk_ready: bool,
    /// The planner's input when it was last used. `None` if the server cannot be in the queue.
    entry: Mutex<Option<Arc<Server>>>,
}

impl ValidatedServers {
    /// Adds an empty entry unless there is one.
    pub fn insert(&self, uid: &str) {
        let mut entries = self.0.lock();
        if !entries.contains_key(uid) {
            entries.insert(uid.to_owned(), None);
        }
    }

    pub fn remove(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// Returns the validated request of a server, from memory if nothing has changed.
    pub fn get(&self, cluster: &ClusterCache, server: &DevServer, settings: &Settings) -> Arc<ValidatedServer> {
        let uid = server.metadata.uid.as_deref().unwrap_or_default();
        let known = self.0.lock().get(uid).cloned().flatten();
        if let Some(known) = known.filter(|known| known.is_current(cluster, server)) {
            return known;
        }
        let validated = Arc::new(ValidatedServer::new(cluster, server, settings));
        if let Some(entry) = self.0.lock().get_mut(uid) {
            *entry = Some(validated.clone());
        }
        validated
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl ValidatedServer {
    pub fn new(cluster: &ClusterCache, server: &DevServer, settings: &Settings) -> Self {
        // Before the objects are read: a change in between is then noticed.
        let attach_limits = cluster.attach_limits.revision();
        let limits = cluster.attach_limits.all();
        let limits = VolumeLimits::new(limits.iter().map(|node| &**node));
        let inputs = ValidationInputs::new(cluster, server);
        let validated = validate(server, &inputs.inputs(&settings.default_image));
        let flavor = validated.as_ref().ok().and_then(|valid| inputs.flavor(&valid.flavor_name));
        let is_disk_ready = validated.as_ref().is_ok_and(|valid| valid.disk.ready);
        let entry = entry(server, &validated, &inputs, &limits, settings).map(Arc::new);
        Self {
            version: server.metadata.resource_version.clone(),
            attach_limits,
            flavor,
            is_disk_ready,
            entry: Mutex::new(entry),
            inputs,
        }
    }

    fn is_current(&self, cluster: &ClusterCache, server: &DevServer) -> bool {
        self.version.is_some()
            && self.version == server.metadata.resource_version
            && self.attach_limits == cluster.attach_limits.revision()
            && self.inputs.is_current(cluster, server)
    }

    /// Calls `use_request` with the request, or with what is wrong with it.
    pub fn with_request<T>(
        &self,
        server: &DevServer,
        settings: &Settings,
        use_request: impl FnOnce(&Result<Valid<'_>, Vec<Violation>>) -> T,
    ) -> T {
        use_request(&validate(server, &self.inputs.inputs(&settings.default_image)))
    }

    /// Returns the planner's input, and when its booking starts. It is a new object only if it differs from the last one.
    pub fn queue_entry(
        &self,
        cluster: &ClusterCache,
        server: &DevServer,
        settings: &Settings,
        now: Timestamp,
        queued_since: QueuedSince<'_>,
    ) -> Option<(Arc<Server>, Requeue)> {
        let mut entry = self.entry.lock();
        let known = entry.as_ref()?;
        let request = match &self.flavor {
            None => QueueRequest::Invalid,
            Some(flavor) if self.is_disk_ready => QueueRequest::Ready(&flavor.spec.limits),
            Some(flavor) => QueueRequest::WaitsForDisk(&flavor.spec.limits),
        };
        let has_pods = || pods_of(cluster, server).next().is_some();
        let (intent, changes_at) = queue_intent(server, request, has_pods, settings, now);
        let booking = changes_at.map_or(Requeue::AwaitChange, |time| Requeue::After(until(time, now)));
        let queued_at = match stored_queue_time(server) {
            Some(stored) => stored,
            None => queued_since(server, now).unwrap_or(known.queued_at),
        };
        let from_pods = self.flavor.is_none().then(|| request_from_pods(cluster, server));
        let changed_request = from_pods.filter(|request| *request != known.request);
        if intent != known.intent || queued_at != known.queued_at || changed_request.is_some() {
            let request = changed_request.unwrap_or_else(|| known.request.clone());
            *entry = Some(Arc::new(Server { intent, queued_at, request, ..Server::clone(known) }));
        }
        Some((entry.clone()?, booking))
    }
}

/// Converts a server to the planner's input, except for its intent. Returns `None` if its namespace belongs to no user.
fn entry(
    server: &DevServer,
    validated: &Result<Valid<'_>, Vec<Violation>>,
    inputs: &ValidationInputs,
    limits: &VolumeLimits,
    settings: &Settings,
) -> Option<Server> {
    let namespace = server.metadata.namespace.clone()?;
    let status = server.status.as_ref();
    let flavor = match validated {
        Ok(valid) => valid.flavor_name.clone(),
        Err(_) => status.and_then(|status| status.flavor.clone()).or_else(|| server.spec.flavor.clone())?,
    };
    let flavor_limits = validated.as_ref().ok().map(|valid| &valid.flavor.limits);
    let created = server.metadata.creation_timestamp.as_ref().map(|time| time.0);
    Some(Server {
        priority: effective_priority(server, inputs.user(), inputs.team()),
        preemptible: server.spec.scheduling.preemptible,
        not_before: server.spec.scheduling.not_before.as_ref().map(|time| time.0),
        max_hold_time: validated.is_ok().then(|| hold_time::max_hold_time(server, flavor_limits, settings)),
        release_time: hold_time::release_time(server, flavor_limits, settings),
        owner: namespace::owner(&namespace)?,
        uid: server.metadata.uid.clone()?,
        team: server.spec.team.clone(),
        request: validated.as_ref().map_or_else(|_| Request::default(), |valid| request(valid, inputs, limits)),
        queued_at: stored_queue_time(server).or(created).unwrap_or_default(),
        ended: status.and_then(|status| status.phase).is_some_and(Phase::is_terminal),
        namespace,
        name: server.metadata.name.clone()?,
        flavor,
        intent: QueueIntent::Postponed,
        admission: status.and_then(|status| status.admission.clone()),
    })
}

fn stored_queue_time(server: &DevServer) -> Option<Timestamp> {
    Some(server.status.as_ref()?.admission.as_ref()?.queued_at.as_ref()?.0)
}

fn pods_of(cluster: &ClusterCache, server: &DevServer) -> impl Iterator<Item = Arc<Pod>> {
    let uid = server.metadata.uid.as_deref();
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let name = server.metadata.name.as_deref().unwrap_or_default();
    (0..server.spec.nodes as usize).filter_map(move |ordinal| {
        let pod = cluster.pods.get(namespace, &pods::pod_name(name, ordinal))?;
        let details = pod.server.as_ref()?;
        uid.is_some_and(|uid| details.belongs_to(uid)).then_some(pod)
    })
}

fn request(valid: &Valid<'_>, inputs: &ValidationInputs, limits: &VolumeLimits) -> Request {
    let node_labels = &valid.server.spec.scheduling.node_labels;
    let NodeConstraints { selector, tolerations } =
        NodeConstraints::new(valid.flavor, node_labels, valid.runtime_class);
    Request {
        nodes: valid.nodes,
        per_node: build::size::per_node(valid).saturating_add(&limits.request(inputs.attachments())),
        device: valid.flavor.device.as_ref().map(|device| device.resource.clone()),
        selector,
        tolerations,
        topology: valid.flavor.gang_topology_key.clone(),
        home_affinity: inputs.home_affinity(),
        volume_affinity: inputs.volume_affinity(),
    }
}

/// Derives the request of an invalid server from its pods, because its flavor may be deleted or changed.
fn request_from_pods(cluster: &ClusterCache, server: &DevServer) -> Request {
    let nodes =
        active_admission(server.status.as_ref()).map_or(server.spec.nodes as usize, |admission| admission.nodes.len());
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    pods_of(cluster, server)
        .next()
        .map_or_else(|| Request { nodes, ..Request::default() }, |pod| Request::from_pod(nodes, &pod))
}

#[cfg(test)]
mod tests;
