//! Who may do what in the namespace. Each binding is called like the cluster role it binds.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use odc_api::name::UserName;

use super::{Settings, account};
use crate::object::{Kind, Object};

/// What the operator may do in a user's namespace.
pub(super) const OPERATOR: &str = "odc-operator-tenant";
/// What the user may do.
pub(super) const USER: &str = "odc-user";

/// Before the name of a `DevServerUser`, it is the name by which the cluster's own login (OIDC, certificates) knows
/// them. Without it, whoever can choose a login name could be any user, or the other way round.
const PREFIX: &str = "odc:";

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn operator(user: &UserName, settings: &Settings) -> Object {
    binding(user, OPERATOR, vec![service_account(&settings.namespace, &settings.account)])
}

/// For the account of their tools and for themselves.
pub(super) fn user(user: &UserName) -> Object {
    let person = Subject {
        api_group: Some(GROUP.into()),
        kind: "User".into(),
        name: format!("{PREFIX}{user}"),
        namespace: None,
    };
    binding(user, USER, vec![service_account(&odc_api::namespace::of(user), account::NAME), person])
}

fn service_account(namespace: &str, name: &str) -> Subject {
    Subject {
        api_group: None,
        kind: "ServiceAccount".into(),
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
    }
}

fn binding(user: &UserName, role: &str, subjects: Vec<Subject>) -> Object {
    let binding = RoleBinding {
        metadata: super::metadata(user, role),
        role_ref: RoleRef { api_group: GROUP.into(), kind: "ClusterRole".into(), name: role.to_owned() },
        subjects: Some(subjects),
    };
    Object::new(Kind::RoleBinding, &binding)
}
