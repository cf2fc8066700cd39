//! Validates the cases of [`crate::fixtures::case`].

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{DEFINITIONS, JSONSchemaProps, check_object};
use crate::fixtures::case::{BY_SCHEMA, Case, cases};
use crate::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Disk, DiskOperation, Team};

fn kind(case: &Case) -> &str {
    case.object["kind"].as_str().unwrap()
}

#[test]
fn cases_are_accepted_or_rejected_as_expected() {
    for case in cases() {
        let violations: Vec<_> = check_object(&case.object, case.old.as_ref())
            .err()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect();
        let has_violation = |message: &str| violations.iter().any(|violation| violation.contains(message));
        let is_expected = match case.rejected_by {
            None => violations.is_empty(),
            Some(BY_SCHEMA) => {
                !violations.is_empty() && !messages(kind(&case)).iter().any(|message| has_violation(message))
            }
            Some(message) => has_violation(message),
        };
        assert!(is_expected, "{} ({}): {violations:#?}", case.name, kind(&case));
    }
}

#[test]
fn accepted_objects_round_trip() {
    fn round_trip<K: Serialize + DeserializeOwned>(object: &Value) -> Value {
        let read: K = serde_json::from_value(object.clone()).unwrap();
        serde_json::to_value(read).unwrap()
    }
    for case in cases().iter().filter(|case| case.rejected_by.is_none()) {
        let written = match kind(case) {
            "DevServer" => round_trip::<DevServer>(&case.object),
            "DevServerFlavor" => round_trip::<DevServerFlavor>(&case.object),
            "DevServerUser" => round_trip::<DevServerUser>(&case.object),
            "Disk" => round_trip::<Disk>(&case.object),
            "DiskOperation" => round_trip::<DiskOperation>(&case.object),
            "Team" => round_trip::<Team>(&case.object),
            other => panic!("{other} has no type"),
        };
        assert_eq!(check_object(&written, Some(&case.object)), Ok(()), "{}", case.name);
    }
}

#[test]
fn every_rule_has_accepted_and_rejected_cases() {
    for (kind, definition) in DEFINITIONS.iter() {
        let of_kind = |case: &&Case| case.object["kind"] == **kind;
        let messages: Vec<_> = cases().iter().filter(of_kind).filter_map(|case| case.rejected_by).collect();
        let passing: Vec<_> = cases()
            .iter()
            .filter(of_kind)
            .filter(|case| case.rejected_by.is_none())
            .map(|case| (definition.defaulted(&case.object), case.old.as_ref().map(|old| definition.defaulted(old))))
            .collect();
        let passing: Vec<_> = passing.iter().map(|(new, old)| (new, old.as_ref())).collect();
        each_rule(&definition.schema, &passing, &mut |rule, message, passed| {
            let rejected = messages.iter().any(|expected| *expected != BY_SCHEMA && message.contains(expected));
            assert!(rejected, "no case of {kind} is rejected by: {rule}");
            assert!(passed, "no case of {kind} passes: {rule}");
        });
    }
}

fn messages(kind: &str) -> Vec<String> {
    let mut messages = vec![];
    each_rule(&DEFINITIONS[kind].schema, &[], &mut |_, message, _| messages.push(message.to_owned()));
    messages
}

/// Visits each rule with its message, and whether one of the values causes its evaluation.
fn each_rule(schema: &JSONSchemaProps, values: &[(&Value, Option<&Value>)], visit: &mut impl FnMut(&str, &str, bool)) {
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        let evaluated = values.iter().any(|(_, old)| old.is_some() || !rule.rule.contains("oldSelf"));
        visit(&rule.rule, rule.message.as_deref().unwrap_or_default(), evaluated);
    }
    for (name, schema) in schema.properties.iter().flatten() {
        let mut inside = vec![];
        for (new, old) in values {
            inside.extend(new.get(name).map(|new| (new, old.and_then(|old| old.get(name)))));
        }
        each_rule(schema, &inside, visit);
    }
    if let Some(schema) = super::bounds::items(schema) {
        let items = values.iter().filter_map(|(new, _)| new.as_array()).flatten();
        each_rule(schema, &items.map(|item| (item, None)).collect::<Vec<_>>(), visit);
    }
}
