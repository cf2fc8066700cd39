//! Object identity in request and response bodies, for the trace.

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Identity of the object in a body; fields that the body lacks are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub name: Option<String>,
    pub version: Option<String>,
    pub uid: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    resource_version: Option<String>,
    uid: Option<String>,
}

#[derive(Deserialize)]
struct Operation {
    op: String,
    path: String,
    value: Option<serde_json::Value>,
}

impl Identity {
    /// Reads the identity that a request expects: from an object, a merge patch, an apply, delete options, or the `test`
    /// operations of a JSON patch.
    pub fn from_request(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Body {
            metadata: Option<Metadata>,
            preconditions: Option<Metadata>,
        }
        // A list must be tried first, because serde also deserializes a list as the fields of a struct.
        if let Ok(operations) = serde_json::from_slice::<Vec<Operation>>(body) {
            let tested = |path: &str| {
                let test = operations.iter().find(|operation| operation.op == "test" && operation.path == path)?;
                test.value.as_ref()?.as_str().map(str::to_owned)
            };
            return Self { name: None, version: tested("/metadata/resourceVersion"), uid: tested("/metadata/uid") };
        }
        let Ok(Body { metadata, preconditions }) = serde_json::from_slice(body) else { return Self::default() };
        let (object, condition) = (metadata.unwrap_or_default(), preconditions.unwrap_or_default());
        Self {
            name: object.name,
            version: condition.resource_version.or(object.resource_version),
            uid: condition.uid.or(object.uid),
        }
    }

    /// Reads the identity in a response: from an object, a list, or the `Status` of a deletion.
    pub fn from_response(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Body {
            metadata: Option<Metadata>,
            details: Option<Metadata>,
        }
        let Ok(Body { metadata, details }) = serde_json::from_slice(body) else { return Self::default() };
        let (object, details) = (metadata.unwrap_or_default(), details.unwrap_or_default());
        Self { name: object.name.or(details.name), version: object.resource_version, uid: object.uid.or(details.uid) }
    }
}

/// Returns a short hash of a body, or `None` if it is empty.
pub fn short_hash(body: &[u8]) -> Option<String> {
    let digest = Sha256::digest(body);
    (!body.is_empty()).then(|| digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: &Identity, name: Option<&str>, version: Option<&str>, uid: Option<&str>) {
        let own = |text: Option<&str>| text.map(str::to_owned);
        assert_eq!(*found, Identity { name: own(name), version: own(version), uid: own(uid) });
    }

    #[test]
    fn object_has_name_and_version() {
        let body = br#"{"kind":"ConfigMap","metadata":{"name":"one","resourceVersion":"7"}}"#;
        check(&Identity::from_request(body), Some("one"), Some("7"), None);
    }

    #[test]
    fn delete_options_have_preconditions() {
        let body = br#"{"kind":"DeleteOptions","preconditions":{"uid":"u","resourceVersion":"7"}}"#;
        check(&Identity::from_request(body), None, Some("7"), Some("u"));
    }

    #[test]
    fn json_patch_has_the_values_of_its_tests() {
        let body = br#"[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/data"}]"#;
        check(&Identity::from_request(body), None, Some("7"), None);
        check(&Identity::from_request(b"not JSON"), None, None, None);
    }

    #[test]
    fn response_has_the_identity_of_its_object() {
        let object = br#"{"metadata":{"name":"one","uid":"u","resourceVersion":"8"},"data":{}}"#;
        check(&Identity::from_response(object), Some("one"), Some("8"), Some("u"));
        let status = br#"{"kind":"Status","metadata":{},"details":{"name":"one","uid":"u"}}"#;
        check(&Identity::from_response(status), Some("one"), None, Some("u"));
    }

    #[test]
    fn equal_bodies_have_equal_hashes() {
        assert_eq!(short_hash(b"{}").as_deref(), Some("44136fa355b3678a"));
        assert_eq!(short_hash(b""), None);
    }
}
