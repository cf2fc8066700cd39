//! Requests about users, teams and flavors.

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use odc_api::label;
use odc_api::v1alpha1::{DevServerFlavor, DevServerUser, Team};
use serde_json::{Value, json};

use super::object::{Created, Execution, Step, merge, patch_params};
use crate::message::{ApplyMode, ApplyObject, DeleteObject};

/// A cluster-scoped kind.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    User,
    Team,
    Flavor,
}

impl Kind {
    fn resource(self) -> ApiResource {
        match self {
            Self::User => ApiResource::erase::<DevServerUser>(&()),
            Self::Team => ApiResource::erase::<Team>(&()),
            Self::Flavor => ApiResource::erase::<DevServerFlavor>(&()),
        }
    }
}

/// Creates or changes an object. Both forms give the same result when repeated.
pub async fn apply(execution: &Execution<'_>, kind: Kind, apply: &ApplyObject) -> Step {
    let resource = kind.resource();
    let api = execution.all(&resource);
    let existing = execution.get_opt(&api, &apply.name).await?;
    if existing.as_ref().is_some_and(|object| execution.is_executed(object)) {
        return Ok(());
    }
    let mut annotations = json!(apply.annotations);
    merge(&mut annotations, execution.annotations(existing.as_ref()));
    if apply.mode == ApplyMode::Merge {
        let patch = merge_patch(apply, &annotations);
        if existing.is_some() && execution.patch(&api, &apply.name, &patch_params(), &Patch::Merge(patch)).await? {
            return Ok(());
        }
        return match execution.create(&api, &resource, &apply.name, apply.spec.clone()).await? {
            Created::Done => Ok(()),
            Created::Exists(_, rejected) => Err(rejected),
        };
    }
    let force = apply.mode == ApplyMode::ForceApply;
    let params = PatchParams { force, ..PatchParams::apply(label::WORKER) };
    execution.patch(&api, &apply.name, &params, &Patch::Apply(manifest(&resource, apply, annotations))).await.map(drop)
}

pub async fn delete(execution: &Execution<'_>, kind: Kind, delete: &DeleteObject) -> Step {
    let api = execution.all(&kind.resource());
    execution.delete(&api, &delete.name, &delete.preconditions).await
}

fn merge_patch(apply: &ApplyObject, annotations: &Value) -> Value {
    let preconditions = &apply.preconditions;
    let mut patch = json!({"metadata": {"annotations": annotations}, "spec": apply.spec});
    merge(&mut patch, json!({"metadata": preconditions}));
    patch
}

fn manifest(resource: &ApiResource, apply: &ApplyObject, annotations: Value) -> DynamicObject {
    let mut object = DynamicObject::new(&apply.name, resource).data(json!({"spec": apply.spec}));
    object.metadata.annotations = serde_json::from_value(annotations).ok();
    object.metadata.labels = (!apply.labels.is_empty()).then(|| apply.labels.clone());
    object.metadata.uid.clone_from(&apply.preconditions.uid);
    object.metadata.resource_version.clone_from(&apply.preconditions.resource_version);
    object
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::message::Preconditions;

    fn quota(preconditions: Preconditions) -> ApplyObject {
        let spec = json!({"quota": {"devices": 4}});
        let (labels, annotations) = (BTreeMap::new(), BTreeMap::new());
        ApplyObject { name: "vision".to_owned(), preconditions, mode: ApplyMode::Merge, spec, labels, annotations }
    }

    #[test]
    fn manifest_names_the_kind_and_the_preconditions() {
        let preconditions = Preconditions { uid: Some("u".to_owned()), resource_version: Some("7".to_owned()) };
        let object = manifest(&Kind::Team.resource(), &quota(preconditions), json!({"a": "b"}));
        let expect = json!({
            "apiVersion": "odc.dev/v1alpha1",
            "kind": "Team",
            "metadata": {"name": "vision", "uid": "u", "resourceVersion": "7", "annotations": {"a": "b"}},
            "spec": {"quota": {"devices": 4}},
        });
        assert_eq!(serde_json::to_value(object).unwrap(), expect);
    }

    #[test]
    fn merge_patch_has_only_given_preconditions() {
        let patch = merge_patch(&quota(Preconditions::default()), &json!({"a": "b"}));
        let expect = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"quota": {"devices": 4}}});
        assert_eq!(patch, expect);
    }
}
