//! The namespace itself.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use odc_api::name::UserName;

use crate::object::{Kind, Object};

/// Enforces the level `baseline`, under which people may be root inside their own server; flavors that are
/// `restricted` are kept so by the operator. What falls short of `restricted` goes into the audit log. It is not warned
/// about: only the operator makes pods here, and it knows.
///
/// There is no owner reference: data outlives the user.
pub(super) fn object(user: &UserName) -> Object {
    let mut labels = super::labels(user);
    let security = [("enforce", "baseline"), ("enforce-version", "latest"), ("audit", "restricted")];
    labels.extend(security.map(|(mode, level)| (format!("pod-security.kubernetes.io/{mode}"), level.to_owned())));
    let metadata =
        ObjectMeta { name: Some(odc_api::namespace::of(user)), labels: Some(labels), ..ObjectMeta::default() };
    Object::new(Kind::Namespace, &Namespace { metadata, ..Namespace::default() })
}
