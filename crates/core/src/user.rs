//! A person's place in the cluster: a namespace, the walls around it, and the rights in it.
//!
//! `decide` compares what should be there with what is, for a user that exists; [`abandoned`] clears up after one that
//! is gone. Neither ever deletes data: claims outlive everything here, and a namespace outlives its claims.

mod abandoned;
mod account;
mod binding;
mod cidr;
mod disruption;
mod limits;
mod namespace;
mod network;
mod quota;
#[cfg(test)]
mod tests;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use odc_api::label;
use odc_api::name::{TeamName, UserName};
use odc_api::time::stored;
use odc_api::v1alpha1::condition::{self, Condition, Reason, Status, Type};
use odc_api::v1alpha1::{DevServerUser, DevServerUserStatus, Role, Team};

pub use abandoned::{Holds, abandoned};
pub use cidr::{Cidr, NotACidr};

use crate::object::Kind;
use crate::plan::{Again, Event, Write};
use crate::seen::Child;
use upkeep::Upkeep;

/// The name of every wall (quota, limits, network, disruption) in a user's namespace. Fixed, so that the operator's
/// rights can be limited to it.
pub const WALL: &str = "odc";

/// The most teams a status holds.
const MOST_TEAMS: usize = 256;

/// Facts about the installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The control plane's namespace.
    pub namespace: String,
    /// The operator's service account in it.
    pub account: String,
    /// Ranges no server may reach: the cluster's nodes, API servers, pods and Services. The metadata services of clouds
    /// are closed anyway.
    pub closed: Vec<Cidr>,
}

/// What is there.
#[derive(Clone, Debug, Default)]
pub struct Seen<'a> {
    /// The namespace of the user's name, whoever made it.
    pub namespace: Option<&'a Child>,
    /// Objects in that namespace, of all kinds decided here.
    pub children: Vec<&'a Child>,
    /// All teams, or at least those with the user as a member.
    pub teams: Vec<&'a Team>,
    /// The device resources of all flavors.
    pub devices: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In order; see [`decide`].
    pub writes: Vec<Write>,
    /// As it is once the writes are done. `usage` is only carried along: it is the scheduler's to write.
    pub status: DevServerUserStatus,
    pub events: Vec<Event>,
    pub again: Again,
}

/// What to write for a user, and what to tell.
///
/// The order of writes, and why:
/// 1. The namespace. It is created, never applied over one that somebody else made a moment ago.
/// 2. The operator's own `RoleBinding`, because all its rights inside come from it. Nothing else is written until that is
///    seen to be there: the API server learns of new rights a moment after it stored them, and would refuse the rest.
/// 3. The walls: defaults before the quota that would refuse pods without them.
/// 4. The user's account and rights last, so that nobody is ever let into a namespace without walls.
pub fn decide(user: &DevServerUser, seen: &Seen<'_>, settings: &Settings, now: Timestamp) -> Plan {
    let before = user.status.clone().unwrap_or_default();
    if user.metadata.deletion_timestamp.is_some() {
        // On its way out. What it had goes when it is gone.
        return Plan { writes: vec![], status: before, events: vec![], again: Again::OnChange };
    }
    let written = user.metadata.name.clone().unwrap_or_default();
    let (name, outcome) = match written.parse::<UserName>() {
        Ok(name) => (Some(name.clone()), towards(user, &name, seen, settings)),
        Err(error) => (None, Outcome::not_ready(Reason::Invalid, format!("No namespace can have this name: {error}."))),
    };

    let place = name.as_ref().map(odc_api::namespace::of);
    let events = outcome.events(condition::find(&before.conditions, Type::Ready), place.as_deref().unwrap_or_default());
    let mut status = DevServerUserStatus {
        observed_generation: user.metadata.generation,
        conditions: before.conditions,
        namespace: place.filter(|_| outcome.reason != Reason::NamespaceTaken).map(Into::into),
        teams: name.map(|name| teams(&name, &seen.teams)).unwrap_or_default(),
        usage: before.usage,
    };
    let ready = condition::new(
        Type::Ready,
        if outcome.ready { Status::True } else { Status::False },
        outcome.reason,
        &outcome.message,
        user.metadata.generation,
        stored(now),
    );
    condition::set(&mut status.conditions, ready);
    // Whatever is waited for is watched.
    Plan { writes: outcome.writes, status, events, again: Again::OnChange }
}

/// What is done, and how things are afterwards.
struct Outcome {
    writes: Vec<Write>,
    ready: bool,
    reason: Reason,
    message: String,
}

