//! The API server's own record of what was asked of it: the only honest count of writes.

use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub verb: String,
    /// Empty for the oldest kinds, such as pods.
    pub group: String,
    /// With its subresource, as in `pods/status`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub user: String,
    pub agent: String,
    /// Who the fields that were written belong to, where that was said.
    pub manager: String,
    /// When it arrived.
    pub at: Timestamp,
    pub code: u16,
}

impl Request {
    /// Something was stored.
    pub fn is_write(&self) -> bool {
        self.would_write() && self.code < 400
    }

    /// Something was to be stored, and was not.
    pub fn is_refused_write(&self) -> bool {
        self.would_write() && self.code >= 400
    }

    fn would_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// All requests so far, in the order they were answered.
pub fn read(log: &Path) -> anyhow::Result<Vec<Request>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    // The last line may still be in the making.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(parse).filter_map(Result::transpose).collect()
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
    let event: Event = serde_json::from_str(line).with_context(|| format!("reading an audit line: {line}"))?;
    // A watch is noted when it starts and again when it ends.
    if event.stage != "ResponseComplete" {
        return Ok(None);
    }
    let at = event.request_received_timestamp.parse().with_context(|| format!("reading a time of {line}"))?;
    let query = event.uri.split_once('?').map(|(_, query)| query).unwrap_or_default();
    let manager = query.split('&').find_map(|pair| pair.strip_prefix("fieldManager=")).unwrap_or_default();
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
        manager: manager.to_owned(),
        at,
        code: event.response_status.map_or(0, |status| status.code),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"stage":"ResponseComplete","verb":"patch",
        "requestURI":"/api/v1/namespaces/dev-ada/pods/one/status?force=true&fieldManager=odc-queue",
        "requestReceivedTimestamp":"2026-11-17T03:00:00.250000Z","user":{"username":"ada"},"userAgent":"odc-operator",
        "objectRef":{"resource":"pods","subresource":"status","namespace":"dev-ada","name":"one"},"responseStatus":{"code":200}}"#;

    #[test]
    fn a_line_becomes_a_request() {
        let request = parse(LINE).unwrap().unwrap();
        assert_eq!(
            (request.resource.as_str(), request.agent.as_str(), request.manager.as_str(), request.is_write()),
            ("pods/status", "odc-operator", "odc-queue", true)
        );
        assert_eq!(request.at.to_string(), "2026-11-17T03:00:00.25Z");
    }

    #[test]
    fn a_refused_write_changed_nothing() {
        let refused = parse(&LINE.replace("\"code\":200", "\"code\":409")).unwrap().unwrap();
        assert!(!refused.is_write() && refused.is_refused_write());
        assert!(!parse(LINE).unwrap().unwrap().is_refused_write());
    }

    #[test]
    fn only_finished_requests_count() {
        assert_eq!(parse(&LINE.replace("ResponseComplete", "ResponseStarted")).unwrap(), None);
    }

    #[test]
    fn an_unfinished_last_line_is_left_for_later() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit");
        let line = LINE.replace('\n', "");
        std::fs::write(&log, format!("{line}\n{}", &line[..40])).unwrap();
        assert_eq!(read(&log).unwrap().len(), 1);
    }
}
