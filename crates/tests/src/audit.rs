//! The audit log of the API server. Tests count writes in it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

/// One completed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub verb: String,
    /// Empty for the core group.
    pub group: String,
    /// Including the subresource, as in `pods/status`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub user: String,
    pub agent: String,
    /// Field manager of the write; empty if the request has none.
    pub field_manager: String,
    pub received_at: Timestamp,
    pub code: u16,
}

impl Request {
    /// Reports whether the request has stored something.
    pub fn is_write(&self) -> bool {
        self.is_mutating() && self.code < 400
    }

    /// Reports whether the request was a write that failed.
    pub fn is_rejected_write(&self) -> bool {
        self.is_mutating() && self.code >= 400
    }

    fn is_mutating(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// The audit log of an API server from one time on.
pub struct AuditLog {
    path: PathBuf,
    offset: u64,
    since: Timestamp,
}

impl AuditLog {
    /// Omits what was received before now, even if it completes later: the watches of earlier clients.
    pub fn from_now(path: PathBuf) -> anyhow::Result<Self> {
        let offset = std::fs::metadata(&path).with_context(|| format!("reading {}", path.display()))?.len();
        Ok(Self { path, offset, since: Timestamp::now() })
    }

    /// Returns all requests so far in the order of their completion.
    pub fn read(&self) -> anyhow::Result<Vec<Request>> {
        let mut text = String::new();
        let mut file = File::open(&self.path).with_context(|| format!("reading {}", self.path.display()))?;
        file.seek(SeekFrom::Start(self.offset))?;
        file.read_to_string(&mut text)?;
        // The last line may be incomplete.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let requests = complete.lines().map(parse).filter_map(Result::transpose);
        requests.filter(|request| request.as_ref().map_or(true, |request| request.received_at >= self.since)).collect()
    }
}

fn parse(line: &str) -> anyhow::Result<Option<Request>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Event {
        stage: String,
        verb: String,
        #[serde(default, rename = "requestURI")]
        uri: String,
        request_received_timestamp: String,
        user: User,
        #[serde(default)]
        user_agent: String,
        object_ref: Option<Object>,
        response_status: Option<Status>,
    }
    #[derive(Deserialize)]
    struct User {
        #[serde(default)]
        username: String,
    }
    #[derive(Default, Deserialize)]
    struct Object {
        #[serde(default, rename = "apiGroup")]
        group: String,
        #[serde(default)]
        resource: String,
        #[serde(default)]
        subresource: String,
        #[serde(default)]
        namespace: String,
        #[serde(default)]
        name: String,
    }
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        code: u16,
    }
    let event: Event = serde_json::from_str(line).with_context(|| format!("parsing audit line {line}"))?;
    // A watch is logged when it starts and again when it ends.
    if event.stage != "ResponseComplete" {
        return Ok(None);
    }
    let received_at =
        event.request_received_timestamp.parse().with_context(|| format!("parsing the timestamp of {line}"))?;
    let query = event.uri.split_once('?').map(|(_, query)| query).unwrap_or_default();
    let field_manager = query.split('&').find_map(|pair| pair.strip_prefix("fieldManager=")).unwrap_or_default();
    let object = event.object_ref.unwrap_or_default();
    let resource = match object.subresource.as_str() {
        "" => object.resource,
        sub => format!("{}/{sub}", object.resource),
    };
    Ok(Some(Request {
        verb: event.verb,
        group: object.group,
        resource,
        namespace: object.namespace,
        name: object.name,
        user: event.user.username,
        agent: event.user_agent,
        field_manager: field_manager.to_owned(),
        received_at,
        code: event.response_status.map_or(0, |status| status.code),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"stage":"ResponseComplete","verb":"patch",
        "requestURI":"/api/v1/namespaces/dev-ada/pods/one/status?force=true&fieldManager=odc-scheduler",
        "requestReceivedTimestamp":"2026-11-17T03:00:00.250000Z","user":{"username":"ada"},"userAgent":"odc-operator",
        "objectRef":{"resource":"pods","subresource":"status","namespace":"dev-ada","name":"one"},"responseStatus":{"code":200}}"#;

    #[test]
    fn audit_line_parses_into_a_request() {
        let request = parse(LINE).unwrap().unwrap();
        assert_eq!(
            (request.resource.as_str(), request.agent.as_str(), request.field_manager.as_str(), request.is_write()),
            ("pods/status", "odc-operator", "odc-scheduler", true)
        );
        assert_eq!(request.received_at.to_string(), "2026-11-17T03:00:00.25Z");
    }

    #[test]
    fn rejected_write_does_not_count_as_a_write() {
        let rejected = parse(&LINE.replace("\"code\":200", "\"code\":409")).unwrap().unwrap();
        assert!(!rejected.is_write() && rejected.is_rejected_write());
        assert!(!parse(LINE).unwrap().unwrap().is_rejected_write());
    }

    #[test]
    fn unfinished_request_is_skipped() {
        assert_eq!(parse(&LINE.replace("ResponseComplete", "ResponseStarted")).unwrap(), None);
    }

    #[test]
    fn incomplete_last_line_is_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let line = LINE.replace('\n', "");
        let path = directory.path().join("audit");
        std::fs::write(&path, format!("{line}\n{}", &line[..40])).unwrap();
        let log = AuditLog { path, offset: 0, since: "2026-11-17T03:00:00Z".parse().unwrap() };
        assert_eq!(log.read().unwrap().len(), 1);
    }

    #[test]
    fn requests_of_earlier_tests_are_omitted() {
        let directory = tempfile::tempdir().unwrap();
        let line = LINE.replace('\n', "");
        let path = directory.path().join("audit");
        std::fs::write(&path, format!("{line}\n")).unwrap();
        let log =
            AuditLog { since: "2026-11-17T03:00:00Z".parse().unwrap(), ..AuditLog::from_now(path.clone()).unwrap() };
        let late = line.replace("03:00:00.25", "02:59:59.25");
        std::fs::write(&path, format!("{line}\n{late}\n{line}\n")).unwrap();
        assert_eq!(log.read().unwrap().len(), 1, "neither the logged one nor the one received before");
    }
}
