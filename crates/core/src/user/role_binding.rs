//! Role bindings in the namespace. Each has the name of its cluster role.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use odc_api::name::UserName;

use super::{Settings, service_account};
use crate::manifest::{Kind, Object};

/// The role of the operator in a user's namespace.
pub(super) const OPERATOR: &str = "odc-operator-tenant";
/// The role of the user.
pub(super) const USER: &str = "odc-user";

/// The prefix of the user name that the cluster's authentication (OIDC, certificates) uses for a `DevServerUser`. It
/// prevents collisions with other users of the cluster.
const PREFIX: &str = "odc:";

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn operator(user: &UserName, settings: &Settings) -> Object {
    binding(user, OPERATOR, vec![service_account(&settings.namespace, &settings.service_account)])
}

/// Binds the service account and the user.
pub(super) fn user(user: &UserName) -> Object {
    let subject = Subject {
        api_group: Some(GROUP.into()),
        kind: "User".into(),
        name: format!("{PREFIX}{user}"),
        namespace: None,
    };
    binding(user, USER, vec![service_account(&odc_api::namespace::for_user(user), service_account::NAME), subject])
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
