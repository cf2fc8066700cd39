//! What a container asks for that says nothing, so that a quota never refuses a pod for its silence.
//!
//! Requests only. A default limit would be below the request of a container that names a request and no limit, and the
//! API server would refuse it.

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, LimitRangeSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use odc_api::name::UserName;

use super::WALL;
use crate::object::{Kind, Object};

pub(super) fn object(user: &UserName) -> Object {
    let requests = [("cpu", "100m"), ("memory", "128Mi")];
    let requests = requests.map(|(resource, amount)| (resource.to_owned(), Quantity(amount.into())));
    let item = LimitRangeItem {
        type_: "Container".into(),
        default_request: Some(requests.into()),
        ..LimitRangeItem::default()
    };
    let range = LimitRange { metadata: super::metadata(user, WALL), spec: Some(LimitRangeSpec { limits: vec![item] }) };
    Object::new(Kind::LimitRange, &range)
}
