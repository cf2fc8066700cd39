//! Whether a request can be granted at all, by facts no rule of its kind can see.
//!
//! The API server has already refused what is wrong in itself. Here the request meets the flavor, the user, the team
//! and the claims. Violations are no errors: they become the condition Accepted, and nothing is retried until
//! something changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use odc_api::name::{FlavorName, ServerName, UserName};
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerFlavorSpec, DevServerUser, Home, Priority, Team};
use odc_api::{mount_path::MountPath, namespace};

use crate::holder::Holder;
use crate::seen::{Claim, ClaimPhase, Runtime};

/// What a request is checked against.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The owner, by the namespace.
    pub user: Option<&'a DevServerUser>,
    /// The team the request names.
    pub team: Option<&'a Team>,
    pub flavors: &'a BTreeMap<FlavorName, Arc<DevServerFlavor>>,
    /// The runtime classes there are.
    pub runtimes: &'a [Arc<Runtime>],
    /// The claims it mounts, its home first.
    pub claims: Vec<ClaimFact<'a>>,
    /// Users it lets in, as far as they exist.
    pub guests: Vec<&'a DevServerUser>,
    /// What a server runs that names no image.
    pub default_image: &'a str,
}

/// A claim that a server mounts.
#[derive(Clone, Debug)]
pub struct ClaimFact<'a> {
    pub name: &'a str,
    pub claim: Option<&'a Claim>,
    /// It will be bound when its first pod is placed.
    pub waits_for_consumer: bool,
    /// Who has it, or comes before us, if only one can use it.
    pub held_by: Option<&'a Holder>,
}

/// A request that can be granted.
#[derive(Clone, Debug)]
pub struct Valid<'a> {
    pub server: &'a DevServer,
    pub name: ServerName,
    pub namespace: &'a str,
    pub uid: &'a str,
    pub owner: UserName,
    pub user: &'a DevServerUser,
    /// Other users who may come in.
    pub guests: Vec<&'a DevServerUser>,
    pub flavor_name: FlavorName,
    pub flavor: &'a DevServerFlavorSpec,
    /// The runtime class that the flavor names.
    pub runtime: Option<&'a Runtime>,
    /// Devices on each node.
    pub count: u32,
    pub nodes: u32,
    pub image: &'a str,
    pub disk: Disk,
    /// What to mount besides the home, the server's own before the flavor's.
    pub volumes: Vec<Mount<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    pub claim: &'a str,
    pub path: &'a MountPath,
    pub read_only: bool,
}

/// How the home and the other claims are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub ready: bool,
    pub reason: Reason,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub reason: Reason,
    /// What is wrong and what to do about it.
    pub message: String,
}

fn violation(reason: Reason, message: impl Into<String>) -> Violation {
    Violation { reason, message: message.into() }
}

/// Every violation, or the request with all its open ends tied.
pub fn validate<'a>(server: &'a DevServer, facts: &Facts<'a>) -> Result<Valid<'a>, Vec<Violation>> {
    let spec = &server.spec;
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let name = server.metadata.name.as_deref().unwrap_or_default().parse::<ServerName>();
    let name = name.map_err(|error| vec![violation(Reason::Invalid, format!("{error}."))])?;
    let no_owner = || {
        let message = format!("Namespace {namespace} belongs to no user of ODC: create the server in dev-<user>.");
        vec![violation(Reason::NoOwner, message)]
    };
    let owner = namespace::owner(namespace).ok_or_else(no_owner)?;
    let user = facts.user.ok_or_else(no_owner)?;

    let (flavor_name, flavor) = flavor(server, facts).map_err(|violation| vec![violation])?;
    let (count, bad_count) = match count(spec.count, &flavor_name, flavor) {
        Ok(count) => (count, None),
        Err(violation) => (0, Some(violation)),
    };
    let volumes = volumes(server, flavor);
    // Who has its devices keeps them, whatever becomes of its owner's rights: what it holds must go on being counted.
    let granted = super::granted(server.status.as_ref()).is_some();
    let membership = team(server, &owner, facts.team).filter(|_| !granted);
    let urgency = priority(server, user, facts.team).filter(|_| !granted);
    let runtime = flavor.runtime_class.as_ref().and_then(|named| {
        let found = facts.runtimes.iter().find(|class| class.name == named.as_str());
        found.map(|class| &**class)
    });
    let violations: Vec<Violation> = [
        bad_count,
        membership,
        urgency,
        maintenance(server, &owner, &flavor_name, flavor),
        no_runtime(server, &flavor_name, flavor, runtime),
        not_built_yet(server),
        gang_home(server, facts),
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
        guests: facts.guests.clone(),
        flavor_name,
        flavor,
        runtime,
        count,
        nodes: spec.nodes,
        image: image.or(preferred).unwrap_or(facts.default_image),
        disk: disk(&spec.home, &facts.claims),
        volumes,
    })
}

