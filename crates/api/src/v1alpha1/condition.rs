//! Conditions: what is true of an object right now, for people (`kubectl describe`), tools (`kubectl wait`) and the
//! decisions of the operator.
//!
//! Types and reasons are closed sets here, but plain text in the API: a newer operator may store one this build does
//! not know, and an unknown reason must not make an object unreadable.

mod reason;

use std::num::NonZero;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use reason::Reason;

use crate::text::Text;
use crate::word::{Word, words};

/// Shorter than Kubernetes' own limit: a message is one sentence.
pub type Sentence = Text<1024>;

words! {
    /// What a condition speaks about. A `DevServer` has all of them, the other kinds have Ready.
    pub enum Type {
        /// The request is complete and allowed. While False nothing else happens, and the message says what to change.
        Accepted,
        /// The image is built, or needs no build.
        ImageReady,
        /// The home is there: bound, waiting for its first consumer, or ephemeral.
        DiskReady,
        /// The queue has granted devices and nodes.
        Admitted,
        /// All pods of the current run are ready.
        PodsReady,
        /// The summary: the object can be used as asked. Wait for this one.
        Ready,
        /// Nobody uses the server, by its own policy; the message says when it will stop.
        Idle,
        /// The server's time ends within half an hour.
        Expiring,
    }
}

words! {
    /// Whether it holds.
    pub enum Status {
        True,
        False,
        /// It cannot be known at the moment. It is never read as True or False.
        Unknown,
    }
}

impl PartialEq<&str> for Status {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// What is none of them says nothing, and so it is not known whether the condition holds.
impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Word::deserialize(deserializer)?.known().unwrap_or(Self::Unknown))
    }
}

/// As Kubernetes writes it. Its own type keeps five texts for each, and every server has eight of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: Word<Type>,
    pub status: Status,
    pub reason: Word<Reason>,
    pub message: Sentence,
    pub last_transition_time: Time,
    #[serde(default, deserialize_with = "generation", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<NonZero<i64>>,
}

/// Nothing has generation 0, but it can be written.
fn generation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZero<i64>>, D::Error> {
    Ok(Option::<i64>::deserialize(deserializer)?.and_then(NonZero::new))
}

/// A condition as it is now. Its transition time is `now`; [`set`] keeps the older one if nothing flipped.
pub fn new(kind: Type, status: Status, reason: Reason, message: &str, generation: Option<i64>, now: Time) -> Condition {
    Condition {
        kind: kind.into(),
        status,
        reason: reason.into(),
        message: Sentence::start_of(message),
        observed_generation: generation.and_then(NonZero::new),
        last_transition_time: now,
    }
}

pub fn find(conditions: &[Condition], kind: Type) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// True, and not merely not False.
pub fn holds(conditions: &[Condition], kind: Type) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == Status::True)
}

/// Puts a condition into the list, in the place of its type. The transition time moves only when the status flips, so
/// the same state written twice is the same list.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) {
    match conditions.iter_mut().find(|old| old.kind == new.kind) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

/// The schema of a list of conditions, with Kubernetes' own limits on type and reason.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {
                    "description": "What the condition speaks about, such as Ready.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
                },
                "status": {
                    "description": "Whether it holds: True, False, or Unknown when it cannot be known at the moment.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Why, in one word for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 128,
                    "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Why, in one sentence for people, and what to do about it.",
                    "type": "string",
                    "maxLength": 1024,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "The generation of the object this condition was computed from.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn ready(status: Status, message: &str, second: i64) -> Condition {
        new(Type::Ready, status, Reason::Running, message, Some(1), at(second))
    }

    #[test]
    fn time_moves_only_when_the_status_flips() {
        let mut conditions = vec![ready(Status::True, "Up.", 10)];
        set(&mut conditions, ready(Status::True, "Up again.", 20));
        assert_eq!((&conditions[0].message[..], &conditions[0].last_transition_time), ("Up again.", &at(10)));
        set(&mut conditions, ready(Status::False, "Down.", 30));
        assert_eq!(conditions[0].last_transition_time, at(30));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn setting_twice_is_setting_once() {
        let mut once = vec![];
        set(&mut once, ready(Status::True, "Up.", 10));
        let mut twice = once.clone();
        set(&mut twice, ready(Status::True, "Up.", 99));
        assert_eq!(once, twice);
    }

    #[test]
    fn unknown_holds_nothing() {
        let conditions = [ready(Status::Unknown, "The agent does not answer.", 10)];
        assert!(!holds(&conditions, Type::Ready));
        assert!(find(&conditions, Type::Ready).is_some());
        assert!(find(&conditions, Type::Idle).is_none());
    }

    /// Thousands of servers have eight each, and a list of eight is to take no more than the allocator gives for 640 bytes.
    #[test]
    fn a_condition_is_small() {
        assert!(size_of::<Condition>() <= 80);
    }

    #[test]
    fn what_others_wrote_can_be_read() {
        let written = r#"{"type":"InOrbit","status":"Perhaps","reason":"Luck","message":"","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":0}"#;
        let condition: Condition = serde_json::from_str(written).unwrap();
        assert_eq!((condition.status, condition.observed_generation), (Status::Unknown, None));
        assert_eq!((&*condition.kind, &*condition.reason), ("InOrbit", "Luck"));
    }

    #[test]
    fn an_endless_message_is_cut() {
        assert_eq!(ready(Status::False, &"x".repeat(5000), 0).message.chars().count(), 1024);
    }
}
