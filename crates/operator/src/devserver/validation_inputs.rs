//! Collects the cached objects that a server is validated against.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Resource;
use odc_api::name::FlavorName;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Disk, Home, Team};
use odc_core::cluster;
use odc_core::devserver::validate::{self, ClaimInput, Inputs};
use odc_core::volume_in_use::VolumeUser;

use crate::cache::cluster::ClusterCache;

/// Owns what [`Inputs`] borrows.
pub struct ValidationInputs {
    user: Option<Arc<DevServerUser>>,
    team: Option<Arc<Team>>,
    flavors: Arc<BTreeMap<FlavorName, Arc<DevServerFlavor>>>,
    runtimes: Vec<Arc<cluster::RuntimeClass>>,
    /// The revisions of the runtime classes and the storage classes.
    revisions: [u64; 2],
    disk: Option<Arc<Disk>>,
    claims: Vec<MountedClaim>,
    guests: Vec<Arc<DevServerUser>>,
}

struct MountedClaim {
    name: String,
    claim: Option<Arc<cluster::Claim>>,
    waits_for_consumer: bool,
    used_by: Option<VolumeUser>,
    /// The revision of the users of the claim.
    users: u64,
    volume: Option<Arc<cluster::Volume>>,
    is_home: bool,
}

impl ValidationInputs {
    pub fn new(cluster: &ClusterCache, server: &DevServer) -> Self {
        let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
        // Before the objects are read: a change in between is then noticed.
        let revisions = revisions(cluster);
        let disk = disk(cluster, server);
        let claims = claims(cluster, server).into_iter();
        let claims = claims.map(|name| MountedClaim::new(cluster, server, disk.as_deref(), name)).collect();
        Self {
            user: cluster.owner(namespace),
            team: server.spec.team.as_ref().and_then(|team| cluster.teams.get("", team.as_str())),
            flavors: cluster.flavors.by_name(),
            runtimes: cluster.runtime_classes.all(),
            revisions,
            disk,
            claims,
            guests: cluster.guests(server),
        }
    }

    /// Reports whether the caches still have the same versions of all objects. The server must not have changed: it
    /// determines which objects those are.
    pub fn is_current(&self, cluster: &ClusterCache, server: &DevServer) -> bool {
        let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
        let Self { user, team, flavors, runtimes: _, revisions: known, disk: known_disk, claims, guests } = self;
        let has_same_team = || match &server.spec.team {
            Some(name) => is_same_spec(team.as_ref(), cluster.teams.get("", name.as_str()).as_ref()),
            None => true,
        };
        let has_same_guests = || {
            let current = cluster.guests(server);
            let pairs = || guests.iter().zip(&current);
            guests.len() == current.len() && pairs().all(|(one, other)| is_same_spec(Some(one), Some(other)))
        };
        Arc::ptr_eq(flavors, &cluster.flavors.by_name())
            && *known == revisions(cluster)
            && is_same_spec(user.as_ref(), cluster.owner(namespace).as_ref())
            && has_same_team()
            && is_same(known_disk.as_ref(), disk(cluster, server).as_ref())
            && claims.iter().all(|claim| claim.is_current(cluster, namespace))
            && (server.spec.access.users.is_empty() || has_same_guests())
    }

    /// Returns a flavor.
    pub fn flavor(&self, name: &FlavorName) -> Option<Arc<DevServerFlavor>> {
        self.flavors.get(name).cloned()
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

/// Returns the revisions of small kinds of which all objects count.
fn revisions(cluster: &ClusterCache) -> [u64; 2] {
    [cluster.runtime_classes.revision(), cluster.storage_classes.revision()]
}

fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

/// Reports whether two versions of an object have the same spec. A validation does not depend on the status of these
/// kinds, which changes more often.
fn is_same_spec<K: Resource>(one: Option<&Arc<K>>, other: Option<&Arc<K>>) -> bool {
    let is_same_generation = |one: &Arc<K>, other: &Arc<K>| {
        one.meta().uid == other.meta().uid && one.meta().generation == other.meta().generation
    };
    is_same(one, other) || one.zip(other).is_some_and(|(one, other)| is_same_generation(one, other))
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
        let users = cluster.claim_index.revision(namespace, &name);
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
            users,
            name,
            claim,
        }
    }

    fn is_current(&self, cluster: &ClusterCache, namespace: &str) -> bool {
        let volume = self.claim.as_ref().and_then(|claim| claim.volume.as_ref());
        let volume = || volume.and_then(|volume| cluster.volumes.get("", volume));
        self.users == cluster.claim_index.revision(namespace, &self.name)
            && is_same(self.claim.as_ref(), cluster.claims.get(namespace, &self.name).as_ref())
            && is_same(self.volume.as_ref(), volume().as_ref())
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
    if is_of_disk {
        cluster.claim_index.pod_before(namespace, claim, server)
    } else {
        cluster.claim_index.user_before(namespace, claim, server)
    }
}
