//! The part of a `DevServer` that devctl prints or decides by.
//!
//! Parsing a summary takes a fraction of the time of a whole object, mostly because `managedFields` is skipped. Enums that
//! a newer operator may extend are strings here, so that one unknown value does not fail the whole list.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use odc_api::duration::Duration;
use odc_api::queue;
use odc_api::v1alpha1::{DevServer, Phase};
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = DevServer)]
pub struct ServerSummary {
    #[serde(deserialize_with = "light_metadata")]
    pub metadata: ObjectMeta,
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub team: Option<String>,
    pub flavor: Option<String>,
    pub count: Option<u32>,
    pub nodes: Option<u32>,
    pub desired: Option<String>,
    pub wake: Option<String>,
    pub image: Option<Image>,
    pub lifetime: Option<Duration>,
    pub idle: Option<Idle>,
    pub home: Home,
    pub access: Access,
    pub scheduling: Scheduling,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scheduling {
    pub not_before: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Image {
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    pub build: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Idle {
    pub timeout: Option<Duration>,
    pub action: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Home {
    pub disk: Option<String>,
    pub claim: Option<String>,
    pub ephemeral: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Access {
    pub keys: Vec<String>,
    pub users: Vec<String>,
    pub jupyter: bool,
    pub ports: Vec<Port>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Port {
    pub name: String,
    pub port: u16,
    #[serde(default)]
    pub share: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub phase: Option<String>,
    pub flavor: Option<String>,
    pub conditions: Vec<Condition>,
    pub admission: Option<Admission>,
    pub started_at: Option<Time>,
    pub lifetime: Option<Lifetime>,
    pub expires_at: Option<Time>,
    pub finished_at: Option<Time>,
    pub hibernation: Option<Hibernation>,
    pub access: Option<AccessStatus>,
    pub pods: Vec<Pod>,
    pub restarts: Option<i64>,
    pub oom_kills: Option<i64>,
    pub last_failure: Option<LastFailure>,
    pub timeline: Vec<TimelineEntry>,
    pub observed_generation: Option<i64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    pub last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Admission {
    pub nodes: Vec<String>,
    /// The placement rule that chose the nodes.
    pub placement: Option<String>,
    pub backfilled: bool,
    pub borrowed: bool,
    pub queued_at: Option<Time>,
    pub position: Option<i64>,
    pub eta: Option<Eta>,
    /// Why the latest start was delayed. Only from the queue API.
    pub delayed: Option<DelayedStart>,
    pub reason: Option<String>,
    pub message: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Eta {
    pub p50: Time,
    pub p90: Time,
    /// The start if all servers ahead use their full lifetime. Only from the queue API.
    #[serde(default)]
    pub latest: Option<Time>,
}

/// A planned start that was delayed. Unlike the type of the API, it prints an unknown start as null.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct DelayedStart {
    pub from: Time,
    pub to: Option<Time>,
    pub reason: String,
    pub message: String,
}

impl From<queue::DelayedStart> for DelayedStart {
    fn from(delay: queue::DelayedStart) -> Self {
        let queue::DelayedStart { from, to, reason, message } = delay;
        Self { from, to, reason, message }
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Lifetime {
    pub requested: Duration,
    pub granted: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hibernation {
    pub since: Time,
    pub cause: String,
    #[serde(default)]
    pub observed_wake: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessStatus {
    pub host_key: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Pod {
    pub name: String,
    #[serde(default)]
    pub node: Option<String>,
    #[serde(default)]
    pub ready: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastFailure {
    pub reason: String,
    pub message: String,
    pub time: Time,
    #[serde(default)]
    pub log_tail: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct TimelineEntry {
    pub phase: String,
    pub at: Time,
    pub reason: String,
}

impl ServerSummary {
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the user who owns the namespace.
    pub fn owner(&self) -> String {
        odc_api::namespace::owner(self.namespace()).map_or_else(|| self.namespace().to_owned(), String::from)
    }

    pub fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }

    /// Returns the phase, if this version of devctl knows it.
    pub fn phase(&self) -> Option<Phase> {
        Phase::ALL.iter().copied().find(|phase| phase.as_str() == self.phase_str())
    }

    /// Returns the phase as text. Before the operator sets one, a queue position implies `Queued`. A server with
    /// `spec.desired: Ended` is shown as `Stopping` even if the operator has not reacted yet.
    pub fn phase_str(&self) -> &str {
        let default = if self.position().is_some() { Phase::Queued } else { Phase::Pending };
        let phase = self.status.phase.as_deref().unwrap_or(default.as_str());
        let known = Phase::ALL.iter().find(|known| known.as_str() == phase);
        let running = known.is_some_and(|phase| !phase.is_terminal());
        if self.is_stopping() && running { Phase::Stopping.as_str() } else { phase }
    }

    /// Reports whether a stop was requested.
    pub fn is_stopping(&self) -> bool {
        self.spec.desired.as_deref() == Some("Ended")
    }

    pub fn is_finished(&self) -> bool {
        self.phase().is_some_and(Phase::is_terminal)
    }

    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    pub fn condition_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == "True")
    }

    /// Reports whether the status reflects the current spec.
    pub fn observed_current(&self) -> bool {
        self.status.observed_generation == self.metadata.generation
    }

    /// Reports whether the server accepts connections.
    pub fn is_ready(&self) -> bool {
        self.phase() == Some(Phase::Running) && self.condition_true("Ready") && !self.is_deleting()
    }

    pub fn nodes(&self) -> u32 {
        self.spec.nodes.unwrap_or(1)
    }

    /// Returns the assigned flavor, or else the requested one.
    pub fn flavor(&self) -> Option<&str> {
        self.status.flavor.as_deref().or(self.spec.flavor.as_deref())
    }

    pub fn has_ephemeral_home(&self) -> bool {
        self.spec.home.ephemeral.is_some()
    }

    /// Returns the start time of a booking while it is in the future.
    pub fn booked_start(&self, now: Timestamp) -> Option<Timestamp> {
        let start = self.spec.scheduling.not_before.as_ref()?.0;
        (start > now && matches!(self.phase(), Some(Phase::Pending | Phase::Queued))).then_some(start)
    }

    pub fn position(&self) -> Option<i64> {
        self.status.admission.as_ref().and_then(|admission| admission.position)
    }
}

impl TryFrom<&DevServer> for ServerSummary {
    type Error = serde_json::Error;

    fn try_from(server: &DevServer) -> Result<Self, serde_json::Error> {
        serde_json::from_value(serde_json::to_value(server)?)
    }
}

/// Deserializes the metadata that is used and skips the rest, such as `managedFields`.
pub(super) fn light_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Light {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
    }
    let light = Light::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: light.name,
        namespace: light.namespace,
        uid: light.uid,
        resource_version: light.resource_version,
        generation: light.generation,
        creation_timestamp: light.creation_timestamp,
        deletion_timestamp: light.deletion_timestamp,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_matches_the_whole_object() {
        let server = DevServer::test().in_phase(Phase::Queued).status(|status| {
            status.admission = Some(odc_api::v1alpha1::Admission { position: Some(3), ..Default::default() });
        });
        let summary = ServerSummary::try_from(&server).unwrap();
        assert_eq!((summary.name(), &summary.owner()[..], summary.phase()), ("server-1", "ada", Some(Phase::Queued)));
        assert_eq!(summary.position(), Some(3));
        assert_eq!(summary.spec.lifetime, Some(server.spec.lifetime));
    }

    #[test]
    fn stop_request_shows_as_stopping_unless_finished() {
        let phase = |phase: Phase| {
            let mut server = DevServer::test().in_phase(phase);
            server.spec.desired = odc_api::v1alpha1::Desired::Ended;
            ServerSummary::try_from(&server).unwrap().phase()
        };
        assert_eq!(phase(Phase::Running), Some(Phase::Stopping));
        assert_eq!(phase(Phase::Queued), Some(Phase::Stopping));
        assert_eq!(phase(Phase::Expired), Some(Phase::Expired));
    }

    #[test]
    fn unknown_values_of_a_newer_operator_are_kept() {
        let text = r#"{"metadata": {"name": "box", "managedFields": 7}, "spec": {"home": {"cloud": "x"}, "desired": "Parked"},
            "status": {"phase": "Migrating", "hibernation": {"since": "2026-01-01T00:00:00Z", "cause": "Moon"}}}"#;
        let summary: ServerSummary = serde_json::from_str(text).unwrap();
        assert_eq!((summary.phase(), summary.phase_str(), summary.is_finished()), (None, "Migrating", false));
    }
}
