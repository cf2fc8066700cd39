//! What devctl reads of a server: only what it prints or decides by.
//!
//! A list of thousands is read in a fraction of the time that whole objects would take, most of all because nobody
//! looks into `managedFields`. Words that a newer operator may add to are plain text here, so that one server it made
//! never hides the others.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use odc_api::duration::Duration;
use odc_api::queue::Moved;
use odc_api::v1alpha1::{DevServer, Phase};
use serde::{Deserialize, Deserializer};

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = DevServer)]
pub struct Glance {
    #[serde(deserialize_with = "light")]
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
    pub access: Option<Door>,
    pub pods: Vec<Pod>,
    pub restarts: Option<i64>,
    pub oom_kills: Option<i64>,
    pub last_failure: Option<LastFailure>,
    pub timeline: Vec<Entry>,
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
    /// Why those.
    pub placement: Option<String>,
    pub backfilled: bool,
    pub borrowed: bool,
    pub queued_at: Option<Time>,
    pub position: Option<i64>,
    pub eta: Option<Eta>,
    /// Why its latest start is later than it was. Statuses do not have it.
    pub moved: Option<Moved>,
    pub reason: Option<String>,
    pub message: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Eta {
    pub p50: Time,
    pub p90: Time,
    /// If everybody ahead stays as long as they may. Statuses do not have it.
    #[serde(default)]
    pub latest: Option<Time>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Lifetime {
    pub asked: Duration,
    pub granted: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hibernation {
    pub since: Time,
    pub by: String,
    #[serde(default)]
    pub wake_seen: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Door {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub host_key: Option<String>,
    pub jupyter_url: Option<String>,
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
pub struct Entry {
    pub phase: String,
    pub at: Time,
    pub reason: String,
}

impl Glance {
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Whose it is: the user its namespace belongs to.
    pub fn owner(&self) -> String {
        odc_api::namespace::owner(self.namespace()).map_or_else(|| self.namespace().to_owned(), String::from)
    }

    pub fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }

    /// Where it is in its life, as far as this devctl knows the word.
    pub fn phase(&self) -> Option<Phase> {
        Phase::ALL.iter().copied().find(|phase| phase.as_str() == self.phase_word())
    }

    /// The phase as it is written. Until the operator writes one, the queue may have said more; and one that was told
    /// to end does, also before the operator says so.
    pub fn phase_word(&self) -> &str {
        let unwritten = if self.position().is_some() { Phase::Queued } else { Phase::Pending };
        let written = self.status.phase.as_deref().unwrap_or(unwritten.as_str());
        let known = Phase::ALL.iter().find(|phase| phase.as_str() == written);
        if self.ending() && known.is_some_and(|phase| !phase.terminal()) { Phase::Stopping.as_str() } else { written }
    }

    /// Somebody said that it should end.
    pub fn ending(&self) -> bool {
        self.spec.desired.as_deref() == Some("Ended")
    }

    pub fn ended(&self) -> bool {
        self.phase().is_some_and(Phase::terminal)
    }

    pub fn deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    pub fn holds(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == "True")
    }

    /// Whether the operator's word is about the spec as it is now.
    pub fn settled(&self) -> bool {
        self.status.observed_generation == self.metadata.generation
    }

    /// It can be used right now.
    pub fn ready(&self) -> bool {
        self.phase() == Some(Phase::Running) && self.holds("Ready") && !self.deleting()
    }

    pub fn nodes(&self) -> u32 {
        self.spec.nodes.unwrap_or(1)
    }

    /// The flavor it got, or asked for.
    pub fn flavor(&self) -> Option<&str> {
        self.status.flavor.as_deref().or(self.spec.flavor.as_deref())
    }

    pub fn ephemeral(&self) -> bool {
        self.spec.home.ephemeral.is_some()
    }

    /// The time it is booked for, while that has not come.
    pub fn booked(&self, now: Timestamp) -> Option<Timestamp> {
        let at = self.spec.scheduling.not_before.as_ref()?.0;
        (at > now && matches!(self.phase(), Some(Phase::Pending | Phase::Queued))).then_some(at)
    }

    pub fn position(&self) -> Option<i64> {
        self.status.admission.as_ref().and_then(|admission| admission.position)
    }
}

impl TryFrom<&DevServer> for Glance {
    type Error = serde_json::Error;

    /// The same look at a whole object.
    fn try_from(server: &DevServer) -> Result<Self, serde_json::Error> {
        serde_json::from_value(serde_json::to_value(server)?)
    }
}

/// The metadata that is looked at. The rest, `managedFields` most of all, is passed over unread.
fn light<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
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
    let light = Light::deserialize(from)?;
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
    fn a_whole_object_and_a_glance_at_it_say_the_same() {
        let server = DevServer::test().in_phase(Phase::Queued).status(|status| {
            status.admission = Some(odc_api::v1alpha1::Admission { position: Some(3), ..Default::default() });
        });
        let glance = Glance::try_from(&server).unwrap();
        assert_eq!((glance.name(), &glance.owner()[..], glance.phase()), ("server-1", "ada", Some(Phase::Queued)));
        assert_eq!(glance.position(), Some(3));
        assert_eq!(glance.spec.lifetime, Some(server.spec.lifetime));
    }

    #[test]
    fn what_was_told_to_end_stops_and_what_has_ended_stays_as_it_ended() {
        let phase = |phase: Phase| {
            let mut server = DevServer::test().in_phase(phase);
            server.spec.desired = odc_api::v1alpha1::Desired::Ended;
            Glance::try_from(&server).unwrap().phase()
        };
        assert_eq!(phase(Phase::Running), Some(Phase::Stopping));
        assert_eq!(phase(Phase::Queued), Some(Phase::Stopping));
        assert_eq!(phase(Phase::Expired), Some(Phase::Expired));
    }

    #[test]
    fn words_of_a_newer_operator_are_shown_as_they_are() {
        let text = r#"{"metadata": {"name": "box", "managedFields": 7}, "spec": {"home": {"cloud": "x"}, "desired": "Parked"},
            "status": {"phase": "Migrating", "hibernation": {"since": "2026-01-01T00:00:00Z", "by": "Moon"}}}"#;
        let glance: Glance = serde_json::from_str(text).unwrap();
        assert_eq!((glance.phase(), glance.phase_word(), glance.ended()), (None, "Migrating", false));
    }
}
