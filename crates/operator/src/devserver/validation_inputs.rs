//! Collects the cached objects that a server is validated against.

use std::collections::BTreeMap;
use std::sync::Arc;

use odc_api::name::FlavorName;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Disk, Home, Team};
use odc_core::cluster;
use odc_core::devserver::validate::{self, ClaimInput, Inputs};
use odc_core::volume_in_use::{self, VolumeUser};

use crate::cache::cluster::ClusterCache;

/// Owns what [`Inputs`] borrows.
pub struct ValidationInputs {
    user: Option<Arc<DevServerUser>>,
    team: Option<Arc<Team>>,
    flavors: Arc<BTreeMap<FlavorName, Arc<DevServerFlavor>>>,
    runtimes: Vec<Arc<cluster::RuntimeClass>>,
    disk: Option<Arc<Disk>>,
    claims: Vec<MountedClaim>,
    guests: Vec<Arc<DevServerUser>>,
}

struct MountedClaim {
    name: String,
    claim: Option<Arc<cluster::Claim>>,
    waits_for_consumer: bool,
    used_by: Option<VolumeUser>,
    volume: Option<Arc<cluster::Volume>>,
    is_home: bool,
}

impl ValidationInputs {
    pub fn new(cluster: &ClusterCache, server: &DevServer) -> Self {
        let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
        let disk = disk(cluster, server);
        let claims = claims(cluster, server).into_iter();
        let claims = claims.map(|name| MountedClaim::new(cluster, server, disk.as_deref(), name)).collect();
        Self {
            user: cluster.owner(namespace),
            team: server.spec.team.as_ref().and_then(|team| cluster.teams.get("", team.as_str())),
            flavors: cluster.flavors.by_name(),
            runtimes: cluster.runtime_classes.all(),
            disk,
            claims,
            guests: cluster.guests(server),
        }
    }

    pub fn inputs<'a>(&'a self, default_image: &'a str) -> Inputs<'a> {
        let claims = self.claims.iter().map(|mounted| ClaimInput {
            name: &mounted.name,
            claim: mounted.claim.as_deref(),
            waits_for_consumer: mounted.waits_for_consumer,
            used_by: mounted.used_by.as_ref(),
        });
        Inputs {
            user: self.user.as_deref(),
            team: self.team.as_deref(),
            flavors: &self.flavors,
            runtime_classes: &self.runtimes,
            disk: self.disk.as_deref(),
            claims: claims.collect(),
            guests: self.guests.iter().map(|guest| &**guest).collect(),
            default_image,
        }
    }

    pub fn user(&self) -> Option<&DevServerUser> {
        self.user.as_deref()
    }

    pub fn team(&self) -> Option<&Team> {
        self.team.as_deref()
    }

    /// Returns the node affinity of the home.
    pub fn home_affinity(&self) -> Option<cluster::VolumeAffinity> {
        let home = self.claims.iter().find(|claim| claim.is_home)?;
        home.affinity().cloned()
    }

    /// Returns the node affinity of the other volumes.
    pub fn volume_affinity(&self) -> Vec<cluster::VolumeAffinity> {
        let others = self.claims.iter().filter(|claim| !claim.is_home);
        others.filter_map(MountedClaim::affinity).cloned().collect()
    }

    /// Returns the volumes that must be attached to the server's node. Shared volumes are left out: they may be
    /// attached already, which only the kube-scheduler knows.
    pub fn attachments(&self) -> impl Iterator<Item = &cluster::CsiVolume> {
        let exclusive = self.claims.iter().filter(|claim| claim.claim.as_ref().is_some_and(|claim| !claim.shared));
        exclusive.filter_map(|claim| claim.volume.as_ref()?.csi.as_ref())
    }
}

/// Returns the claims that a server mounts, by its own spec or by its flavor's.
pub fn claims(cluster: &ClusterCache, server: &DevServer) -> Vec<String> {
    let flavors = cluster.flavors.by_name();
    let user = cluster.owner(server.metadata.namespace.as_deref().unwrap_or_default());
    let flavor = validate::flavor_name(server, user.as_deref(), &flavors).ok().and_then(|name| flavors.get(&name));
    let disk = disk(cluster, server);
    let claims = validate::claims(server, disk.as_deref(), flavor.map(|flavor| &flavor.spec));
    claims.into_iter().map(str::to_owned).collect()
}

/// Returns the disk of the server's home.
fn disk(cluster: &ClusterCache, server: &DevServer) -> Option<Arc<Disk>> {
    let Home::Disk(name) = &server.spec.home else { return None };
    cluster.disk(server.metadata.namespace.as_deref().unwrap_or_default(), name.as_str())
}

impl MountedClaim {
    fn new(cluster: &ClusterCache, server: &DevServer, disk: Option<&Disk>, name: String) -> Self {
        let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
        let claim = cluster.claims.get(namespace, &name);
        let class = claim.as_ref().and_then(|claim| match &claim.class {
            Some(class) => cluster.storage_classes.get("", class),
            None => cluster.storage_classes.all().into_iter().find(|class| class.is_default),
        });
        let volume = claim.as_ref().and_then(|claim| claim.volume.as_ref());
        let shared = claim.as_ref().is_some_and(|claim| claim.shared);
        Self {
            is_home: validate::home_claim(server, disk) == Some(name.as_str()),
            used_by: if shared { None } else { claim_user(cluster, server, disk, &name) },
            waits_for_consumer: class.is_some_and(|class| class.waits_for_consumer),
            volume: volume.and_then(|volume| cluster.volumes.get("", volume)),
            name,
            claim,
        }
    }

    /// Returns which nodes can use the volume of the claim, if not all can. A claim that is bound when its first pod is
    /// scheduled has no volume yet, but must be created where its source is.
    fn affinity(&self) -> Option<&cluster::VolumeAffinity> {
        let bound = self.volume.as_ref().map(|volume| &volume.affinity);
        let affinity = bound.or_else(|| self.claim.as_ref().map(|claim| &claim.source_affinity))?;
        (!affinity.matches_all_nodes()).then_some(affinity)
    }
}

/// Returns the other server or pod that uses a claim. The disk controller selects the server that uses a disk, so for its
/// claim only pods count.
fn claim_user(cluster: &ClusterCache, server: &DevServer, disk: Option<&Disk>, claim: &str) -> Option<VolumeUser> {
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let current = disk.and_then(|disk| disk.status.as_ref()?.claim.as_ref());
    let is_of_disk = current.is_some_and(|current| current.as_str() == claim);
    let others = if is_of_disk { vec![] } else { cluster.servers_mounting(namespace, claim) };
    let pods = cluster.pods.in_namespace(namespace);
    let others: Vec<&DevServer> = others.iter().map(|other| &**other).collect();
    let pods: Vec<&cluster::Pod> = pods.iter().map(|pod| &**pod).collect();
    volume_in_use::volume_user(claim, server, &others, &pods)
}
