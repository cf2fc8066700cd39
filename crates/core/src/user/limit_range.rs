//! Default requests of containers, so that a quota does not reject pods without requests.
//!
//! There are no default limits: one below the request of a container without a limit would be rejected.

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, LimitRangeSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use odc_api::name::UserName;

use super::OBJECT_NAME;
use crate::manifest::{Kind, Object};

pub(super) fn object(user: &UserName) -> Object {
    let requests = [("cpu", "100m"), ("memory", "128Mi")];
    let requests = requests.map(|(resource, amount)| (resource.to_owned(), Quantity(amount.into())));
    let item = LimitRangeItem {
        type_: "Container".into(),
        default_request: Some(requests.into()),
        ..LimitRangeItem::default()
    };
    let range =
        LimitRange { metadata: super::metadata(user, OBJECT_NAME), spec: Some(LimitRangeSpec { limits: vec![item] }) };
    Object::new(Kind::LimitRange, &range)
}
