//! `PodDisruptionBudget` that rejects every eviction of a server pod.
//!
//! `maxUnavailable: 0` requires the scale subresource of the owner, which a `DevServer` does not have, so the budget would
//! always be in error. A `minAvailable` larger than any number of pods has the same effect. Unready servers may hold
//! unsaved work, so they are not evicted either.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use odc_api::label;
use odc_api::name::UserName;

use super::OBJECT_NAME;
use crate::manifest::{Kind, Object};

pub(super) fn object(user: &UserName) -> Object {
    let server = LabelSelectorRequirement { key: label::SERVER.into(), operator: "Exists".into(), values: None };
    let spec = PodDisruptionBudgetSpec {
        min_available: Some(IntOrString::Int(i32::MAX)),
        selector: Some(LabelSelector { match_expressions: Some(vec![server]), match_labels: None }),
        unhealthy_pod_eviction_policy: Some("IfHealthyBudget".into()),
        ..PodDisruptionBudgetSpec::default()
    };
    let budget = PodDisruptionBudget {
        metadata: super::metadata(user, OBJECT_NAME),
        spec: Some(spec),
        ..PodDisruptionBudget::default()
    };
    Object::new(Kind::PodDisruptionBudget, &budget)
}
