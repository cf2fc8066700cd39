//! Keeping objects as they should be: which writes bring one there.

use serde_json::Value;

use crate::object::{Kind, Object};
use crate::plan::{Target, Write};
use crate::seen::Child;

/// The work on some objects, in order.
#[derive(Default)]
pub(super) struct Upkeep {
    pub(super) writes: Vec<Write>,
    /// An object that is being deleted and wanted again afterwards. Writing to it now would be lost.
    pub(super) waits_for: Option<String>,
}

impl Upkeep {
    /// An object nobody may have made before us.
    pub(super) fn create(&mut self, wanted: Object) {
        self.writes.push(Write::Create(wanted));
    }

    /// An object of a name that is ours.
    pub(super) fn keep(&mut self, seen: Option<&Child>, wanted: Object) {
        match seen {
            Some(there) if there.deleting => {
                self.waits_for.get_or_insert_with(|| format!("{} {}", there.kind.as_str(), there.name));
            }
            Some(there) if is(there, &wanted) => {}
            Some(there) if is_stuck(there, &wanted) => {
                self.writes.push(Write::Delete(target(there)));
                self.writes.push(Write::Apply(wanted));
            }
            Some(_) | None => self.writes.push(Write::Apply(wanted)),
        }
    }

    /// This very object, and never one that took its name since: the API server compares the uid.
    pub(super) fn keep_exactly(&mut self, there: &Child, mut wanted: Object) {
        if !is(there, &wanted) {
            wanted.body["metadata"]["uid"] = there.uid.as_str().into();
            self.writes.push(Write::Apply(wanted));
        }
    }

    pub(super) fn remove(&mut self, seen: Option<&Child>) {
        self.writes.extend(seen.filter(|there| !there.deleting).map(|there| Write::Delete(target(there))));
    }

    pub(super) fn append(&mut self, other: Self) {
        self.writes.extend(other.writes);
        self.waits_for = self.waits_for.take().or(other.waits_for);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.writes.is_empty() && self.waits_for.is_none()
    }
}

pub(super) fn target(there: &Child) -> Target {
    Target {
        kind: there.kind,
        namespace: there.namespace.clone(),
        name: there.name.clone(),
        uid: there.uid.clone(),
        grace: None,
    }
}

/// In the past tense, for people.
pub(super) fn described(write: &Write) -> String {
    let (verb, kind, name) = match write {
        Write::Apply(object) => ("Wrote", object.kind, &object.name),
        Write::Create(object) => ("Created", object.kind, &object.name),
        Write::Delete(target) => ("Deleted", target.kind, &target.name),
        Write::Adopt { target, .. } => ("Adopted", target.kind, &target.name),
    };
    format!("{verb} {} {name}", kind.as_str())
}

/// Whether the object says what it should, and nothing that changes its meaning.
fn is(there: &Child, wanted: &Object) -> bool {
    there.covers(wanted) && exact(there.kind).iter().all(|part| is_same_part(there, wanted, part))
}

/// The parts in which a field more means something else: a second selector opens a network policy to the cluster, a
/// limit nobody asked for refuses pods. Only these, and not all of an object: a newer Kubernetes may fill in fields we
/// do not know, and must not make us write for ever.
fn exact(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::RoleBinding => &["/subjects", "/roleRef"],
        Kind::ResourceQuota => &["/spec/hard", "/spec/scopes", "/spec/scopeSelector"],
        Kind::LimitRange => &["/spec/limits"],
        Kind::NetworkPolicy => &["/spec/podSelector", "/spec/ingress", "/spec/egress"],
        Kind::PodDisruptionBudget => &["/spec/selector", "/spec/maxUnavailable"],
        Kind::Namespace | Kind::ServiceAccount | Kind::Secret | Kind::Service | Kind::Pod | Kind::DevServer => &[],
    }
}

/// Whether applying cannot bring the object there, so that it must be made anew: the role of a binding is fixed, and
/// what somebody else has set stays theirs, be it a limit in a quota or the other way to write a budget, which excludes
/// ours. Lists and selectors are no such case: they are replaced as a whole.
fn is_stuck(there: &Child, wanted: &Object) -> bool {
    let differs = |part: &str| !is_same_part(there, wanted, part);
    match there.kind {
        Kind::RoleBinding => differs("/roleRef"),
        Kind::ResourceQuota => {
            let limits = |body: &Value| body.pointer("/spec/hard").and_then(Value::as_object).cloned();
            let (stored, wanted) = (limits(&there.body).unwrap_or_default(), limits(&wanted.body).unwrap_or_default());
            stored.keys().any(|limit| !wanted.contains_key(limit))
                || differs("/spec/scopes")
                || differs("/spec/scopeSelector")
        }
        Kind::PodDisruptionBudget => differs("/spec/maxUnavailable"),
        _ => false,
    }
}

/// In these parts, nothing and an empty map or list are the same.
fn is_same_part(there: &Child, wanted: &Object, part: &str) -> bool {
    let is_empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    let (stored, wanted) = (there.body.pointer(part), wanted.body.pointer(part));
    stored == wanted || is_empty(stored) && is_empty(wanted)
}
