//! The namespace of a user, with its quota, policies and role bindings.
//!
//! [`reconcile`] compares the desired objects of an existing user with the observed ones. [`cleanup`](fn@cleanup) removes
//! what a deleted user leaves behind. Neither deletes data: a namespace is kept as long as it contains claims.

mod cidr;
mod cleanup;
mod disruption_budget;
mod ensure;
mod limit_range;
mod namespace;
mod network_policy;
mod resource_quota;
mod role_binding;
mod service_account;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use odc_api::label;
use odc_api::name::{TeamName, UserName};
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{self, Condition, Reason, Status, Type};
use odc_api::v1alpha1::{DevServerUser, DevServerUserStatus, Role, Team};

pub use cidr::{Cidr, InvalidCidr};
pub use cleanup::{NamespaceContents, cleanup};

use crate::cluster::ManagedObject;
use crate::manifest::Kind;
use crate::plan::{Event, Requeue, Write};
use ensure::Ensure;
use resource_quota::Counting;

/// The name of the quota, limit range, network policy and disruption budget in a user's namespace. It is fixed, so that
/// the operator's permissions can be restricted to it.
pub const OBJECT_NAME: &str = "odc";

/// The maximum number of teams in the status.
const MAX_TEAMS: usize = 256;

/// Settings of the installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of the control plane.
    pub namespace: String,
    /// The operator's service account.
    pub service_account: String,
    /// Ranges that servers cannot reach, such as nodes, API servers, pods and Services. Cloud metadata services are always
    /// blocked.
    pub blocked_cidrs: Vec<Cidr>,
}

/// What exists in the cluster for a user.
#[derive(Clone, Debug, Default)]
pub struct Observed<'a> {
    /// The namespace of the user, whether or not ODC created it.
    pub namespace: Option<&'a ManagedObject>,
    /// The managed objects in that namespace.
    pub objects: Vec<&'a ManagedObject>,
    /// All teams, or at least those of the user.
    pub teams: Vec<&'a Team>,
    /// The device resources of all flavors.
    pub devices: BTreeSet<String>,
    /// Whether the API server has the kind `VolumeSnapshot`.
    pub has_snapshots: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In the order documented at [`reconcile`].
    pub writes: Vec<Write>,
    /// The status after the writes. `usage` is carried over, because only the scheduler writes it.
    pub status: DevServerUserStatus,
    pub events: Vec<Event>,
    pub requeue: Requeue,
}

/// Returns the writes and the status of a user.
///
/// The order of writes:
/// 1. The namespace. It is created and not applied, so that an existing namespace is never taken over.
/// 2. The operator's `RoleBinding`, which gives all its permissions in the namespace. Nothing else is written until it is
///    observed: the API server authorizes with a delay and would reject the other writes.
/// 3. Limit range, quota, network policy and disruption budget. The limit range comes before the quota, which would reject
///    pods without default requests.
/// 4. The user's service account and role binding last, so that the user never has access to an unrestricted namespace.
pub fn reconcile(user: &DevServerUser, observed: &Observed<'_>, settings: &Settings, now: Timestamp) -> Plan {
    let before = user.status.clone().unwrap_or_default();
    if user.metadata.deletion_timestamp.is_some() {
        // Its objects are removed by `cleanup` once it is deleted.
        return Plan { writes: vec![], status: before, events: vec![], requeue: Requeue::AwaitChange };
    }
    let name = user.metadata.name.clone().unwrap_or_default();
    let (name, readiness) = match name.parse::<UserName>() {
        Ok(name) => (Some(name.clone()), ensure_namespace(user, &name, observed, settings, now)),
        Err(error) => (None, Readiness::not_ready(Reason::Invalid, format!("Invalid user name: {error}."))),
    };

    let namespace = name.as_ref().map(odc_api::namespace::for_user);
    let ready = condition::find(&before.conditions, Type::Ready);
    let events = readiness.events(ready, namespace.as_deref().unwrap_or_default());
    let mut status = DevServerUserStatus {
        observed_generation: user.metadata.generation,
        conditions: before.conditions,
        namespace: namespace.filter(|_| readiness.reason != Reason::NamespaceConflict).map(Into::into),
        teams: name.map(|name| teams(&name, &observed.teams)).unwrap_or_default(),
        usage: before.usage,
    };
    let ready = condition::new(
        Type::Ready,
        if readiness.ready { Status::True } else { Status::False },
        readiness.reason,
        &readiness.message,
        user.metadata.generation,
        to_api_precision(now),
    );
    condition::set(&mut status.conditions, ready);
    Plan { writes: readiness.writes, status, events, requeue: readiness.requeue }
}

struct Readiness {
    writes: Vec<Write>,
    ready: bool,
    reason: Reason,
    message: String,
    /// All objects it waits for are watched.
    requeue: Requeue,
}

