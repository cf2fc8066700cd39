//! Conditions: the observed state of an object, for users (`kubectl describe`), tools (`kubectl wait`) and the
//! operator.
//!
//! Types and reasons are enums here but strings in the API: a newer operator may store a value that this version does
//! not know, which must not make the object invalid.

mod reason;

use std::num::NonZero;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use reason::Reason;

use crate::open_enum::{OpenEnum, string_enum};
use crate::text::Text;

/// The message of a condition. The limit is lower than that of Kubernetes, because a message is one or two sentences.
pub type Message = Text<1024>;

string_enum! {
    /// The type of a condition. A `DevServer` has those from Accepted to Expiring, a `Disk` has Ready, InUse,
    /// PointsAvailable and Resized, a `DiskOperation` has Complete, the other kinds have Ready.
    pub enum Type {
        /// The request is valid. While it is False the server is not scheduled; the message says what to change.
        Accepted,
        /// The image is available. Always True, because builds are not implemented yet.
        ImageReady,
        /// The home is available: bound, waiting for its first consumer, or ephemeral.
        DiskReady,
        /// The server is admitted: devices and nodes are assigned.
        Admitted,
        /// All pods of the current run are ready.
        PodsReady,
        /// The summary: the object can be used. This is the condition for `kubectl wait`.
        Ready,
        /// The server is idle by its idle policy; the message says when it will be stopped.
        Idle,
        /// The server's lifetime ends within 30 minutes.
        Expiring,
        /// A server uses the disk, or its restore point is being taken.
        InUse,
        /// Restore points of the disk can be taken.
        PointsAvailable,
        /// The volume of the disk has the size of the disk.
        Resized,
        /// The operation has succeeded. False while it is pending or running, and when it has failed.
        Complete,
    }
}

string_enum! {
    /// The status of a condition.
    pub enum Status {
        True,
        False,
        /// The state is not known. Never treated as True or False.
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

/// An unknown value is read as Unknown.
impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(OpenEnum::deserialize(deserializer)?.known().unwrap_or(Self::Unknown))
    }
}

/// A condition in the format of Kubernetes. The type of k8s-openapi has five strings; every server has eight
/// conditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: OpenEnum<Type>,
    pub status: Status,
    pub reason: OpenEnum<Reason>,
    pub message: Message,
    pub last_transition_time: Time,
    #[serde(default, deserialize_with = "generation", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<NonZero<i64>>,
}

/// No object has generation 0, but clients can write it.
fn generation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZero<i64>>, D::Error> {
    Ok(Option::<i64>::deserialize(deserializer)?.and_then(NonZero::new))
}

/// Creates a condition. Its transition time is `now`; [`set`] keeps the previous one if the status does not change.
pub fn new(kind: Type, status: Status, reason: Reason, message: &str, generation: Option<i64>, now: Time) -> Condition {
    Condition {
        kind: kind.into(),
        status,
        reason: reason.into(),
        message: Message::truncated(message),
        observed_generation: generation.and_then(NonZero::new),
        last_transition_time: now,
    }
}

pub fn find(conditions: &[Condition], kind: Type) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Reports whether a condition exists and is True.
pub fn is_true(conditions: &[Condition], kind: Type) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == Status::True)
}

/// Inserts a condition or replaces the one of the same type. The transition time changes only with the status, so
/// setting the same state twice is a no-op.
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

/// Returns the schema of a list of conditions, with the limits of Kubernetes for type and reason.
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
                    "description": "Type of the condition, such as Ready.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
                },
                "status": {
                    "description": "Status of the condition: True, False or Unknown.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Programmatic identifier of the reason for the last transition.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 128,
                    "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Human-readable details, including what to do.",
                    "type": "string",
                    "maxLength": 1024,
                },
                "lastTransitionTime": {
                    "description": "Last time the status changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "Generation of the object for which the condition was set.",
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
    fn transition_time_changes_only_with_the_status() {
        let mut conditions = vec![ready(Status::True, "Up.", 10)];
        set(&mut conditions, ready(Status::True, "Up again.", 20));
        assert_eq!((&conditions[0].message[..], &conditions[0].last_transition_time), ("Up again.", &at(10)));
        set(&mut conditions, ready(Status::False, "Down.", 30));
        assert_eq!(conditions[0].last_transition_time, at(30));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn setting_the_same_condition_twice_is_a_no_op() {
        let mut once = vec![];
        set(&mut once, ready(Status::True, "Up.", 10));
        let mut twice = once.clone();
        set(&mut twice, ready(Status::True, "Up.", 99));
        assert_eq!(once, twice);
    }

    #[test]
    fn unknown_is_not_true() {
        let conditions = [ready(Status::Unknown, "The agent is unreachable.", 10)];
        assert!(!is_true(&conditions, Type::Ready));
        assert!(find(&conditions, Type::Ready).is_some());
        assert!(find(&conditions, Type::Idle).is_none());
    }

    /// Thousands of servers have eight conditions each; a list of eight must fit into a 640-byte allocation.
    #[test]
    fn condition_fits_into_80_bytes() {
        assert!(size_of::<Condition>() <= 80);
    }

    #[test]
    fn unknown_values_are_deserialized() {
        let written = r#"{"type":"NewType","status":"NewStatus","reason":"NewReason","message":"","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":0}"#;
        let condition: Condition = serde_json::from_str(written).unwrap();
        assert_eq!((condition.status, condition.observed_generation), (Status::Unknown, None));
        assert_eq!((&*condition.kind, &*condition.reason), ("NewType", "NewReason"));
    }

    #[test]
    fn long_message_is_truncated() {
        assert_eq!(ready(Status::False, &"x".repeat(5000), 0).message.chars().count(), 1024);
    }
}
