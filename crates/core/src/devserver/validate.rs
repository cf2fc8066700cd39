//! Validation of a request against other objects: flavor, user, team and claims.
//!
//! The API server validates the object itself with the rules of the CRD. Violations found here are not errors: they become
//! the condition Accepted, and nothing is retried until something changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use odc_api::name::{FlavorName, ObjectName, ServerName, UserName};
use odc_api::v1alpha1::condition::{self, Reason, Status, Type};
use odc_api::v1alpha1::{self, DevServer, DevServerFlavor, DevServerFlavorSpec, DevServerUser, Home, Priority, Team};
use odc_api::{mount_path::MountPath, namespace};

use crate::cluster::{Claim, ClaimPhase, RuntimeClass};
use crate::volume_in_use::VolumeUser;

/// The objects a request is validated against.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The owner of the namespace.
    pub user: Option<&'a DevServerUser>,
    /// The team in the spec, if it exists.
    pub team: Option<&'a Team>,
    pub flavors: &'a BTreeMap<FlavorName, Arc<DevServerFlavor>>,
    pub runtime_classes: &'a [Arc<RuntimeClass>],
    /// The disk of the home, if the spec names one and it exists.
    pub disk: Option<&'a v1alpha1::Disk>,
    /// The claims of the server, its home first.
    pub claims: Vec<ClaimInput<'a>>,
    /// The existing users the server is shared with.
    pub guests: Vec<&'a DevServerUser>,
    /// The image of servers that do not name one.
    pub default_image: &'a str,
}

/// A claim of the server.
#[derive(Clone, Debug)]
pub struct ClaimInput<'a> {
    pub name: &'a str,
    pub claim: Option<&'a Claim>,
    /// It is bound when its first pod is scheduled.
    pub waits_for_consumer: bool,
    /// For a claim that only one server can use: the other server or pod that uses it or has precedence.
    pub used_by: Option<&'a VolumeUser>,
}

/// A valid request with all references resolved.
#[derive(Clone, Debug)]
pub struct Valid<'a> {
    pub server: &'a DevServer,
    pub name: ServerName,
    pub namespace: &'a str,
    pub uid: &'a str,
    pub owner: UserName,
    pub user: &'a DevServerUser,
    /// Users the server is shared with.
    pub guests: Vec<&'a DevServerUser>,
    pub flavor_name: FlavorName,
    pub flavor: &'a DevServerFlavorSpec,
    /// The runtime class of the flavor.
    pub runtime_class: Option<&'a RuntimeClass>,
    /// Devices per node.
    pub count: u32,
    pub nodes: u32,
    pub image: &'a str,
    pub disk: Disk,
    /// The claim of the home. A server on several nodes mounts that of a disk on the first one only.
    pub home_claim: Option<&'a str>,
    /// Volumes besides the home: those of the server, then those of the flavor.
    pub volumes: Vec<Mount<'a>>,
}

impl Valid<'_> {
    /// Returns the names of the pull Secrets: that of the server, then that of the flavor.
    pub fn pull_secrets(&self) -> impl Iterator<Item = &str> {
        let own = self.server.spec.image.as_ref().and_then(|image| image.pull_secret.as_ref());
        own.into_iter().chain(&self.flavor.pull_secret).map(ObjectName::as_str)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    pub claim: &'a str,
    pub path: &'a MountPath,
    pub read_only: bool,
}

/// The state of the home and the other claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub ready: bool,
    pub reason: Reason,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub reason: Reason,
    /// The fault and what to do about it.
    pub message: String,
}

fn violation(reason: Reason, message: impl Into<String>) -> Violation {
    Violation { reason, message: message.into() }
}