fn ensure_namespace(
    user: &DevServerUser,
    name: &UserName,
    observed: &Observed<'_>,
    settings: &Settings,
    now: Timestamp,
) -> Readiness {
    let namespace = odc_api::namespace::for_user(name);
    let find = |kind: Kind, name: &str| {
        let mut objects = observed.objects.iter().copied();
        objects
            .find(|object| object.kind == kind && object.name == name && object.namespace.as_ref() == Some(&namespace))
    };
    let mut ensure = Ensure::default();

    let desired = namespace::object(name);
    match observed.namespace {
        Some(existing) if existing.label(label::OWNER) != Some(name.as_str()) => {
            return Readiness::not_ready(
                Reason::NamespaceConflict,
                format!(
                    "Namespace {namespace} exists and is not owned by this user. Delete it, or assign it with: \
                     kubectl label --overwrite namespace {namespace} {}={name}.",
                    label::OWNER
                ),
            );
        }
        Some(existing) if existing.is_deleting => {
            return Readiness::not_ready(
                Reason::Incomplete,
                format!("Namespace {namespace} is being deleted. It will be recreated afterwards."),
            );
        }
        Some(existing) => ensure.apply_existing(existing, desired),
        None => ensure.create(desired),
    }

    let mut operator = Ensure::default();
    operator.apply(find(Kind::RoleBinding, role_binding::OPERATOR), role_binding::operator(name, settings));
    let authorized = observed.namespace.is_some() && operator.is_done();
    ensure.append(operator);
    if !authorized {
        return Readiness {
            writes: ensure.writes,
            ..Readiness::not_ready(Reason::Incomplete, format!("Namespace {namespace} is being set up."))
        };
    }

    ensure.apply(find(Kind::LimitRange, OBJECT_NAME), limit_range::object(name));
    let quota = find(Kind::ResourceQuota, OBJECT_NAME);
    let resources = resource_quota::Resources { devices: &observed.devices, snapshots: observed.has_snapshots };
    let counting = resource_quota::counting(quota, unready_since(user), now);
    match counting {
        // It is created again when its deletion is observed.
        Counting::Overdue => ensure.delete(quota),
        Counting::Complete | Counting::Waiting(_) => {
            ensure.apply(quota, resource_quota::object(name, &user.spec.quota, resources));
        }
    }
    ensure.apply(find(Kind::NetworkPolicy, OBJECT_NAME), network_policy::object(name, settings));
    ensure.apply(find(Kind::PodDisruptionBudget, OBJECT_NAME), disruption_budget::object(name));

    let (account, role_binding) =
        (find(Kind::ServiceAccount, service_account::NAME), find(Kind::RoleBinding, role_binding::USER));
    match user.spec.role {
        Role::User | Role::Admin => {
            ensure.apply(account, service_account::object(name));
            ensure.apply(role_binding, role_binding::user(name));
        }
        // An auditor has no servers, so needs no access to the namespace.
        Role::Auditor => {
            ensure.delete(role_binding);
            ensure.delete(account);
        }
    }

    let waiting = |message: String| Readiness::not_ready(Reason::Incomplete, message);
    let readiness = match (ensure.waits_for, counting) {
        (Some(terminating), _) => waiting(format!(
            "{terminating} in namespace {namespace} is being deleted. It will be recreated afterwards."
        )),
        (None, Counting::Waiting(rest)) => Readiness {
            requeue: Requeue::After(rest),
            ..waiting(format!("Waiting until the ResourceQuota of namespace {namespace} is counted."))
        },
        (None, Counting::Overdue) => {
            waiting(format!("The ResourceQuota of namespace {namespace} is not counted and is recreated."))
        }
        (None, Counting::Complete) => Readiness {
            ready: true,
            reason: Reason::Reconciled,
            message: format!("Namespace {namespace} is ready."),
            ..waiting(String::new())
        },
    };
    Readiness { writes: ensure.writes, ..readiness }
}

/// Returns when the user became unready, if it is.
fn unready_since(user: &DevServerUser) -> Option<Timestamp> {
    let ready = condition::find(&user.status.as_ref()?.conditions, Type::Ready)?;
    (ready.status != "True").then_some(ready.last_transition_time.0)
}

impl Readiness {
    fn not_ready(reason: Reason, message: String) -> Self {
        Self { writes: vec![], ready: false, reason, message, requeue: Requeue::AwaitChange }
    }

    /// Returns events for: namespace ready, objects repaired, namespace owned by another user.
    fn events(&self, before: Option<&Condition>, namespace: &str) -> Vec<Event> {
        let was = |reason: Reason| before.is_some_and(|before| before.reason == reason.as_str());
        let event = |warning, action, note| vec![Event { warning, reason: self.reason, action, note }];
        match self.reason {
            Reason::Reconciled if !was(Reason::Reconciled) => {
                event(false, "Prepare", format!("Prepared namespace {namespace}"))
            }
            Reason::Reconciled if !self.writes.is_empty() => {
                let writes: Vec<String> = self.writes.iter().map(ensure::describe_write).collect();
                event(false, "Repair", format!("{} in namespace {namespace}", capitalize(&writes.join(", "))))
            }
            Reason::NamespaceConflict if !was(Reason::NamespaceConflict) => {
                event(true, "Prepare", format!("Namespace {namespace} is not owned by this user"))
            }
            _ => vec![],
        }
    }
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// Returns the teams of the user, sorted, at most [`MAX_TEAMS`] so that the status is valid.
fn teams(user: &UserName, teams: &[&Team]) -> Vec<TeamName> {
    let member = teams.iter().filter(|team| team.spec.members.contains(user));
    let names: BTreeSet<TeamName> = member.filter_map(|team| team.metadata.name.as_deref()?.parse().ok()).collect();
    names.into_iter().take(MAX_TEAMS).collect()
}

/// Labels of all objects of a user. They have no version, which would cause a write to every namespace at each upgrade.
fn labels(user: &UserName) -> BTreeMap<String, String> {
    let pairs = [
        (label::OWNER, user.as_str()),
        (label::NAME, "odc"),
        (label::INSTANCE, user.as_str()),
        (label::COMPONENT, "user"),
        (label::PART_OF, "odc"),
        (label::MANAGED_BY, label::OPERATOR),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Metadata of an object in the user's namespace.
fn metadata(user: &UserName, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(odc_api::namespace::for_user(user)),
        labels: Some(labels(user)),
        ..ObjectMeta::default()
    }
}
