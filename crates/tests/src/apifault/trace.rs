//! Record of all requests and watch events, in order.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::apifault::body::Identity;
use crate::apifault::event::{Event, EventKind};
use crate::apifault::request::{ApiRequest, Verb};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEntry {
    /// Number in the order of arrival, from 1.
    pub sequence: u64,
    pub verb: Verb,
    /// With group and subresource, as in `devservers.odc.dev/status`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub agent: String,
    /// Status code of the API server, if it has responded.
    pub server_code: Option<u16>,
    /// Status code that the client received, if any.
    pub code: Option<u16>,
    /// Resource version that the request expects: in the object, as a precondition, or as a query parameter.
    pub version_before: Option<String>,
    pub uid_before: Option<String>,
    /// Resource version in the response of the API server.
    pub version_after: Option<String>,
    pub uid: Option<String>,
    /// Short hash of the request body.
    pub body: Option<String>,
    /// The request stores something if it succeeds.
    pub write: bool,
    /// Number among the stored writes without Leases and Events, as faults on writes count them.
    pub number: Option<u64>,
    /// Faults that fired at this request.
    pub faults: Vec<String>,
    /// Error of a request that failed without a fault.
    pub problem: Option<String>,
}

/// One event that a watch has forwarded to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// Sequence number of the watch request.
    pub watch: u64,
    pub kind: EventKind,
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub version: String,
    pub uid: String,
    pub fault: Option<String>,
}

#[derive(Debug, Default)]
pub struct Trace {
    pub entries: Vec<TraceEntry>,
    pub events: Vec<TraceEvent>,
    stored: u64,
    file: Option<File>,
}

impl Trace {
    /// Records the arrival of a request and returns its sequence number.
    pub fn open(&mut self, request: &ApiRequest, expected: Identity, body: Option<String>) -> u64 {
        let sequence = self.entries.len() as u64 + 1;
        let ApiRequest { verb, resource, namespace, name, agent, dry_run: _ } = request.clone();
        self.entries.push(TraceEntry {
            sequence,
            verb,
            resource,
            namespace,
            name,
            agent,
            server_code: None,
            code: None,
            version_before: expected.version,
            uid_before: expected.uid,
            version_after: None,
            uid: None,
            body,
            write: request.is_write(),
            number: None,
            faults: Vec::new(),
            problem: None,
        });
        sequence
    }

    /// Records the response of the API server.
    pub fn respond(&mut self, sequence: u64, request: &ApiRequest, code: u16, object: Identity) {
        let stored = request.is_write() && !request.is_periodic() && code < 300;
        self.stored += u64::from(stored);
        let number = stored.then_some(self.stored);
        let Some(entry) = self.entry(sequence) else { return };
        entry.server_code = Some(code);
        entry.number = number;
        // The object of an error is a `Status`.
        if code < 300 {
            entry.version_after = object.version;
            entry.uid = object.uid;
            if let (true, Some(name)) = (entry.name.is_empty() && entry.verb != Verb::List, object.name) {
                entry.name = name;
            }
        }
    }

    pub fn record_fault(&mut self, sequence: u64, fault: &str) {
        if let Some(entry) = self.entry(sequence) {
            entry.faults.push(fault.to_owned());
        }
    }

    pub fn fail(&mut self, sequence: u64, problem: String) {
        if let Some(entry) = self.entry(sequence) {
            entry.problem = Some(problem);
        }
        self.close(sequence, None);
    }

    /// Records the end of a request.
    pub fn close(&mut self, sequence: u64, code: Option<u16>) {
        let Some(entry) = self.entry(sequence) else { return };
        entry.code = code;
        let entry = entry.clone();
        if let Some(file) = &mut self.file {
            // The file is for debugging only; tests read the trace in memory.
            let _ = write_line(file, &entry);
        }
    }

    pub fn record_event(&mut self, watch: u64, request: &ApiRequest, event: &Event, fault: Option<String>) {
        let Event { kind, namespace, name, version, uid } = event.clone();
        self.events.push(TraceEvent {
            watch,
            kind,
            resource: request.resource.clone(),
            namespace,
            name,
            version,
            uid,
            fault,
        });
    }

    /// Writes entries to a file from now on.
    pub fn write_to(&mut self, path: &Path) -> anyhow::Result<()> {
        let file = File::create(path).with_context(|| format!("creating the trace {}", path.display()))?;
        self.file = Some(file);
        Ok(())
    }

    /// Returns the stored writes without Leases and Events, in the order in which they were stored.
    pub fn writes(&self) -> Vec<TraceEntry> {
        let mut writes: Vec<TraceEntry> = self.entries.iter().filter(|entry| entry.number.is_some()).cloned().collect();
        writes.sort_by_key(|entry| entry.number);
        writes
    }

    fn entry(&mut self, sequence: u64) -> Option<&mut TraceEntry> {
        let index = usize::try_from(sequence.checked_sub(1)?).ok()?;
        self.entries.get_mut(index)
    }
}

fn write_line(file: &mut File, entry: &TraceEntry) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    Ok(file.write_all(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: Verb, resource: &str) -> ApiRequest {
        let (resource, name) = (resource.to_owned(), "one".to_owned());
        ApiRequest { verb, resource, namespace: "a".to_owned(), name, agent: String::new(), dry_run: false }
    }

    fn record(trace: &mut Trace, request: &ApiRequest, code: u16) {
        let sequence = trace.open(request, Identity::default(), None);
        trace.respond(sequence, request, code, Identity::default());
        trace.close(sequence, Some(code));
    }

    #[test]
    fn only_stored_writes_are_numbered() {
        let mut trace = Trace::default();
        record(&mut trace, &request(Verb::List, "pods"), 200);
        record(&mut trace, &request(Verb::Create, "pods"), 201);
        record(&mut trace, &request(Verb::Create, "pods"), 409);
        record(&mut trace, &request(Verb::Create, "events"), 201);
        record(&mut trace, &request(Verb::Update, "leases.coordination.k8s.io"), 200);
        record(&mut trace, &request(Verb::Delete, "pods"), 200);
        let numbers: Vec<_> = trace.writes().iter().map(|entry| (entry.number, entry.sequence)).collect();
        assert_eq!(numbers, [(Some(1), 2), (Some(2), 6)]);
    }

    #[test]
    fn file_has_one_line_per_request() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let mut trace = Trace::default();
        trace.write_to(&path).unwrap();
        record(&mut trace, &request(Verb::Create, "pods"), 201);
        record(&mut trace, &request(Verb::Get, "pods"), 200);
        let text = std::fs::read_to_string(&path).unwrap();
        let parsed: Vec<TraceEntry> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(parsed, trace.entries);
    }
}
