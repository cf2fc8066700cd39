//! Validates objects as the API server does, by the schemas and CEL rules of the CRDs. Clients can report errors before
//! they send an object, and tests need no cluster.
//!
//! The steps are those of the API server: prune unknown fields, apply defaults, validate the schema, evaluate the
//! rules. Rules are evaluated only for objects that match the schema. Not covered are the validation of metadata other
//! than the name, ratcheting of unchanged values, and `1.0` as an integer.

mod bounds;
#[cfg(test)]
mod cases;
mod correlate;
mod prune;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::Resource;
use kube::core::cel::{CompiledSchema, apply_defaults, compile_schema, validate_compiled};
use serde::Serialize;
use serde_json::Value;

use crate::crd::crds;
use bounds::Patterns;

/// A validation error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The path of the field, such as `spec.access.ports[0].name`.
    pub path: String,
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Validates the creation of an object.
pub fn check_create<K>(object: &K) -> Result<(), Vec<Violation>>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    check(&K::kind(&()), &json(object)?, None)
}

/// Validates the update of an object.
pub fn check_update<K>(old: &K, new: &K) -> Result<(), Vec<Violation>>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    check(&K::kind(&()), &json(new)?, Some(&json(old)?))
}

/// Validates a JSON object of any ODC kind; `old` is the stored object for an update.
pub fn check_object(object: &Value, old: Option<&Value>) -> Result<(), Vec<Violation>> {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    check(kind, object, old)
}

fn check(kind: &str, object: &Value, old: Option<&Value>) -> Result<(), Vec<Violation>> {
    let Some(definition) = DEFINITIONS.get(kind) else {
        return Err(vec![violation(
            "kind",
            format!("unknown kind {kind:?} of {}; must be one of {}", crate::GROUP, kinds()),
        )]);
    };
    let object = definition.defaulted(object);
    let old = old.map(|old| correlate::correlated(&definition.schema, definition.defaulted(old), &object));

    let mut violations = bounds::violations(&definition.schema, &definition.patterns, &object);
    if object.pointer("/metadata/name").and_then(Value::as_str).is_none() {
        violations.push(violation("metadata.name", "required"));
    }
    if violations.is_empty() {
        let errors = validate_compiled(&definition.rules, &object, old.as_ref()).err();
        violations.extend(errors.into_iter().flatten().map(|error| Violation {
            path: error.field_path.trim_start_matches('.').to_owned(),
            message: error.message,
        }));
    }
    violations.sort();
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

fn violation(path: &str, message: impl Into<String>) -> Violation {
    Violation { path: path.to_owned(), message: message.into() }
}

fn json(object: &impl Serialize) -> Result<Value, Vec<Violation>> {
    serde_json::to_value(object).map_err(|error| vec![violation("", format!("serializing the object: {error}"))])
}

/// A compiled CRD.
struct Definition {
    schema: JSONSchemaProps,
    document: Value,
    patterns: Patterns,
    rules: CompiledSchema,
}

static DEFINITIONS: LazyLock<BTreeMap<String, Definition>> = LazyLock::new(|| {
    let definition = |crd: CustomResourceDefinition| {
        let schema = crd.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
        let document = serde_json::to_value(&schema).ok()?;
        let (patterns, rules) = (Patterns::compile(&schema), compile_schema(&document));
        Some((crd.spec.names.kind, Definition { schema, document, patterns, rules }))
    };
    crds().into_iter().filter_map(definition).collect()
});

impl Definition {
    fn defaulted(&self, object: &Value) -> Value {
        apply_defaults(&self.document, &prune::pruned(&self.schema, object))
    }
}

fn kinds() -> String {
    DEFINITIONS.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Disk, DiskAction, DiskOperation, Team};

    #[test]
    fn fixtures_of_all_kinds_are_valid() {
        assert_eq!(kinds(), "DevServer, DevServerFlavor, DevServerUser, Disk, DiskOperation, Team");
        let objects = [
            check_create(&DevServer::test()),
            check_create(&DevServerFlavor::test()),
            check_create(&DevServerUser::test()),
            check_create(&Disk::test()),
            check_create(&DiskOperation::test("operation-1", DiskAction::Snapshot)),
            check_create(&Team::test()),
        ];
        assert_eq!(objects.map(Result::err), [const { None }; 6]);
    }

    #[test]
    fn all_rules_compile() {
        fn check(schema: &CompiledSchema) {
            assert!(!schema.has_errors(), "{:?}", schema.compilation_errors());
            schema
                .properties
                .values()
                .chain(schema.items.as_deref())
                .chain(schema.additional_properties.as_deref())
                .for_each(check);
        }
        DEFINITIONS.values().for_each(|definition| check(&definition.rules));
    }

    #[test]
    fn unknown_kind_is_rejected() {
        let violations = check_object(&json!({"kind": "Volume"}), None).unwrap_err();
        assert!(violations[0].to_string().starts_with("kind: unknown kind \"Volume\" of odc.dev"));
    }

    #[test]
    fn object_without_name_is_rejected() {
        let mut server = DevServer::test();
        server.metadata.name = None;
        assert_eq!(check_create(&server).unwrap_err(), [violation("metadata.name", "required")]);
    }

    #[test]
    fn typed_update_is_validated() {
        let old = DevServer::test();
        let mut new = old.clone();
        new.spec.lifetime = "12h".parse().unwrap();
        assert_eq!(check_update(&old, &new), Ok(()));
        new.spec.nodes = 2;
        assert_eq!(check_update(&old, &new).unwrap_err()[0].path, "spec.nodes");
    }
}
