//! The table of [`crate::fixtures::case`], put to the checker.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{DEFINITIONS, JSONSchemaProps, check_object};
use crate::fixtures::case::{BY_SCHEMA, Case, cases};
use crate::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Team};

fn kind(case: &Case) -> &str {
    case.object["kind"].as_str().unwrap()
}

#[test]
fn every_case_gets_its_verdict() {
    for case in cases() {
        let violations: Vec<_> = check_object(&case.object, case.old.as_ref())
            .err()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect();
        let said = |message: &str| violations.iter().any(|violation| violation.contains(message));
        let right = match case.refused {
            None => violations.is_empty(),
            Some(BY_SCHEMA) => !violations.is_empty() && !messages(kind(&case)).iter().any(|message| said(message)),
            Some(message) => said(message),
        };
        assert!(right, "{} ({}): {violations:#?}", case.about, kind(&case));
    }
}

#[test]
fn what_is_accepted_can_be_read_and_written_again() {
    fn reread<K: Serialize + DeserializeOwned>(object: &Value) -> Value {
        let read: K = serde_json::from_value(object.clone()).unwrap();
        serde_json::to_value(read).unwrap()
    }
    for case in cases().iter().filter(|case| case.refused.is_none()) {
        let again = match kind(case) {
            "DevServer" => reread::<DevServer>(&case.object),
            "DevServerFlavor" => reread::<DevServerFlavor>(&case.object),
            "DevServerUser" => reread::<DevServerUser>(&case.object),
            "Team" => reread::<Team>(&case.object),
            other => panic!("{other} has no type"),
        };
        assert_eq!(check_object(&again, Some(&case.object)), Ok(()), "{}", case.about);
    }
}

#[test]
fn every_rule_refuses_something_and_lets_something_pass() {
    for (kind, definition) in DEFINITIONS.iter() {
        let of_kind = |case: &&Case| case.object["kind"] == **kind;
        let refusals: Vec<_> = cases().iter().filter(of_kind).filter_map(|case| case.refused).collect();
        let passing: Vec<_> = cases()
            .iter()
            .filter(of_kind)
            .filter(|case| case.refused.is_none())
            .map(|case| (definition.defaulted(&case.object), case.old.as_ref().map(|old| definition.defaulted(old))))
            .collect();
        let passing: Vec<_> = passing.iter().map(|(new, old)| (new, old.as_ref())).collect();
        each_rule(&definition.schema, &passing, &mut |rule, message, passed| {
            let refused = refusals.iter().any(|refusal| *refusal != BY_SCHEMA && message.contains(refusal));
            assert!(refused, "no case of {kind} is refused by: {rule}");
            assert!(passed, "no case of {kind} passes: {rule}");
        });
    }
}

fn messages(kind: &str) -> Vec<String> {
    let mut messages = vec![];
    each_rule(&DEFINITIONS[kind].schema, &[], &mut |_, message, _| messages.push(message.to_owned()));
    messages
}

/// Visits each rule with its message, and with whether one of these values (and their old ones) makes it evaluate.
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