/// Returns the resolved request, or all violations.
pub fn validate<'a>(server: &'a DevServer, inputs: &Inputs<'a>) -> Result<Valid<'a>, Vec<Violation>> {
    let spec = &server.spec;
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let name = server.metadata.name.as_deref().unwrap_or_default().parse::<ServerName>();
    let name = name.map_err(|error| vec![violation(Reason::Invalid, format!("{error}."))])?;
    let no_owner = || {
        let message = format!("Namespace {namespace} does not belong to a user. Create the server in dev-<user>.");
        vec![violation(Reason::NoOwner, message)]
    };
    let owner = namespace::owner(namespace).ok_or_else(no_owner)?;
    let user = inputs.user.ok_or_else(no_owner)?;

    let (flavor_name, flavor) = flavor(server, inputs).map_err(|violation| vec![violation])?;
    let (count, bad_count) = match count(spec.count, &flavor_name, flavor) {
        Ok(count) => (count, None),
        Err(violation) => (0, Some(violation)),
    };
    let volumes = volumes(server, flavor);
    // An admitted server keeps its devices when its owner loses permissions, because its usage must still be accounted.
    let admitted = super::active_admission(server.status.as_ref()).is_some();
    let membership = team(server, &owner, inputs.team).filter(|_| !admitted);
    let priority = priority(server, user, inputs.team).filter(|_| !admitted);
    let runtime_class = flavor.runtime_class.as_ref().and_then(|name| {
        let found = inputs.runtime_classes.iter().find(|class| class.name == name.as_str());
        found.map(|class| &**class)
    });
    let violations: Vec<Violation> = [
        bad_count,
        membership,
        priority,
        maintenance(server, &owner, &flavor_name, flavor),
        missing_runtime_class(server, &flavor_name, flavor, runtime_class),
        unsupported(server),
        gang_home(server, inputs),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !violations.is_empty() {
        return Err(violations);
    }
    let image = spec.image.as_ref().and_then(|image| image.reference.as_deref());
    let preferred = user.spec.defaults.as_ref().and_then(|defaults| defaults.image.as_deref());
    Ok(Valid {
        server,
        name,
        namespace,
        uid: server.metadata.uid.as_deref().unwrap_or_default(),
        owner,
        user,
        guests: inputs.guests.clone(),
        flavor_name,
        flavor,
        runtime_class,
        count,
        nodes: spec.nodes,
        image: image.or(preferred).unwrap_or(inputs.default_image),
        disk: disk(server, inputs),
        home_claim: home_claim(server, inputs.disk),
        volumes,
    })
}

/// Returns the flavor of the status, of the spec, of the owner's defaults, or the cluster default, in this order.
pub fn flavor_name(
    server: &DevServer,
    user: Option<&DevServerUser>,
    flavors: &BTreeMap<FlavorName, Arc<DevServerFlavor>>,
) -> Result<FlavorName, Violation> {
    let assigned = server.status.as_ref().and_then(|status| status.flavor.clone());
    let preferred = || user?.spec.defaults.as_ref()?.flavor.clone();
    match assigned.or_else(|| server.spec.flavor.clone()).or_else(preferred) {
        Some(name) => Ok(name),
        None => default_flavor(flavors),
    }
}

fn flavor<'a>(server: &DevServer, inputs: &Inputs<'a>) -> Result<(FlavorName, &'a DevServerFlavorSpec), Violation> {
    let name = flavor_name(server, inputs.user, inputs.flavors)?;
    let flavor = inputs.flavors.get(&name).ok_or_else(|| {
        let names: Vec<&str> = inputs.flavors.keys().take(5).map(FlavorName::as_str).collect();
        let available = match names.as_slice() {
            [] => "No flavors exist".to_owned(),
            names => format!("Available flavors: {}", names.join(", ")),
        };
        violation(Reason::FlavorNotFound, format!("Flavor {name} not found. {available}."))
    })?;
    Ok((name, &flavor.spec))
}

fn default_flavor(flavors: &BTreeMap<FlavorName, Arc<DevServerFlavor>>) -> Result<FlavorName, Violation> {
    let defaults: Vec<&FlavorName> =
        flavors.iter().filter(|(_, flavor)| flavor.spec.default).map(|(name, _)| name).collect();
    match defaults.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(violation(Reason::NoDefaultFlavor, "No default flavor. Set spec.flavor.")),
        several => {
            let names: Vec<&str> = several.iter().take(5).map(|name| name.as_str()).collect();
            let message = format!(
                "Multiple default flavors: {}. Set spec.flavor, or ask an administrator to keep one default.",
                names.join(", ")
            );
            Err(violation(Reason::MultipleDefaultFlavors, message))
        }
    }
}

