//! Lines of a watch response and the events in them.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// Metadata of one watch event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    pub namespace: String,
    pub name: String,
    pub version: String,
    pub uid: String,
}

impl Event {
    /// Parses a line. Returns `None` for a line that is not an event, which is forwarded unchanged.
    pub fn parse(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Line {
            r#type: EventKind,
            object: Object,
        }
        #[derive(Deserialize)]
        struct Object {
            #[serde(default)]
            metadata: Metadata,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata {
            namespace: String,
            name: String,
            resource_version: String,
            uid: String,
        }
        let Line { r#type: kind, object: Object { metadata } } = serde_json::from_slice(line).ok()?;
        let Metadata { namespace, name, resource_version: version, uid } = metadata;
        Some(Self { kind, namespace, name, version, uid })
    }
}

/// Returns the event with which an API server ends a watch that it cannot continue.
pub fn expired() -> Bytes {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410,
        "reason": "Expired", "message": "too old resource version: by apifault"});
    Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": status})))
}

/// Assembles lines from chunks of any size.
#[derive(Debug, Default)]
pub struct LineBuffer {
    partial: BytesMut,
}

impl LineBuffer {
    /// Returns the lines that this chunk completes, each with its newline.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<Bytes> {
        let mut lines = Vec::new();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(part);
            if part.ends_with(b"\n") {
                lines.push(self.partial.split().freeze());
            }
        }
        lines
    }

    /// Returns the incomplete last line.
    pub fn take_partial(&mut self) -> Option<Bytes> {
        (!self.partial.is_empty()).then(|| self.partial.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_do_not_depend_on_the_chunk_size() {
        let text = b"first\nsecond\n\nunfinished";
        for size in 1..=text.len() {
            let mut lines = LineBuffer::default();
            let complete: Vec<Bytes> = text.chunks(size).flat_map(|chunk| lines.push(chunk)).collect();
            assert_eq!(complete, ["first\n", "second\n", "\n"], "chunks of {size}");
            assert_eq!(lines.take_partial().as_deref(), Some(b"unfinished".as_slice()));
            assert_eq!(lines.take_partial(), None);
        }
    }

    #[test]
    fn line_parses_into_an_event() {
        let line = br#"{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"name":"one","namespace":"a","uid":"u","resourceVersion":"7"}}}"#;
        let event = Event::parse(line).unwrap();
        assert_eq!((event.kind, event.name.as_str(), event.version.as_str()), (EventKind::Modified, "one", "7"));
    }

    #[test]
    fn bookmark_has_no_name() {
        let event = Event::parse(br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#).unwrap();
        assert_eq!((event.kind, event.name.as_str()), (EventKind::Bookmark, ""));
    }

    #[test]
    fn expiry_is_an_event_and_an_empty_line_is_not() {
        assert_eq!(Event::parse(&expired()).unwrap().kind, EventKind::Error);
        assert_eq!(Event::parse(b"\n"), None);
    }
}
