//! Writes that bring objects to their desired state.

use serde_json::Value;

use crate::cluster::{ManagedObject, is_empty};
use crate::manifest::{Kind, Object};
use crate::plan::{Target, Write};

/// Collects the writes for a list of objects, in order.
#[derive(Default)]
pub(super) struct Ensure {
    pub(super) writes: Vec<Write>,
    /// An object that is being deleted and has to be recreated afterwards.
    pub(super) waits_for: Option<String>,
}

impl Ensure {
    /// Creates an object that must not exist.
    pub(super) fn create(&mut self, desired: Object) {
        self.writes.push(Write::Create(desired));
    }

    /// Creates, updates or recreates an object.
    pub(super) fn apply(&mut self, existing: Option<&ManagedObject>, desired: Object) {
        match existing {
            Some(object) if object.is_deleting => {
                self.waits_for.get_or_insert_with(|| format!("{} {}", object.kind.as_str(), object.name));
            }
            Some(object) if is_desired(object, &desired) => {}
            Some(object) if must_recreate(object, &desired) => {
                self.writes.push(Write::Delete(target(object)));
                self.writes.push(Write::Apply(desired));
            }
            Some(_) | None => self.writes.push(Write::Apply(desired)),
        }
    }

    /// Updates this object, but not a new one of the same name: the API server compares the uid.
    pub(super) fn apply_existing(&mut self, existing: &ManagedObject, mut desired: Object) {
        if !is_desired(existing, &desired) {
            desired.body["metadata"]["uid"] = existing.uid.as_str().into();
            self.writes.push(Write::Apply(desired));
        }
    }

    pub(super) fn delete(&mut self, existing: Option<&ManagedObject>) {
        let existing = existing.filter(|object| !object.is_deleting);
        self.writes.extend(existing.map(|object| Write::Delete(target(object))));
    }

    pub(super) fn append(&mut self, other: Self) {
        self.writes.extend(other.writes);
        self.waits_for = self.waits_for.take().or(other.waits_for);
    }

    pub(super) fn is_done(&self) -> bool {
        self.writes.is_empty() && self.waits_for.is_none()
    }
}

pub(super) fn target(object: &ManagedObject) -> Target {
    Target::new(object.kind, object.namespace.as_deref(), &object.name, &object.uid)
}

/// Describes a completed write, for events.
pub(super) fn describe_write(write: &Write) -> String {
    let (verb, kind, name) = match write {
        Write::Apply(object) => ("applied", object.kind, &object.name),
        Write::Create(object) | Write::CreateWithKeys { secret: object, .. } => ("created", object.kind, &object.name),
        Write::Delete(target) => ("deleted", target.kind, &target.name),
        Write::Adopt { target, .. } => ("adopted", target.kind, &target.name),
    };
    format!("{verb} {} {name}", kind.as_str())
}

/// Reports whether the object has all desired fields, and no others where they would change its meaning.
fn is_desired(object: &ManagedObject, desired: &Object) -> bool {
    object.contains(desired) && exact_fields(object.kind).iter().all(|path| is_field_equal(object, desired, path))
}

/// Returns the paths that must match exactly, because an additional field changes the meaning: another selector can open a
/// network policy, another limit can reject pods. Other fields may be defaulted by newer versions of Kubernetes.
fn exact_fields(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::RoleBinding => &["/subjects", "/roleRef"],
        Kind::ResourceQuota => &["/spec/hard", "/spec/scopes", "/spec/scopeSelector"],
        Kind::LimitRange => &["/spec/limits"],
        Kind::NetworkPolicy => &["/spec/podSelector", "/spec/ingress", "/spec/egress"],
        Kind::PodDisruptionBudget => &["/spec/selector", "/spec/maxUnavailable"],
        Kind::Namespace
        | Kind::ServiceAccount
        | Kind::Secret
        | Kind::ConfigMap
        | Kind::Service
        | Kind::Pod
        | Kind::PersistentVolumeClaim
        | Kind::PersistentVolume
        | Kind::VolumeSnapshot
        | Kind::VolumeSnapshotContent
        | Kind::DevServer
        | Kind::Disk
        | Kind::DiskOperation => &[],
    }
}

/// Reports whether the object must be recreated because apply cannot correct it: the role of a binding is immutable, and
/// fields of other managers are kept, such as additional limits of a quota or `maxUnavailable` of a budget, which excludes
/// `minAvailable`. Lists and selectors are replaced as a whole.
fn must_recreate(object: &ManagedObject, desired: &Object) -> bool {
    let differs = |path: &str| !is_field_equal(object, desired, path);
    match object.kind {
        Kind::RoleBinding => differs("/roleRef"),
        Kind::ResourceQuota => {
            let limits = |body: &Value| body.pointer("/spec/hard").and_then(Value::as_object).cloned();
            let (stored, desired) =
                (limits(&object.body).unwrap_or_default(), limits(&desired.body).unwrap_or_default());
            stored.keys().any(|limit| !desired.contains_key(limit))
                || differs("/spec/scopes")
                || differs("/spec/scopeSelector")
        }
        Kind::PodDisruptionBudget => differs("/spec/maxUnavailable"),
        _ => false,
    }
}

/// Treats an absent field and an empty map or list as equal.
fn is_field_equal(object: &ManagedObject, desired: &Object, path: &str) -> bool {
    let is_empty = |value: Option<&Value>| value.is_none_or(is_empty);
    let (stored, desired) = (object.body.pointer(path), desired.body.pointer(path));
    stored == desired || is_empty(stored) && is_empty(desired)
}
