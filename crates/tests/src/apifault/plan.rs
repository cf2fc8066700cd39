//! The faults to inject, built in code or read from a file.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::apifault::event::EventKind;
use crate::apifault::pattern::Pattern;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub faults: Vec<Fault>,
}

impl Plan {
    pub fn new(faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { faults: faults.into_iter().collect() }
    }

    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("parsing the plan {}", path.display()))
    }
}

/// A trigger and its action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Counts writes that the API server stores. A failed write does not advance the work of the client.
    Write(OnRequest),
    /// Counts all requests, whatever their result.
    Request(OnRequest),
    /// Counts watch events over all watches.
    Event(OnEvent),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnRequest {
    /// Number of the first match at which the fault fires, counted from 1. It fires at later matches while it has times left.
    #[serde(default = "first")]
    pub nth: u64,
    #[serde(default, rename = "of")]
    pub pattern: Pattern,
    #[serde(rename = "at")]
    pub moment: Moment,
    #[serde(rename = "do")]
    pub action: Action,
    #[serde(default)]
    pub times: Times,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnEvent {
    /// See [`OnRequest::nth`].
    #[serde(default = "first")]
    pub nth: u64,
    /// Matches resource and agent of the watch, namespace and name of the object.
    #[serde(default, rename = "of")]
    pub pattern: Pattern,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<EventKind>,
    #[serde(rename = "do")]
    pub action: EventAction,
    #[serde(default)]
    pub times: Times,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// The API server has not received the request.
    Before,
    /// The API server has responded, and a write is stored. The client has not received the response.
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    Always,
    #[serde(untagged)]
    Count(u64),
}

impl Default for Times {
    fn default() -> Self {
        Self::Count(1)
    }
}

/// What the proxy does to a request. The request continues afterwards unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Sends SIGKILL to the client and closes the connection.
    Kill,
    /// Sends SIGSTOP to the client.
    Stop,
    /// Closes the connection without a response.
    HangUp,
    /// Responds with this status instead of the API server's response.
    Answer {
        code: u16,
        /// Reason of the `Status`; by default the one that Kubernetes uses with the code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Value of the `Retry-After` header in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
    },
    Delay {
        milliseconds: u64,
    },
    /// Holds the request until released. A held write reaches the API server even if its client has exited.
    Hold,
    /// Responds with the response to the n-th LIST of the same path. Fires at a LIST with such a predecessor.
    OldList {
        nth: usize,
    },
}

impl Action {
    pub fn answer(code: u16) -> Self {
        Self::Answer { code, reason: None, retry_after: None }
    }

    /// Reports whether no further action applies to the request.
    pub(super) fn ends_request(&self) -> bool {
        !matches!(self, Self::Stop | Self::Delay { .. } | Self::Hold)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventAction {
    Drop,
    /// Sends the event twice.
    Repeat,
    /// Holds the event and all later ones of this watch until released.
    Hold,
    /// Ends the watch with 410 instead of the event.
    Expire,
}

fn first() -> u64 {
    1
}

impl Fault {
    /// Fires at the `nth` stored write; see [`FaultBuilder`].
    pub fn write(nth: u64) -> FaultBuilder {
        FaultBuilder::new(Self::Write, nth)
    }

    /// Fires at the `nth` request; see [`FaultBuilder`].
    pub fn request(nth: u64) -> FaultBuilder {
        FaultBuilder::new(Self::Request, nth)
    }

    pub fn event(nth: u64, pattern: Pattern, kind: Option<EventKind>, action: EventAction) -> Self {
        Self::Event(OnEvent { nth, pattern, kind, action, times: Times::default() })
    }

    #[must_use]
    pub fn always(self) -> Self {
        self.with_times(Times::Always)
    }

    #[must_use]
    pub fn times(self, count: u64) -> Self {
        self.with_times(Times::Count(count))
    }

    fn with_times(mut self, value: Times) -> Self {
        match &mut self {
            Self::Write(OnRequest { times, .. })
            | Self::Request(OnRequest { times, .. })
            | Self::Event(OnEvent { times, .. }) => *times = value,
        }
        self
    }
}

/// Builds a fault: `Fault::write(3).matching(pattern).after(Action::Kill)`.
#[derive(Clone, Debug)]
pub struct FaultBuilder {
    build: fn(OnRequest) -> Fault,
    nth: u64,
    pattern: Pattern,
}

impl FaultBuilder {
    fn new(build: fn(OnRequest) -> Fault, nth: u64) -> Self {
        Self { build, nth, pattern: Pattern::default() }
    }

    #[must_use]
    pub fn matching(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    pub fn before(self, action: Action) -> Fault {
        self.build(Moment::Before, action)
    }

    pub fn after(self, action: Action) -> Fault {
        self.build(Moment::After, action)
    }

    fn build(self, moment: Moment, action: Action) -> Fault {
        (self.build)(OnRequest { nth: self.nth, pattern: self.pattern, moment, action, times: Times::default() })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(on) => write!(formatter, "write {}: {:?} {:?}", on.nth, on.action, on.moment),
            Self::Request(on) => write!(formatter, "request {}: {:?} {:?}", on.nth, on.action, on.moment),
            Self::Event(on) => write!(formatter, "event {}: {:?}", on.nth, on.action),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apifault::request::Verb;

    const FILE: &str = r#"{"faults": [
        {"write": {"nth": 3, "of": {"resource": "configmaps", "verb": "create"}, "at": "after", "do": "kill"}},
        {"request": {"of": {"name_prefix": "ada-"}, "at": "before", "do": {"answer": {"code": 429, "retry_after": 2}}, "times": "always"}},
        {"event": {"nth": 2, "of": {"resource": "pods"}, "type": "DELETED", "do": "drop", "times": 4}}
    ]}"#;

    #[test]
    fn file_parses_into_the_plan_built_in_code() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan.json");
        std::fs::write(&path, FILE).unwrap();
        let too_many_requests = Action::Answer { code: 429, reason: None, retry_after: Some(2) };
        let plan = Plan::new([
            Fault::write(3).matching(Pattern::verb(Verb::Create, "configmaps")).after(Action::Kill),
            Fault::request(1).matching(Pattern::default().with_name_prefix("ada-")).before(too_many_requests).always(),
            Fault::event(2, Pattern::resource("pods"), Some(EventKind::Deleted), EventAction::Drop).times(4),
        ]);
        assert_eq!(Plan::read(&path).unwrap(), plan);
        assert_eq!(serde_json::from_str::<Plan>(&serde_json::to_string(&plan).unwrap()).unwrap(), plan);
    }

    #[test]
    fn unknown_field_is_rejected() {
        for (right, wrong) in [("\"nth\"", "\"nht\""), ("\"verb\"", "\"verbs\""), ("retry_after", "retryAfter")] {
            assert!(serde_json::from_str::<Plan>(&FILE.replace(right, wrong)).is_err(), "{wrong}");
        }
    }
}
