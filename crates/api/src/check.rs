//! The API server's verdict on an object, without the API server: the same schema and the same rules, from the same
//! definitions. Clients can say what is wrong before they send it, and tests need no cluster.
//!
//! The steps are the API server's: leave out what it does not know, fill in defaults, check the schema, evaluate the
//! rules. Rules see only objects of the right shape. Not covered is what the API server knows beyond the definition
//! (metadata other than the name) and its leniency: towards unchanged values that an older definition had allowed, and
//! towards `1.0` where `1` is meant.

mod align;
mod bounds;
#[cfg(test)]
mod cases;
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

/// Something to correct.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The field, such as `spec.access.ports[0].name`.
    pub path: String,
    /// What to do about it.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Whether the API server would create this object.
pub fn check_create<K>(object: &K) -> Result<(), Vec<Violation>>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    check(&K::kind(&()), &json(object)?, None)
}

/// Whether the API server would replace `old` by `new`.
pub fn check_update<K>(old: &K, new: &K) -> Result<(), Vec<Violation>>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    check(&K::kind(&()), &json(new)?, Some(&json(old)?))
}

/// The same for objects as they were written, of any of our kinds; `old` is what is stored, if anything is.
pub fn check_object(object: &Value, old: Option<&Value>) -> Result<(), Vec<Violation>> {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    check(kind, object, old)
}

fn check(kind: &str, object: &Value, old: Option<&Value>) -> Result<(), Vec<Violation>> {
    let Some(definition) = DEFINITIONS.get(kind) else {
        return Err(vec![violation(
            "kind",
            format!("{kind:?} is no kind of {}; write one of {}", crate::GROUP, kinds()),
        )]);
    };
    let object = definition.defaulted(object);
    let old = old.map(|old| align::aligned(&definition.schema, definition.defaulted(old), &object));

    let mut violations = bounds::violations(&definition.schema, &definition.patterns, &object);
    if object.pointer("/metadata/name").and_then(Value::as_str).is_none() {
        violations.push(violation("metadata.name", "give it a name"));
    }
    if violations.is_empty() {
        let broken = validate_compiled(&definition.rules, &object, old.as_ref()).err();
        violations.extend(broken.into_iter().flatten().map(|broken| Violation {
            path: broken.field_path.trim_start_matches('.').to_owned(),
            message: broken.message,
        }));
    }
    violations.sort();
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

fn violation(path: &str, message: impl Into<String>) -> Violation {
    Violation { path: path.to_owned(), message: message.into() }
}

fn json(object: &impl Serialize) -> Result<Value, Vec<Violation>> {
    serde_json::to_value(object).map_err(|error| vec![violation("", format!("this object cannot be written: {error}"))])
}

/// A kind, ready to be checked against.
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
        let (patterns, rules) = (Patterns::of(&schema), compile_schema(&document));
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
    use crate::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Team};

    #[test]
    fn every_kind_can_be_checked() {
        assert_eq!(kinds(), "DevServer, DevServerFlavor, DevServerUser, Team");
        let objects = [
            check_create(&DevServer::test()),
            check_create(&DevServerFlavor::test()),
            check_create(&DevServerUser::test()),
            check_create(&Team::test()),
        ];
        assert_eq!(objects, [Ok(()), Ok(()), Ok(()), Ok(())]);
    }

    #[test]
    fn every_rule_compiles_here_too() {
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
    fn an_unknown_kind_is_named() {
        let violations = check_object(&json!({"kind": "Disk"}), None).unwrap_err();
        assert!(violations[0].to_string().starts_with("kind: \"Disk\" is no kind of odc.dev"));
    }

    #[test]
    fn an_object_without_a_name_is_refused() {
        let mut server = DevServer::test();
        server.metadata.name = None;
        assert_eq!(check_create(&server).unwrap_err(), [violation("metadata.name", "give it a name")]);
    }

    #[test]
    fn a_typed_update_is_checked_like_a_written_one() {
        let old = DevServer::test();
        let mut new = old.clone();
        new.spec.lifetime = "12h".parse().unwrap();
        assert_eq!(check_update(&old, &new), Ok(()));
        new.spec.nodes = 2;
        assert_eq!(check_update(&old, &new).unwrap_err()[0].path, "spec.nodes");
    }
}
