//! A decision as a value: what to write, in which order, what to tell, and when to look again.

use std::time::Duration;

use odc_api::v1alpha1::condition::Reason;

use crate::object::{Kind, Object};

/// One write. Each is a point where the operator may die, so any prefix of a plan must be a fine place to go on from.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Server-side apply with force, for objects that change and are wholly ours.
    Apply(Object),
    /// For objects that are made once. One that exists already must be ours.
    Create(Object),
    Delete(Target),
    /// Puts our owner reference back onto an object that was made for us.
    Adopt {
        target: Target,
        owner: serde_json::Value,
    },
}

/// An object that was seen; never another one that took its name since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub kind: Kind,
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
    /// How long it may take to stop; none leaves it to the object, zero does not wait for its node.
    pub grace: Option<u32>,
}

/// What happened, for people. Written at most once for each change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub serious: bool,
    pub reason: Reason,
    /// What was done, as a verb.
    pub action: &'static str,
    /// One sentence in the past tense.
    pub note: String,
}

/// When to look again if nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    OnChange,
    After(Duration),
}

impl Again {
    /// The earlier of two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(two)) => Self::After(one.min(two)),
            (Self::OnChange, other) => other,
            (this, Self::OnChange) => this,
        }
    }
}
