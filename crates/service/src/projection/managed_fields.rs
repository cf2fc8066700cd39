//! Attribution of changes to field managers.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use odc_api::label::{OPERATOR, WORKER};

/// The maximum length of an actor in the audit log.
const MAX_LENGTH: usize = 253;

/// Returns the field manager of the last change of the spec, if the change is to be recorded in the audit log: it was made
/// neither by the operator nor by the worker, whose requests are recorded when they are accepted.
pub fn changed_by(metadata: &ObjectMeta) -> Option<String> {
    // The deletion increases the generation, but is no change of the spec.
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    let changes = || entries.iter().filter(|entry| manages(entry, &["f:spec"]));
    let last = |is_worker: bool| {
        changes().filter(move |entry| is_manager(entry, WORKER) == is_worker).max_by_key(|entry| time(entry))
    };
    let other = last(false).filter(|entry| !is_manager(entry, OPERATOR))?;
    let newer = last(true).is_none_or(|by_worker| time(other) > time(by_worker));
    let manager = other.manager.as_deref().filter(|manager| !manager.is_empty()).unwrap_or("unknown");
    newer.then(|| manager.chars().take(MAX_LENGTH).collect())
}

/// Reports whether the worker set an annotation.
pub fn is_annotated_by_worker(metadata: &ObjectMeta, annotation: &str) -> bool {
    let path = ["f:metadata", "f:annotations", &format!("f:{annotation}")];
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    entries.iter().any(|entry| is_manager(entry, WORKER) && manages(entry, &path))
}

fn is_manager(entry: &ManagedFieldsEntry, name: &str) -> bool {
    entry.manager.as_deref() == Some(name)
}

fn time(entry: &ManagedFieldsEntry) -> Option<Timestamp> {
    entry.time.as_ref().map(|time| time.0)
}

/// Reports whether the manager owns a field of the object itself, not of a subresource.
fn manages(entry: &ManagedFieldsEntry, path: &[&str]) -> bool {
    let is_subresource = entry.subresource.as_deref().is_some_and(|subresource| !subresource.is_empty());
    let field = |fields, step: &&str| serde_json::Value::get(fields, *step);
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
    !is_subresource && fields.is_some_and(|fields| path.iter().try_fold(fields, field).is_some())
}

#[cfg(test)]
mod tests {
    use odc_api::annotation::CONFIRM_DELETE;
    use odc_api::fixtures::time;
    use serde_json::json;

    use super::*;

    /// Each entry is a field manager, the second of its change, a field and a subresource.
    fn metadata(entries: &[(&str, u8, &str, &str)]) -> ObjectMeta {
        let entry = |(manager, second, field, subresource): &(&str, u8, &str, &str)| {
            let at = format!("2026-01-01T00:00:{second:02}Z");
            json!({"manager": manager, "time": at, "subresource": subresource, "fieldsV1": {*field: {"f:x": {}}}})
        };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        serde_json::from_value(json!({"managedFields": entries})).unwrap()
    }

    fn check(entries: &[(&str, u8, &str, &str)], expect: Option<&str>) {
        assert_eq!(changed_by(&metadata(entries)).as_deref(), expect, "{entries:?}");
    }

    #[test]
    fn last_manager_of_the_spec_made_the_change() {
        check(&[("kubectl-create", 1, "f:spec", "")], Some("kubectl-create"));
        check(&[("kubectl-create", 1, "f:spec", ""), ("devctl", 2, "f:spec", "")], Some("devctl"));
        check(&[("", 1, "f:spec", "")], Some("unknown"));
        check(&[], None);
    }

    #[test]
    fn changes_of_the_worker_are_not_recorded_again() {
        check(&[("odc-worker", 1, "f:spec", "")], None);
        check(&[("odc-worker", 1, "f:spec", ""), ("kubectl", 2, "f:spec", "")], Some("kubectl"));
        check(&[("kubectl", 1, "f:spec", ""), ("odc-worker", 1, "f:spec", "")], None);
        check(&[("kubectl", 1, "f:spec", ""), ("odc-worker", 2, "f:spec", "")], None);
    }

    #[test]
    fn status_and_metadata_are_no_change_of_the_spec() {
        check(&[("odc-worker", 1, "f:spec", ""), ("other", 2, "f:status", "status")], None);
        check(&[("odc-worker", 1, "f:spec", ""), ("other", 2, "f:spec", "scale")], None);
        check(&[("odc-worker", 1, "f:spec", ""), ("kubectl", 2, "f:metadata", "")], None);
        check(&[("odc-operator", 1, "f:spec", "")], None);
    }

    #[test]
    fn deletion_is_no_change_of_the_spec() {
        let mut metadata = metadata(&[("kubectl", 1, "f:spec", "")]);
        metadata.deletion_timestamp = Some(time("2026-01-01T00:00:09Z"));
        assert_eq!(changed_by(&metadata), None);
    }

    #[test]
    fn annotation_of_the_worker_is_found() {
        let fields = json!({"f:metadata": {"f:annotations": {"f:odc.dev/confirm-delete": {}}}});
        let entries = |manager| json!({"managedFields": [{"manager": manager, "fieldsV1": fields}]});
        let check =
            |manager| is_annotated_by_worker(&serde_json::from_value(entries(manager)).unwrap(), CONFIRM_DELETE);
        assert!(check("odc-worker"));
        assert!(!check("devctl"));
    }
}
