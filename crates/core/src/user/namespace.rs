//! The namespace itself.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use odc_api::name::UserName;

use crate::manifest::{Kind, Object};

/// Enforces the Pod Security level `baseline`, which allows root inside a server; the operator enforces `restricted` for
/// flavors that require it. Violations of `restricted` are audited but cause no warnings, because only the operator creates
/// pods here.
///
/// There is no owner reference, because data must survive the user.
pub(super) fn object(user: &UserName) -> Object {
    let mut labels = super::labels(user);
    let security = [("enforce", "baseline"), ("enforce-version", "latest"), ("audit", "restricted")];
    labels.extend(security.map(|(mode, level)| (format!("pod-security.kubernetes.io/{mode}"), level.to_owned())));
    let metadata =
        ObjectMeta { name: Some(odc_api::namespace::for_user(user)), labels: Some(labels), ..ObjectMeta::default() };
    Object::new(Kind::Namespace, &Namespace { metadata, ..Namespace::default() })
}