/// The flavor it has already, the one it names, its owner's, or the cluster's.
pub fn flavor_name(
    server: &DevServer,
    user: Option<&DevServerUser>,
    flavors: &BTreeMap<FlavorName, Arc<DevServerFlavor>>,
) -> Result<FlavorName, Violation> {
    let had = server.status.as_ref().and_then(|status| status.flavor.clone());
    let preferred = || user?.spec.defaults.as_ref()?.flavor.clone();
    match had.or_else(|| server.spec.flavor.clone()).or_else(preferred) {
        Some(name) => Ok(name),
        None => default_flavor(flavors),
    }
}

fn flavor<'a>(server: &DevServer, facts: &Facts<'a>) -> Result<(FlavorName, &'a DevServerFlavorSpec), Violation> {
    let name = flavor_name(server, facts.user, facts.flavors)?;
    let flavor = facts.flavors.get(&name).ok_or_else(|| {
        let some: Vec<&str> = facts.flavors.keys().take(5).map(FlavorName::as_str).collect();
        let known =
            if some.is_empty() { "there is none yet".to_owned() } else { format!("there is {}", some.join(", ")) };
        violation(Reason::UnknownFlavor, format!("Flavor {name} does not exist; {known}."))
    })?;
    Ok((name, &flavor.spec))
}

fn default_flavor(flavors: &BTreeMap<FlavorName, Arc<DevServerFlavor>>) -> Result<FlavorName, Violation> {
    let defaults: Vec<&FlavorName> =
        flavors.iter().filter(|(_, flavor)| flavor.spec.default).map(|(name, _)| name).collect();
    match defaults.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(violation(Reason::NoDefaultFlavor, "No flavor is the default: name one in spec.flavor.")),
        several => {
            let names: Vec<&str> = several.iter().take(5).map(|name| name.as_str()).collect();
            let message = format!(
                "Flavors {} all claim to be the default: name one in spec.flavor, or ask an administrator to leave one.",
                names.join(", ")
            );
            Err(violation(Reason::SeveralDefaultFlavors, message))
        }
    }
}

fn count(asked: Option<u32>, name: &FlavorName, flavor: &DevServerFlavorSpec) -> Result<u32, Violation> {
    let refuse = |message: String| Err(violation(Reason::CountNotAllowed, message));
    match (&flavor.device, asked) {
        (None, None | Some(0)) => Ok(0),
        (None, Some(_)) => refuse(format!("Flavor {name} has no devices: leave spec.count out.")),
        (Some(device), asked) => {
            let count = asked.unwrap_or(1);
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
            refuse(format!("Flavor {name} offers {offer} of {} on a node, not {count}.", device.resource))
        }
    }
}

fn team(server: &DevServer, owner: &UserName, team: Option<&Team>) -> Option<Violation> {
    let name = server.spec.team.as_ref()?;
    let member = team.is_some_and(|team| team.spec.members.contains(owner));
    (!member).then(|| {
        // Whether the team exists is its members' business.
        let message = format!("{owner} is no member of a team {name}: leave spec.team out, or ask to be added.");
        violation(Reason::NotATeamMember, message)
    })
}

/// The most urgent a request may be. Without a team nobody may be more urgent than others, unless they are allowed to.
pub fn ceiling(user: Option<&DevServerUser>, team: Option<&Team>) -> Priority {
    let own = user.and_then(|user| user.spec.priority_ceiling);
    match team.map(|team| team.spec.priority.ceiling) {
        Some(teams) => own.map_or(teams, |own| own.min(teams)),
        None => own.unwrap_or(Priority::Normal),
    }
}

fn priority(server: &DevServer, user: &DevServerUser, team: Option<&Team>) -> Option<Violation> {
    let asked = server.spec.scheduling.priority?;
    let ceiling = ceiling(Some(user), team);
    (asked > ceiling).then(|| {
        violation(Reason::PriorityTooHigh, format!("Priority {asked:?} is above what is allowed here, {ceiling:?}."))
    })
}

/// Maintenance keeps new servers away; those that have their devices keep them.
fn maintenance(
    server: &DevServer,
    owner: &UserName,
    name: &FlavorName,
    flavor: &DevServerFlavorSpec,
) -> Option<Violation> {
    let maintenance = flavor.maintenance.as_ref()?;
    let granted = super::granted(server.status.as_ref()).is_some();
    (!granted && !maintenance.allow.contains(owner))
        .then(|| violation(Reason::Maintenance, format!("Flavor {name} is in maintenance: {}", maintenance.message)))
}

