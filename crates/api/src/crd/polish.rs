//! What the derived schemas need before an API server, and people, should see them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

pub(super) fn polished(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            schema.title = None;
            polish(schema);
            own_as_a_whole(schema);
            declare_name(schema);
        }
    }
    crd
}

/// Rules speak about `metadata.name`; only a field the schema declares can be named in what the user reads.
fn declare_name(schema: &mut JSONSchemaProps) {
    let typed = |kind: &str| JSONSchemaProps { type_: Some(kind.into()), ..JSONSchemaProps::default() };
    let metadata = JSONSchemaProps { properties: Some([("name".into(), typed("string"))].into()), ..typed("object") };
    schema.properties.get_or_insert_default().insert("metadata".into(), metadata);
}

/// Each part of a status has one writer, so who owns it is kept of the part and not of every field in it: two fifths of what
/// is stored of a server would be that, and the API server would go through all of it at each write.
fn own_as_a_whole(schema: &mut JSONSchemaProps) {
    let status = schema.properties.iter_mut().filter_map(|properties| properties.get_mut("status"));
    for part in status.flat_map(|status| &mut status.properties).flat_map(|parts| parts.values_mut()) {
        let whole = match &mut part.items {
            Some(JSONSchemaPropsOrArray::Schema(item)) => item,
            Some(JSONSchemaPropsOrArray::Schemas(_)) | None => part,
        };
        if whole.type_.as_deref() == Some("object") {
            whole.x_kubernetes_map_type = Some("atomic".into());
        }
    }
}

fn polish(schema: &mut JSONSchemaProps) {
    // An optional field is absent. Were it nullable, `has()` would hold for null, and rules could be talked around.
    schema.nullable = None;
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    // Kubernetes knows no unsigned formats; the bounds say as much.
    if schema.format.as_deref().is_some_and(|format| format.starts_with("uint")) {
        schema.format = Some("int32".into());
    }
    if let Some(description) = &mut schema.description {
        *description = unwrapped(description);
    }
    each_child(schema, polish);
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

/// Paragraphs on one line each: comments are wrapped for the editor, `kubectl explain` wraps for the terminal.
fn unwrapped(text: &str) -> String {
    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n")
}
