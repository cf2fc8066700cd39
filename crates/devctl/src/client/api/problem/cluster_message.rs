//! Reads the causes of an error from a message of the Kubernetes API. The worker forwards only code and message.

use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails};

/// The words by which the API server describes invalid fields, and their reasons.
const CAUSES: [(&str, &str); 9] = [
    ("Invalid value", "FieldValueInvalid"),
    ("Forbidden", "FieldValueForbidden"),
    ("Required value", "FieldValueRequired"),
    ("Unsupported value", "FieldValueNotSupported"),
    ("Duplicate value", "FieldValueDuplicate"),
    ("Too long", "FieldValueTooLong"),
    ("Too many", "FieldValueTooMany"),
    ("Not found", "FieldValueNotFound"),
    ("Internal error", "InternalError"),
];

/// Returns the status that the API server sent.
pub fn to_status(code: u16, message: &str) -> Status {
    status(code, message, if code == 422 { causes(message) } else { vec![] })
}

fn status(code: u16, message: &str, causes: Vec<StatusCause>) -> Status {
    let details = StatusDetails {
        // Used only to tell an unknown object from an unknown kind.
        name: "object".to_owned(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes,
        retry_after_seconds: 0,
    };
    Status { code, message: message.to_owned(), details: Some(details), ..Status::default() }
}

/// `DevServer.odc.dev "box" is invalid: [spec.a: Forbidden: x, spec.b: Invalid value: 1: y]` → both causes.
fn causes(message: &str) -> Vec<StatusCause> {
    let Some((_, text)) = message.split_once(" is invalid: ") else { return vec![] };
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let mut causes: Vec<StatusCause> = vec![];
    for part in text.split(", ") {
        match (cause(part), causes.last_mut()) {
            (Some(cause), _) => causes.push(cause),
            // The text of the last cause has a comma.
            (None, Some(last)) => last.message = format!("{}, {part}", last.message),
            (None, None) => return vec![],
        }
    }
    causes
}

/// `spec.a: Forbidden: x` → the cause.
fn cause(text: &str) -> Option<StatusCause> {
    let (field, message) = text.split_once(": ")?;
    let is_kind = |word: &str| message.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
    let (_, reason) = CAUSES.into_iter().find(|(word, _)| is_kind(word))?;
    let is_path = !field.is_empty() && !field.contains([' ', '"']);
    is_path.then(|| StatusCause { reason: reason.to_owned(), message: message.to_owned(), field: field.to_owned() })
}

/// Returns the status of an apply that conflicts with other field managers:
/// `Apply failed with 1 conflict: conflict with "kubectl" using odc.dev/v1alpha1: .spec.limits.total`, or
/// `Apply failed with 2 conflicts: conflicts with "kubectl" using odc.dev/v1alpha1:\n- .spec.a\n- .spec.b`.
pub fn field_conflicts(message: &str) -> Option<Status> {
    let (_, list) = message.split_once("Apply failed with ")?.1.split_once(": ")?;
    let (mut manager, mut causes) = (String::new(), vec![]);
    let mut push = |manager: &str, field: &str| {
        let field = field.trim().to_owned();
        causes.push(StatusCause { reason: "FieldManagerConflict".to_owned(), message: manager.to_owned(), field });
    };
    for line in list.lines() {
        if let Some(field) = line.trim_start().strip_prefix("- ") {
            push(&manager, field);
            continue;
        }
        let (head, field) = line.rsplit_once(':')?;
        head.trim().clone_into(&mut manager);
        if !field.trim().is_empty() {
            push(&manager, field);
        }
    }
    Some(status(409, message, causes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &str) -> Vec<(String, String, String)> {
        let details = to_status(422, message).details.unwrap();
        details.causes.into_iter().map(|cause| (cause.reason, cause.field, cause.message)).collect()
    }

    fn cause(reason: &str, field: &str, message: &str) -> (String, String, String) {
        (reason.to_owned(), field.to_owned(), message.to_owned())
    }

    #[test]
    fn single_cause_is_read() {
        let message = r#"Disk.odc.dev "home" is invalid: spec.size: Invalid value: "5Gi": cannot shrink, or stay"#;
        assert_eq!(
            read(message),
            [cause("FieldValueInvalid", "spec.size", r#"Invalid value: "5Gi": cannot shrink, or stay"#)]
        );
    }

    #[test]
    fn several_causes_are_read() {
        let message = r#"DevServer.odc.dev "box" is invalid: [spec.home: Required value, spec.env[0].name: Forbidden: no, no: never, spec.desired: Unsupported value: "x": supported values: "Running", "Ended"]"#;
        assert_eq!(
            read(message),
            [
                cause("FieldValueRequired", "spec.home", "Required value"),
                cause("FieldValueForbidden", "spec.env[0].name", "Forbidden: no, no: never"),
                cause(
                    "FieldValueNotSupported",
                    "spec.desired",
                    r#"Unsupported value: "x": supported values: "Running", "Ended""#
                ),
            ]
        );
    }

    #[test]
    fn message_without_causes_stays_whole() {
        assert!(read("the object is too large").is_empty());
        assert!(read(r#"x "y" is invalid: something else"#).is_empty());
    }

    #[test]
    fn conflicting_fields_are_read() {
        let read = |message: &str| -> Vec<(String, String)> {
            let causes = field_conflicts(message).unwrap().details.unwrap().causes;
            causes.into_iter().map(|cause| (cause.field, cause.message.split('"').nth(1).unwrap().to_owned())).collect()
        };
        let one = r#"Apply failed with 1 conflict: conflict with "kubectl" using odc.dev/v1alpha1: .spec.limits.total"#;
        assert_eq!(read(one), [(".spec.limits.total".to_owned(), "kubectl".to_owned())]);
        let two =
            "Apply failed with 2 conflicts: conflicts with \"kubectl\" using odc.dev/v1alpha1:\n- .spec.a\n- .spec.b";
        assert_eq!(
            read(two),
            [(".spec.a".to_owned(), "kubectl".to_owned()), (".spec.b".to_owned(), "kubectl".to_owned())]
        );
        assert!(field_conflicts("already exists").is_none());
    }
}