fn count(requested: Option<u32>, name: &FlavorName, flavor: &DevServerFlavorSpec) -> Result<u32, Violation> {
    let invalid = |message: String| Err(violation(Reason::InvalidCount, message));
    match (&flavor.device, requested) {
        (None, None | Some(0)) => Ok(0),
        (None, Some(_)) => invalid(format!("Flavor {name} has no devices. Omit spec.count.")),
        (Some(device), requested) => {
            let count = requested.unwrap_or(1);
            let listed = device.counts.is_empty() || device.counts.contains(&count);
            if count >= 1 && count <= device.per_node && listed {
                return Ok(count);
            }
            let mut offered = device.counts.clone();
            offered.sort_unstable();
            let offer = match offered.as_slice() {
                [] => format!("1 to {}", device.per_node),
                some => some.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
            };
            invalid(format!(
                "Invalid count {count}: flavor {name} offers {offer} {} per node. Set spec.count to one of these.",
                device.resource
            ))
        }
    }
}

fn team(server: &DevServer, owner: &UserName, team: Option<&Team>) -> Option<Violation> {
    let name = server.spec.team.as_ref()?;
    let member = team.is_some_and(|team| team.spec.members.contains(owner));
    (!member).then(|| {
        // The message does not reveal whether the team exists.
        let message = format!("User {owner} is not a member of team {name}. Omit spec.team, or ask to be added.");
        violation(Reason::NotTeamMember, message)
    })
}

/// Returns the highest priority a request may have: at most the team's ceiling and the user's own. Without either it is
/// Normal.
pub fn priority_ceiling(user: Option<&DevServerUser>, team: Option<&Team>) -> Priority {
    let own = user.and_then(|user| user.spec.priority_ceiling);
    match team.map(|team| team.spec.priority.ceiling) {
        Some(teams) => own.map_or(teams, |own| own.min(teams)),
        None => own.unwrap_or(Priority::Normal),
    }
}

/// Returns the requested priority or the team's default, limited by the ceiling.
pub fn effective_priority(server: &DevServer, user: Option<&DevServerUser>, team: Option<&Team>) -> Priority {
    let default = team.map_or(Priority::Normal, |team| team.spec.priority.default);
    server.spec.scheduling.priority.unwrap_or(default).min(priority_ceiling(user, team))
}

fn priority(server: &DevServer, user: &DevServerUser, team: Option<&Team>) -> Option<Violation> {
    let requested = server.spec.scheduling.priority?;
    let ceiling = priority_ceiling(Some(user), team);
    (requested > ceiling).then(|| {
        let message = format!(
            "Priority {requested:?} exceeds the allowed maximum {ceiling:?}. Lower scheduling.priority, or ask an \
             administrator to raise the ceiling."
        );
        violation(Reason::PriorityTooHigh, message)
    })
}

/// Maintenance rejects new servers. Admitted ones are not affected.
fn maintenance(
    server: &DevServer,
    owner: &UserName,
    name: &FlavorName,
    flavor: &DevServerFlavorSpec,
) -> Option<Violation> {
    let maintenance = flavor.maintenance.as_ref()?;
    let admitted = super::active_admission(server.status.as_ref()).is_some();
    (!admitted && !maintenance.allow.contains(owner))
        .then(|| violation(Reason::Maintenance, format!("Flavor {name} is in maintenance: {}", maintenance.message)))
}

