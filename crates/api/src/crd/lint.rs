//! Checks that all schemas follow the conventions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use super::crds;

/// Calls `visit` for every schema node with its path.
fn each_node(visit: impl Fn(&str, &JSONSchemaProps)) {
    fn walk(path: &str, schema: &JSONSchemaProps, visit: &impl Fn(&str, &JSONSchemaProps)) {
        visit(path, schema);
        schema.properties.iter().flatten().for_each(|(name, schema)| walk(&format!("{path}.{name}"), schema, visit));
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
            walk(&format!("{path}[]"), items, visit);
        }
        if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
            walk(&format!("{path}{{}}"), values, visit);
        }
    }
    for crd in crds() {
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
            walk(&crd.spec.names.kind, schema, &visit);
        }
    }
}

/// metadata is validated by the API server.
fn is_metadata(path: &str) -> bool {
    path.contains(".metadata")
}

#[test]
fn all_fields_are_bounded() {
    each_node(|path, schema| {
        let bounded = match schema.type_.as_deref() {
            _ if is_metadata(path) => true,
            Some("string") => schema.max_length.is_some() || schema.enum_.is_some() || schema.format.is_some(),
            Some("array") => schema.max_items.is_some() && schema.x_kubernetes_list_type.is_some(),
            Some("object") => schema.properties.is_some() || schema.max_properties.is_some(),
            Some("integer") if path.contains(".status") => schema.minimum.is_some(),
            Some("integer") => schema.minimum.is_some() && schema.maximum.is_some(),
            Some("boolean") => true,
            None => schema.x_kubernetes_int_or_string == Some(true) && schema.max_length.is_some(),
            Some(other) => panic!("{path} has type {other}"),
        };
        assert!(bounded, "{path} is unbounded");
    });
}

#[test]
fn all_fields_have_a_description() {
    each_node(|path, schema| {
        if !is_metadata(path) && !path.ends_with(['[', ']', '{', '}']) {
            let description = schema.description.as_deref().unwrap_or_default();
            assert!(description.ends_with('.') && !description.contains("  "), "{path}: {description:?}");
        }
    });
}

#[test]
fn all_rules_have_a_message_and_a_field_path() {
    each_node(|path, schema| {
        for rule in schema.x_kubernetes_validations.iter().flatten() {
            let message = rule.message.as_deref().unwrap_or_default();
            assert!(message.len() > 20 && !message.contains('\n') && !message.ends_with('.'), "{path}: {}", rule.rule);
            let is_top_level = schema.type_.as_deref() == Some("object") && path.matches('.').count() < 2;
            assert!(!is_top_level || rule.field_path.is_some(), "{path}: {} names no field", rule.rule);
        }
    });
}

/// See [`crate::rule::amount`].
#[test]
fn no_rule_parses_unchecked_quantities() {
    each_node(|path, schema| {
        for rule in schema.x_kubernetes_validations.iter().flatten() {
            for argument in rule.rule.split("quantity(").skip(1) {
                let guarded = argument.split_once('?').is_some_and(|(guard, _)| guard.contains(").matches('^[0-9]"));
                assert!(argument.starts_with('\'') || guarded, "{path}: {}", rule.rule);
            }
        }
    });
}

/// [`crate::check`] implements exactly these keywords.
#[test]
fn only_keywords_known_to_the_checker_are_used() {
    const KNOWN: [&str; 21] = [
        "additionalProperties",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minLength",
        "minimum",
        "pattern",
        "properties",
        "required",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-validations",
    ];
    each_node(|path, schema| {
        let written = serde_json::to_value(schema).unwrap();
        let unknown: Vec<_> =
            written.as_object().unwrap().keys().filter(|key| !KNOWN.contains(&key.as_str())).collect();
        assert!(unknown.is_empty(), "{path} has {unknown:?}");
    });
}

#[test]
fn only_formats_known_to_kubernetes_are_used() {
    each_node(|path, schema| {
        let format = schema.format.as_deref();
        assert!(matches!(format, None | Some("int32" | "int64" | "date-time")), "{path} has format {format:?}");
    });
}

#[test]
fn short_names_do_not_conflict() {
    // Short names of Kubernetes that are similar to ours.
    let taken = ["ds", "deploy", "svc", "ns"];
    for crd in crds() {
        let names = crd.spec.names;
        assert!(names.short_names.iter().flatten().all(|name| !taken.contains(&name.as_str())), "{}", names.kind);
        assert_eq!(names.categories, Some(vec!["odc".to_owned()]), "{}", names.kind);
    }
}
