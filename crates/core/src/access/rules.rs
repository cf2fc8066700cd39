//! The rules of access. The first one that applies decides; without one, the action is allowed.

use odc_api::v1alpha1::Role;

use super::{Action, Caller, Decision, Reason, Target};

type Rule = fn(&Caller, Action, Target<'_>) -> Option<Decision>;

pub(super) const RULES: [Rule; 5] = [
    objects_of_others_are_hidden,
    auditors_only_read,
    all_users_require_a_role,
    administration_requires_a_role,
    key_has_scope,
];

/// Hides the objects of other users from callers without a role that sees them.
fn objects_of_others_are_hidden(caller: &Caller, _: Action, target: Target<'_>) -> Option<Decision> {
    match target {
        Target::User(user) if user != caller.user && !caller.sees_all_users() => Some(Decision::NotFound),
        Target::User(_) | Target::Cluster => None,
    }
}

/// Rejects changes by auditors, except of their own keys.
fn auditors_only_read(caller: &Caller, action: Action, target: Target<'_>) -> Option<Decision> {
    let is_own_key = action == Action::WriteKeys && target == Target::User(&caller.user);
    (caller.effective_role() == Role::Auditor && action.is_write() && !is_own_key)
        .then_some(Decision::Forbidden(Reason::ReadOnly))
}

/// Rejects reads of the objects of all users by callers who see only their own.
fn all_users_require_a_role(caller: &Caller, action: Action, target: Target<'_>) -> Option<Decision> {
    let is_shared = matches!(action, Action::ReadCatalog | Action::ReadUsers);
    (target == Target::Cluster && !is_shared && !action.is_write() && !caller.sees_all_users())
        .then_some(Decision::Forbidden(Reason::AuditorRequired))
}

/// Rejects changes that affect all users by callers who are not administrators.
fn administration_requires_a_role(caller: &Caller, action: Action, target: Target<'_>) -> Option<Decision> {
    let is_administration = action.is_write() && (action.is_cluster_wide() || target == Target::Cluster);
    if !is_administration || caller.effective_role() == Role::Admin {
        return None;
    }
    Some(Decision::Forbidden(match caller.role {
        Role::Admin => Reason::Scope(super::Scope::Admin),
        Role::User | Role::Auditor => Reason::AdminRequired,
    }))
}

/// Rejects actions that the API key was not granted.
fn key_has_scope(caller: &Caller, action: Action, _: Target<'_>) -> Option<Decision> {
    let missing = action.scope().filter(|scope| !caller.scopes.contains(*scope))?;
    Some(Decision::Forbidden(Reason::Scope(missing)))
}
