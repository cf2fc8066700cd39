//! What shall go wrong, as a value: built in code or read from a file.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::apifault::event::Kind;
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
        serde_json::from_str(&text).with_context(|| format!("reading the plan {}", path.display()))
    }
}

/// A trigger and what it sets off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Only writes count, and only those that the API server stores: a write that fails is no step of the work.
    Write(OnRequest),
    /// Every request counts, whatever becomes of it.
    Request(OnRequest),
    /// Events of watches count, over all watches.
    Event(OnEvent),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnRequest {
    /// From 1. The fault fires there and, while it has times left, at every later one.
    #[serde(default = "first")]
    pub nth: u64,
    #[serde(default)]
    pub of: Pattern,
    pub at: Moment,
    pub r#do: Action,
    #[serde(default)]
    pub times: Times,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnEvent {
    /// As for requests.
    #[serde(default = "first")]
    pub nth: u64,
    /// Resource and agent of the watch, namespace and name of the object.
    #[serde(default)]
    pub of: Pattern,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    pub r#do: EventAction,
    #[serde(default)]
    pub times: Times,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// The API server has not heard of it.
    Before,
    /// The API server has answered, a write is stored; the client has not heard of it.
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

/// What happens to a request. Without a word about it, the request then goes on as if nothing had been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// SIGKILL to the client, and no answer.
    Kill,
    /// SIGSTOP to the client.
    Stop,
    /// The connection is closed without an answer.
    HangUp,
    /// This instead of an answer of the API server.
    Answer {
        code: u16,
        /// As Kubernetes spells it; the usual one of the code if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Seconds, in the header.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
    },
    Delay {
        milliseconds: u64,
    },
    /// Until released. A held write reaches the API server even if its client has gone meanwhile.
    Hold,
    /// The answer that the n-th LIST of the same path got. Waits for a LIST that has an older one.
    OldList {
        nth: usize,
    },
}

impl Action {
    pub fn answer(code: u16) -> Self {
        Self::Answer { code, reason: None, retry_after: None }
    }

    /// Nothing comes after it.
    pub(super) fn ends_the_request(&self) -> bool {
        !matches!(self, Self::Stop | Self::Delay { .. } | Self::Hold)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventAction {
    Drop,
    /// The client gets it twice.
    Repeat,
    /// Until released, with all that come after it on this watch.
    Hold,
    /// The watch ends with 410 in place of the event.
    Expire,
}

fn first() -> u64 {
    1
}

impl Fault {
    /// The k-th write of all, or of a pattern; see [`Trigger`].
    pub fn write(nth: u64) -> Trigger {
        Trigger::new(Self::Write, nth)
    }

    pub fn request(nth: u64) -> Trigger {
        Trigger::new(Self::Request, nth)
    }

    pub fn event(nth: u64, of: Pattern, kind: Option<Kind>, action: EventAction) -> Self {
        Self::Event(OnEvent { nth, of, kind, r#do: action, times: Times::default() })
    }

    #[must_use]
    pub fn always(self) -> Self {
        self.with(Times::Always)
    }

    #[must_use]
    pub fn times(self, count: u64) -> Self {
        self.with(Times::Count(count))
    }

    fn with(mut self, wanted: Times) -> Self {
        match &mut self {
            Self::Write(OnRequest { times, .. })
            | Self::Request(OnRequest { times, .. })
            | Self::Event(OnEvent { times, .. }) => *times = wanted,
        }
        self
    }
}

/// Half a fault: `Fault::write(3).of(pattern).after(Action::Kill)`.
#[derive(Clone, Debug)]
pub struct Trigger {
    on: fn(OnRequest) -> Fault,
    nth: u64,
    of: Pattern,
}

impl Trigger {
    fn new(on: fn(OnRequest) -> Fault, nth: u64) -> Self {
        Self { on, nth, of: Pattern::default() }
    }

    #[must_use]
    pub fn of(self, of: Pattern) -> Self {
        Self { of, ..self }
    }

    pub fn before(self, action: Action) -> Fault {
        self.at(Moment::Before, action)
    }

    pub fn after(self, action: Action) -> Fault {
        self.at(Moment::After, action)
    }

    fn at(self, at: Moment, action: Action) -> Fault {
        (self.on)(OnRequest { nth: self.nth, of: self.of, at, r#do: action, times: Times::default() })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(on) => write!(to, "write {}: {:?} {:?}", on.nth, on.r#do, on.at),
            Self::Request(on) => write!(to, "request {}: {:?} {:?}", on.nth, on.r#do, on.at),
            Self::Event(on) => write!(to, "event {}: {:?}", on.nth, on.r#do),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apifault::call::Verb;

    const FILE: &str = r#"{"faults": [
        {"write": {"nth": 3, "of": {"resource": "configmaps", "verb": "create"}, "at": "after", "do": "kill"}},
        {"request": {"of": {"name_prefix": "ada-"}, "at": "before", "do": {"answer": {"code": 429, "retry_after": 2}}, "times": "always"}},
        {"event": {"nth": 2, "of": {"resource": "pods"}, "type": "DELETED", "do": "drop", "times": 4}}
    ]}"#;

    #[test]
    fn a_file_says_the_same_as_code() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan.json");
        std::fs::write(&path, FILE).unwrap();
        let answer = Action::Answer { code: 429, reason: None, retry_after: Some(2) };
        let plan = Plan::new([
            Fault::write(3).of(Pattern::verb(Verb::Create, "configmaps")).after(Action::Kill),
            Fault::request(1).of(Pattern::default().prefixed("ada-")).before(answer).always(),
            Fault::event(2, Pattern::resource("pods"), Some(Kind::Deleted), EventAction::Drop).times(4),
        ]);
        assert_eq!(Plan::read(&path).unwrap(), plan);
        assert_eq!(serde_json::from_str::<Plan>(&serde_json::to_string(&plan).unwrap()).unwrap(), plan);
    }

    #[test]
    fn a_misspelt_word_is_refused() {
        for (right, wrong) in [("\"nth\"", "\"nht\""), ("\"verb\"", "\"verbs\""), ("retry_after", "retryAfter")] {
            assert!(serde_json::from_str::<Plan>(&FILE.replace(right, wrong)).is_err(), "{wrong}");
        }
    }
}
