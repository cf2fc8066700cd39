//! What passed, in order: the reference of a run without faults, and the evidence of one with them.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::apifault::call::{Call, Verb};
use crate::apifault::event::{Event, Kind};
use crate::apifault::object::Identity;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// From 1, in the order of arrival.
    pub sequence: u64,
    pub verb: Verb,
    /// With group and subresource, as in `devservers.odc.dev/status`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub agent: String,
    /// What the API server answered, if it was asked and answered.
    pub server_code: Option<u16>,
    /// What the client was answered, if it was.
    pub code: Option<u16>,
    /// What the request said it expects: in the object, as a precondition, or as parameter.
    pub version_before: Option<String>,
    pub uid_before: Option<String>,
    /// Of the object in the API server's answer.
    pub version_after: Option<String>,
    pub uid: Option<String>,
    /// Short hash of the request's body.
    pub body: Option<String>,
    /// Whether it stores something when it succeeds.
    pub write: bool,
    /// Its place among the stored writes, Leases and Events apart: the k of a fault on the k-th write.
    pub number: Option<u64>,
    /// Which faults fired.
    pub faults: Vec<String>,
    /// Why there is no answer, where no fault wanted that.
    pub problem: Option<String>,
}

/// One event of a watch, on its way to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// The sequence number of the watch.
    pub watch: u64,
    pub kind: Kind,
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub version: String,
    pub uid: String,
    pub fault: Option<String>,
}

#[derive(Debug, Default)]
pub struct Trace {
    pub entries: Vec<Entry>,
    pub events: Vec<Passed>,
    stored: u64,
    file: Option<File>,
}

impl Trace {
    /// Notes a request that has just come in.
    pub fn open(&mut self, call: &Call, stated: Identity, body: Option<String>) -> u64 {
        let sequence = self.entries.len() as u64 + 1;
        let Call { verb, resource, namespace, name, agent, dry_run: _ } = call.clone();
        self.entries.push(Entry {
            sequence,
            verb,
            resource,
            namespace,
            name,
            agent,
            server_code: None,
            code: None,
            version_before: stated.version,
            uid_before: stated.uid,
            version_after: None,
            uid: None,
            body,
            write: call.is_write(),
            number: None,
            faults: Vec::new(),
            problem: None,
        });
        sequence
    }

    /// Notes the API server's answer.
    pub fn answered(&mut self, sequence: u64, call: &Call, code: u16, found: Identity) {
        let stored = call.is_write() && !call.is_routine() && code < 300;
        self.stored += u64::from(stored);
        let number = stored.then_some(self.stored);
        let Some(entry) = self.entry(sequence) else { return };
        entry.server_code = Some(code);
        entry.number = number;
        // An error has an object too, and it is not the one that was asked for.
        if code < 300 {
            entry.version_after = found.version;
            entry.uid = found.uid;
            if let (true, Some(name)) = (entry.name.is_empty() && entry.verb != Verb::List, found.name) {
                entry.name = name;
            }
        }
    }

    pub fn fired(&mut self, sequence: u64, fault: &str) {
        if let Some(entry) = self.entry(sequence) {
            entry.faults.push(fault.to_owned());
        }
    }

    pub fn failed(&mut self, sequence: u64, problem: String) {
        if let Some(entry) = self.entry(sequence) {
            entry.problem = Some(problem);
        }
        self.close(sequence, None);
    }

    /// Nothing more happens to this request.
    pub fn close(&mut self, sequence: u64, code: Option<u16>) {
        let Some(entry) = self.entry(sequence) else { return };
        entry.code = code;
        let entry = entry.clone();
        if let Some(file) = &mut self.file {
            // The file is for people to read; what tests judge is in memory.
            let _ = write_line(file, &entry);
        }
    }

    pub fn passed(&mut self, watch: u64, call: &Call, event: &Event, fault: Option<String>) {
        let Event { kind, namespace, name, version, uid } = event.clone();
        self.events.push(Passed { watch, kind, resource: call.resource.clone(), namespace, name, version, uid, fault });
    }

    /// From now on.
    pub fn write_to(&mut self, path: &Path) -> anyhow::Result<()> {
        let file = File::create(path).with_context(|| format!("creating the trace {}", path.display()))?;
        self.file = Some(file);
        Ok(())
    }

    /// Stored writes, Leases and Events apart, in the order in which they were stored.
    pub fn writes(&self) -> Vec<Entry> {
        let mut writes: Vec<Entry> = self.entries.iter().filter(|entry| entry.number.is_some()).cloned().collect();
        writes.sort_by_key(|entry| entry.number);
        writes
    }

    fn entry(&mut self, sequence: u64) -> Option<&mut Entry> {
        let index = usize::try_from(sequence.checked_sub(1)?).ok()?;
        self.entries.get_mut(index)
    }
}

fn write_line(file: &mut File, entry: &Entry) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    Ok(file.write_all(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(verb: Verb, resource: &str) -> Call {
        let (resource, name) = (resource.to_owned(), "one".to_owned());
        Call { verb, resource, namespace: "a".to_owned(), name, agent: String::new(), dry_run: false }
    }

    fn pass(trace: &mut Trace, call: &Call, code: u16) {
        let sequence = trace.open(call, Identity::default(), None);
        trace.answered(sequence, call, code, Identity::default());
        trace.close(sequence, Some(code));
    }

    #[test]
    fn only_stored_writes_are_numbered() {
        let mut trace = Trace::default();
        pass(&mut trace, &call(Verb::List, "pods"), 200);
        pass(&mut trace, &call(Verb::Create, "pods"), 201);
        pass(&mut trace, &call(Verb::Create, "pods"), 409);
        pass(&mut trace, &call(Verb::Create, "events"), 201);
        pass(&mut trace, &call(Verb::Update, "leases.coordination.k8s.io"), 200);
        pass(&mut trace, &call(Verb::Delete, "pods"), 200);
        let numbers: Vec<_> = trace.writes().iter().map(|entry| (entry.number, entry.sequence)).collect();
        assert_eq!(numbers, [(Some(1), 2), (Some(2), 6)]);
    }

    #[test]
    fn a_file_has_one_line_per_request() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let mut trace = Trace::default();
        trace.write_to(&path).unwrap();
        pass(&mut trace, &call(Verb::Create, "pods"), 201);
        pass(&mut trace, &call(Verb::Get, "pods"), 200);
        let text = std::fs::read_to_string(&path).unwrap();
        let read: Vec<Entry> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(read, trace.entries);
    }
}