/// The API server rejects pods with a runtime class that does not exist. Admitted servers are not affected.
fn missing_runtime_class(
    server: &DevServer,
    name: &FlavorName,
    flavor: &DevServerFlavorSpec,
    runtime_class: Option<&RuntimeClass>,
) -> Option<Violation> {
    let class = flavor.runtime_class.as_ref().filter(|_| runtime_class.is_none())?;
    let message = format!(
        "RuntimeClass {class} of flavor {name} not found. Use another flavor, or ask an administrator to create it."
    );
    super::active_admission(server.status.as_ref()).is_none().then(|| violation(Reason::NotSupported, message))
}

/// Fields of the API that are not implemented are rejected rather than ignored.
fn unsupported(server: &DevServer) -> Option<Violation> {
    let spec = &server.spec;
    let message = if spec.image.as_ref().is_some_and(|image| image.build.is_some()) {
        "image.build is not supported by this cluster. Use image.ref."
    } else {
        return None;
    };
    Some(violation(Reason::NotSupported, message))
}

fn gang_home(server: &DevServer, inputs: &Inputs<'_>) -> Option<Violation> {
    if server.spec.nodes == 1 {
        return None;
    }
    // A disk is mounted on the first node only.
    let disk = home_claim(server, inputs.disk).filter(|_| matches!(server.spec.home, Home::Disk(_)));
    let mut others = inputs.claims.iter().filter(|input| Some(input.name) != disk);
    let single = others.find(|input| input.claim.is_some_and(|claim| !claim.shared))?;
    let message = format!(
        "Claim {} can be mounted on one node only, but the server requires {} nodes. Use a claim with access mode \
         ReadWriteMany, or an ephemeral home.",
        single.name, server.spec.nodes
    );
    Some(violation(Reason::NotSupported, message))
}

fn volumes<'a>(server: &'a DevServer, flavor: &'a DevServerFlavorSpec) -> Vec<Mount<'a>> {
    let own = &server.spec.volumes;
    let added = flavor.volumes.iter().filter(|volume| own.iter().all(|other| other.path != volume.path));
    own.iter()
        .chain(added)
        .map(|volume| Mount { claim: volume.claim.as_str(), path: &volume.path, read_only: volume.read_only })
        .collect()
}

/// Returns the claim of the home. A disk has one after its first use.
pub fn home_claim<'a>(server: &'a DevServer, disk: Option<&'a v1alpha1::Disk>) -> Option<&'a str> {
    match &server.spec.home {
        Home::Claim(claim) => Some(claim.as_str()),
        Home::Disk(_) => disk.and_then(|disk| disk.status.as_ref()?.claim.as_ref()).map(ObjectName::as_str),
        Home::Ephemeral(_) => None,
    }
}

/// Returns the claims a server mounts, including those of its disk and its flavor. The home comes first.
pub fn claims<'a>(
    server: &'a DevServer,
    disk: Option<&'a v1alpha1::Disk>,
    flavor: Option<&'a DevServerFlavorSpec>,
) -> Vec<&'a str> {
    let home = home_claim(server, disk);
    let flavor = flavor.map(|flavor| volumes(server, flavor));
    let own = server.spec.volumes.iter().map(|volume| volume.claim.as_str());
    let mut all: Vec<&str> = home.into_iter().collect();
    match flavor {
        Some(mounts) => all.extend(mounts.iter().map(|mount| mount.claim)),
        None => all.extend(own),
    }
    let mut unique = Vec::new();
    for claim in all {
        if !unique.contains(&claim) {
            unique.push(claim);
        }
    }
    unique
}