/// The API server refuses every pod of a runtime class that does not exist. Servers that have theirs keep them.
fn no_runtime(
    server: &DevServer,
    name: &FlavorName,
    flavor: &DevServerFlavorSpec,
    runtime: Option<&Runtime>,
) -> Option<Violation> {
    let class = flavor.runtime_class.as_ref().filter(|_| runtime.is_none())?;
    let message = format!(
        "Flavor {name} runs servers in the RuntimeClass {class}, which does not exist: take another flavor, or ask an \
         administrator to create it."
    );
    super::granted(server.status.as_ref()).is_none().then(|| violation(Reason::NotSupported, message))
}

/// Parts of the request that this version does not carry out. Better refused than ignored.
fn not_built_yet(server: &DevServer) -> Option<Violation> {
    let spec = &server.spec;
    let message = if matches!(spec.home, Home::Disk(_)) {
        "This cluster has no disks of ODC: name an existing claim in home.claim, or a size in home.ephemeral."
    } else if spec.image.as_ref().is_some_and(|image| image.build.is_some()) {
        "This cluster builds no images: name one in image.ref."
    } else {
        return None;
    };
    Some(violation(Reason::NotSupported, message))
}

fn gang_home(server: &DevServer, facts: &Facts<'_>) -> Option<Violation> {
    if server.spec.nodes == 1 {
        return None;
    }
    let single = facts.claims.iter().find(|fact| fact.claim.is_some_and(|claim| !claim.shared))?;
    let message = format!(
        "Claim {} can be mounted on one node only, and a gang has {}: use a claim with the access mode ReadWriteMany, \
         or an ephemeral home.",
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

/// The claims a server mounts, its home first. The flavor's own count too.
pub fn claims<'a>(server: &'a DevServer, flavor: Option<&'a DevServerFlavorSpec>) -> Vec<&'a str> {
    let home = match &server.spec.home {
        Home::Claim(claim) => Some(claim.as_str()),
        Home::Disk(_) | Home::Ephemeral(_) => None,
    };
    let flavor = flavor.map(|flavor| volumes(server, flavor));
    let own = server.spec.volumes.iter().map(|volume| volume.claim.as_str());
    let mut all: Vec<&str> = home.into_iter().collect();
    match flavor {
        Some(mounts) => all.extend(mounts.iter().map(|mount| mount.claim)),
        None => all.extend(own),
    }
    let mut known = Vec::new();
    for claim in all {
        if !known.contains(&claim) {
            known.push(claim);
        }
    }
    known
}

fn disk(home: &Home, claims: &[ClaimFact<'_>]) -> Disk {
    let not = |reason, message: String| Disk { ready: false, reason, message };
    for fact in claims {
        let name = fact.name;
        let Some(claim) = fact.claim else {
            return not(
                Reason::DiskNotFound,
                format!("Claim {name} does not exist in this namespace: create it, and the server goes on."),
            );
        };
        if claim.deleting {
            return not(Reason::DiskUnavailable, format!("Claim {name} is being deleted."));
        }
        if let Some(holder) = fact.held_by {
            let message = match holder {
                Holder::Server(other) => {
                    format!("Claim {name} is used by server {other}: end or hibernate that one first.")
                }
                Holder::Pod(pod) => {
                    format!("Claim {name} is still mounted by pod {pod}: the server goes on when that pod is gone.")
                }
            };
            return not(Reason::DiskInUse, message);
        }
        match claim.phase {
            ClaimPhase::Bound => {}
            ClaimPhase::Pending if fact.waits_for_consumer => {}
            ClaimPhase::Pending => {
                return not(Reason::DiskPending, format!("Claim {name} is not bound to a volume yet."));
            }
            ClaimPhase::Lost => {
                return not(Reason::DiskUnavailable, format!("The volume of claim {name} is lost."));
            }
        }
    }
    let waiting = claims.iter().any(|fact| fact.claim.is_some_and(|claim| claim.phase == ClaimPhase::Pending));
    let (reason, message) = match home {
        _ if waiting => (Reason::WaitingForFirstConsumer, "Its claim is bound when the server is placed."),
        Home::Ephemeral(_) => (Reason::Ephemeral, "The home is gone with its pod."),
        Home::Claim(_) | Home::Disk(_) => (Reason::Bound, "The home is there."),
    };
    Disk { ready: true, reason, message: message.into() }
}

#[cfg(test)]
mod tests;