fn towards(user: &DevServerUser, name: &UserName, seen: &Seen<'_>, settings: &Settings) -> Outcome {
    let place = odc_api::namespace::of(name);
    let child = |kind: Kind, name: &str| {
        seen.children
            .iter()
            .find(|child| child.kind == kind && child.name == name && child.namespace.as_ref() == Some(&place))
            .copied()
    };
    let mut work = Upkeep::default();

    let wanted = namespace::object(name);
    match seen.namespace {
        Some(there) if there.label(label::OWNER) != Some(name.as_str()) => {
            return Outcome::not_ready(
                Reason::NamespaceTaken,
                format!(
                    "Namespace {place} was not made for this user: delete it, or hand it over with \
                     kubectl label --overwrite namespace {place} {}={name}.",
                    label::OWNER
                ),
            );
        }
        Some(there) if there.deleting => {
            return Outcome::not_ready(
                Reason::Incomplete,
                format!("Namespace {place} is being deleted; a new one follows when it is gone."),
            );
        }
        Some(there) => work.keep_exactly(there, wanted),
        None => work.create(wanted),
    }

    let mut own = Upkeep::default();
    own.keep(child(Kind::RoleBinding, binding::OPERATOR), binding::operator(name, settings));
    let admitted = seen.namespace.is_some() && own.is_idle();
    work.append(own);
    if !admitted {
        return Outcome {
            writes: work.writes,
            ..Outcome::not_ready(Reason::Incomplete, format!("Namespace {place} is being set up."))
        };
    }

    work.keep(child(Kind::LimitRange, WALL), limits::object(name));
    match quota::object(name, &user.spec.quota, &seen.devices) {
        Some(quota) => work.keep(child(Kind::ResourceQuota, WALL), quota),
        None => work.remove(child(Kind::ResourceQuota, WALL)),
    }
    work.keep(child(Kind::NetworkPolicy, WALL), network::object(name, settings));
    work.keep(child(Kind::PodDisruptionBudget, WALL), disruption::object(name));

    let (account, rights) = (child(Kind::ServiceAccount, account::NAME), child(Kind::RoleBinding, binding::USER));
    match user.spec.role {
        Role::User | Role::Admin => {
            work.keep(account, account::object(name));
            work.keep(rights, binding::user(name));
        }
        // They read everything and change nothing, also in their own namespace.
        Role::Auditor => {
            work.remove(rights);
            work.remove(account);
        }
    }

    match work.waits_for {
        Some(leaving) => Outcome {
            writes: work.writes,
            ..Outcome::not_ready(
                Reason::Incomplete,
                format!("{leaving} in {place} is being deleted; a new one follows when it is gone."),
            )
        },
        None => Outcome {
            writes: work.writes,
            ready: true,
            reason: Reason::Reconciled,
            message: format!("Namespace {place} is ready."),
        },
    }
}

impl Outcome {
    fn not_ready(reason: Reason, message: String) -> Self {
        Self { writes: vec![], ready: false, reason, message }
    }

    /// What is worth telling once: that a place is ready, that it was put right, that it is somebody else's.
    fn events(&self, before: Option<&Condition>, place: &str) -> Vec<Event> {
        let was = |reason: Reason| before.is_some_and(|before| before.reason == reason.as_str());
        let event = |serious, action, note| vec![Event { serious, reason: self.reason, action, note }];
        match self.reason {
            Reason::Reconciled if !was(Reason::Reconciled) => {
                event(false, "Prepare", format!("Prepared namespace {place}"))
            }
            Reason::Reconciled if !self.writes.is_empty() => {
                let what: Vec<String> = self.writes.iter().map(upkeep::described).collect();
                event(false, "Repair", format!("{} in namespace {place}", what.join(", ")))
            }
            Reason::NamespaceTaken if !was(Reason::NamespaceTaken) => {
                event(true, "Prepare", format!("Found namespace {place}, which is not this user's, and left it alone"))
            }
            _ => vec![],
        }
    }
}

/// The teams that name the user, sorted. More than fit are cut: a status that is refused helps nobody.
fn teams(user: &UserName, teams: &[&Team]) -> Vec<TeamName> {
    let member = teams.iter().filter(|team| team.spec.members.contains(user));
    let names: BTreeSet<TeamName> = member.filter_map(|team| team.metadata.name.as_deref()?.parse().ok()).collect();
    names.into_iter().take(MOST_TEAMS).collect()
}

/// On everything made for a user. No version among them: an upgrade would rewrite every namespace to say so.
fn labels(user: &UserName) -> BTreeMap<String, String> {
    let pairs = [
        (label::OWNER, user.as_str()),
        (label::NAME, "odc"),
        (label::INSTANCE, user.as_str()),
        (label::COMPONENT, "user"),
        (label::PART_OF, "odc"),
        (label::MANAGED_BY, "odc-operator"),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Of an object in the user's namespace.
fn metadata(user: &UserName, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(odc_api::namespace::of(user)),
        labels: Some(labels(user)),
        ..ObjectMeta::default()
    }
}
