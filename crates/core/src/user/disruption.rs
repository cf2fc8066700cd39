//! Refuses every voluntary eviction of a server: drains go through a `NodeOperation`, which stops servers in order.
//!
//! `maxUnavailable: 0` would say the same, but Kubernetes then asks each pod's owner for its scale, which a `DevServer`
//! does not have: the budget would be in error for ever, with a warning at each try. More pods than there can be need
//! no such question. A server that is not ready still holds somebody's work, so it is not evicted either.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use odc_api::label;
use odc_api::name::UserName;

use super::WALL;
use crate::object::{Kind, Object};

pub(super) fn object(user: &UserName) -> Object {
    let server = LabelSelectorRequirement { key: label::SERVER.into(), operator: "Exists".into(), values: None };
    let spec = PodDisruptionBudgetSpec {
        min_available: Some(IntOrString::Int(i32::MAX)),
        selector: Some(LabelSelector { match_expressions: Some(vec![server]), match_labels: None }),
        unhealthy_pod_eviction_policy: Some("IfHealthyBudget".into()),
        ..PodDisruptionBudgetSpec::default()
    };
    let budget = PodDisruptionBudget {
        metadata: super::metadata(user, WALL),
        spec: Some(spec),
        ..PodDisruptionBudget::default()
    };
    Object::new(Kind::PodDisruptionBudget, &budget)
}