/// Returns why the server cannot use the disk of its home yet. A server gets the disk from the disk controller before its
/// pods are created.
fn disk_of_home(server: &DevServer, disk: Option<&v1alpha1::Disk>) -> Result<(), (Reason, String)> {
    let Home::Disk(name) = &server.spec.home else { return Ok(()) };
    let Some(disk) = disk else {
        let message = format!("Disk {name} not found in this namespace. Create it to continue.");
        return Err((Reason::DiskNotFound, message));
    };
    if disk.metadata.deletion_timestamp.is_some() || disk.spec.deleted {
        let message = format!("Disk {name} is deleted. Undelete it, or recreate the server with another disk.");
        return Err((Reason::DiskUnavailable, message));
    }
    let status = disk.status.as_ref();
    match status.and_then(|status| status.holder.as_ref()) {
        Some(holder) if Some(&holder.uid) == server.metadata.uid.as_ref() && holder.releasing_since.is_none() => {}
        Some(holder) if Some(&holder.uid) == server.metadata.uid.as_ref() => {
            let message = format!("Waiting for the restore point of disk {name} after the last stop.");
            return Err((Reason::DiskInUse, message));
        }
        Some(holder) => {
            let message = format!(
                "Disk {name} is in use by server {}. Stop or hibernate that server first, or use another disk.",
                holder.server
            );
            return Err((Reason::DiskInUse, message));
        }
        None => {}
    }
    let ready = status.and_then(|status| condition::find(&status.conditions, Type::Ready));
    if let Some(ready) = ready.filter(|ready| ready.status == Status::False) {
        let is_temporary = ready.reason == Reason::Provisioning;
        let reason = if is_temporary { Reason::DiskPending } else { Reason::DiskUnavailable };
        return Err((reason, format!("Disk {name} is not ready: {}", ready.message)));
    }
    let is_assigned = status.is_some_and(|status| status.holder.is_some() && status.claim.is_some());
    if is_assigned { Ok(()) } else { Err((Reason::DiskPending, format!("Waiting for disk {name}."))) }
}

fn disk(server: &DevServer, inputs: &Inputs<'_>) -> Disk {
    let (home, claims) = (&server.spec.home, &inputs.claims);
    let unready = |reason, message: String| Disk { ready: false, reason, message };
    if let Err((reason, message)) = disk_of_home(server, inputs.disk) {
        return unready(reason, message);
    }
    for input in claims {
        let name = input.name;
        let Some(claim) = input.claim else {
            return unready(
                Reason::DiskNotFound,
                format!("Claim {name} not found in this namespace. Create it to continue."),
            );
        };
        let is_of_home = matches!(home, Home::Disk(_)) && home_claim(server, inputs.disk) == Some(name);
        if claim.disk_uid.is_some() && !is_of_home {
            let disk = claim.disk.as_deref().unwrap_or_default();
            let message = format!(
                "Claim {name} belongs to disk {disk}, which may delete it. Set home.disk to {disk}, or to a clone of a \
                 restore point."
            );
            return unready(Reason::DiskUnavailable, message);
        }
        if claim.is_deleting {
            return unready(
                Reason::DiskUnavailable,
                format!("Claim {name} is being deleted. Recreate the server with another claim."),
            );
        }
        if let Some(user) = input.used_by {
            let message = match user {
                VolumeUser::Server(other) => {
                    format!("Claim {name} is in use by server {other}. Stop or hibernate that server first.")
                }
                VolumeUser::Pod(pod) => {
                    format!("Claim {name} is still mounted by pod {pod}. Waiting for the pod to be deleted.")
                }
            };
            return unready(Reason::DiskInUse, message);
        }
        match claim.phase {
            ClaimPhase::Bound => {}
            ClaimPhase::Pending if input.waits_for_consumer => {}
            ClaimPhase::Pending => {
                return unready(Reason::DiskPending, format!("Waiting for claim {name} to be bound to a volume."));
            }
            ClaimPhase::Lost => {
                let message = format!(
                    "The volume of claim {name} is lost. Restore the volume, or recreate the server with another claim."
                );
                return unready(Reason::DiskUnavailable, message);
            }
        }
    }
    let waiting = claims.iter().any(|input| input.claim.is_some_and(|claim| claim.phase == ClaimPhase::Pending));
    let (reason, message) = match home {
        _ if waiting => (Reason::WaitingForFirstConsumer, "The claim is bound when the server is scheduled."),
        Home::Ephemeral(_) => (Reason::Ephemeral, "Ephemeral home: data is lost when the pod is deleted."),
        Home::Claim(_) | Home::Disk(_) => (Reason::Bound, "The home is available."),
    };
    Disk { ready: true, reason, message: message.into() }
}

#[cfg(test)]
mod tests;
