//! A watch, as the lines it consists of and the events they stand for. Pure.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// What a line says, as far as faults and traces want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
    pub version: String,
    pub uid: String,
}

impl Event {
    /// Nothing for a line that is no event; it is passed on as it is.
    pub fn read(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Line {
            r#type: Kind,
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

/// The event with which an API server ends a watch that it cannot continue.
pub fn expired() -> Bytes {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410,
        "reason": "Expired", "message": "too old resource version: by apifault"});
    Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": status})))
}

/// Puts lines together from pieces cut anywhere.
#[derive(Debug, Default)]
pub struct Lines {
    begun: BytesMut,
}

impl Lines {
    /// The lines that this piece completes, each with its end.
    pub fn push(&mut self, piece: &[u8]) -> Vec<Bytes> {
        let mut whole = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if part.ends_with(b"\n") {
                whole.push(self.begun.split().freeze());
            }
        }
        whole
    }

    /// What was begun and not ended.
    pub fn rest(&mut self) -> Option<Bytes> {
        (!self.begun.is_empty()).then(|| self.begun.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_they_are_cut() {
        let text = b"first\nsecond\n\nunfinished";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let whole: Vec<Bytes> = text.chunks(size).flat_map(|piece| lines.push(piece)).collect();
            assert_eq!(whole, ["first\n", "second\n", "\n"], "pieces of {size}");
            assert_eq!(lines.rest().as_deref(), Some(b"unfinished".as_slice()));
            assert_eq!(lines.rest(), None);
        }
    }

    #[test]
    fn a_line_becomes_an_event() {
        let line = br#"{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"name":"one","namespace":"a","uid":"u","resourceVersion":"7"}}}"#;
        let event = Event::read(line).unwrap();
        assert_eq!((event.kind, event.name.as_str(), event.version.as_str()), (Kind::Modified, "one", "7"));
    }

    #[test]
    fn a_bookmark_has_no_name() {
        let event = Event::read(br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#).unwrap();
        assert_eq!((event.kind, event.name.as_str()), (Kind::Bookmark, ""));
    }

    #[test]
    fn the_end_of_a_watch_is_an_event_and_noise_is_not() {
        assert_eq!(Event::read(&expired()).unwrap().kind, Kind::Error);
        assert_eq!(Event::read(b"\n"), None);
    }
}
