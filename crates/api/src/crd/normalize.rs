//! Adapts the derived schemas to what the API server accepts and `kubectl explain` should print.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

pub(super) fn normalized(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            schema.title = None;
            normalize(schema);
            make_status_parts_atomic(schema);
            declare_name(schema);
        }
    }
    crd
}

/// Declares `metadata.name`, because a rule's fieldPath must be part of the schema.
fn declare_name(schema: &mut JSONSchemaProps) {
    let typed = |kind: &str| JSONSchemaProps { type_: Some(kind.into()), ..JSONSchemaProps::default() };
    let metadata = JSONSchemaProps { properties: Some([("name".into(), typed("string"))].into()), ..typed("object") };
    schema.properties.get_or_insert_default().insert("metadata".into(), metadata);
}

/// Makes each part of a status atomic. A part has one writer, so ownership of single fields is not needed; it would
/// make up two fifths of a stored server and slow down every apply.
fn make_status_parts_atomic(schema: &mut JSONSchemaProps) {
    let status = schema.properties.iter_mut().filter_map(|properties| properties.get_mut("status"));
    for part in status.flat_map(|status| &mut status.properties).flat_map(|parts| parts.values_mut()) {
        let target = match &mut part.items {
            Some(JSONSchemaPropsOrArray::Schema(item)) => item,
            Some(JSONSchemaPropsOrArray::Schemas(_)) | None => part,
        };
        if target.type_.as_deref() == Some("object") {
            target.x_kubernetes_map_type = Some("atomic".into());
        }
    }
}

fn normalize(schema: &mut JSONSchemaProps) {
    // If an optional field were nullable, `has()` would be true for null and rules could be bypassed.
    schema.nullable = None;
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    // Kubernetes has no unsigned formats; `minimum` is set instead.
    if schema.format.as_deref().is_some_and(|format| format.starts_with("uint")) {
        schema.format = Some("int32".into());
    }
    if let Some(description) = &mut schema.description {
        *description = unwrapped(description);
    }
    each_child(schema, normalize);
}

fn each_child(schema: &mut JSONSchemaProps, act: impl Fn(&mut JSONSchemaProps)) {
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(&act);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => act(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(&act),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        act(values);
    }
}

/// Joins the lines of each paragraph: `kubectl explain` wraps for the terminal.
fn unwrapped(text: &str) -> String {
    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n")
}
