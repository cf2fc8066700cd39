//! The simulated API server.

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::{Desired, DevServer, DevServerSpec, DevServerStatus, Home, Phase};
use serde_json::Value;

use super::observer::Effect;
use super::{Cluster, Pod, Secret};
use crate::cluster;
use crate::manifest::{Kind, Object};
use crate::plan::{Target, Write};

/// A fault of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The operator crashes after the write was stored.
    Crash,
    /// The write was stored, but the reply is lost.
    LoseReply,
    /// The write was not stored.
    Reject,
}

/// The write failed; the rest of the plan is discarded.
pub(super) struct Interrupted;

/// The reply of the API server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    /// The key of a Secret owned by the server.
    Secret(String),
    Foreign,
    Conflict,
}

impl Cluster {
    /// Performs one write of the operator.
    pub(super) fn write(&mut self, commit: impl FnOnce(&mut Self) -> Answer) -> Result<Answer, Interrupted> {
        self.writes += 1;
        if let Some((_, event)) = self.interleaved.take_if(|(number, _)| *number == self.writes) {
            self.apply(&event);
        }
        let fault = self.fault.take_if(|(number, _)| *number == self.writes).map(|(_, fault)| fault);
        if fault == Some(Fault::Reject) {
            return Err(Interrupted);
        }
        let answer = commit(self);
        match fault {
            Some(Fault::Crash) => {
                self.operator.crash();
                Err(Interrupted)
            }
            Some(Fault::LoseReply | Fault::Reject) => Err(Interrupted),
            None => Ok(answer),
        }
    }

    pub(super) fn execute(&mut self, write: &Write) -> Result<Answer, Interrupted> {
        let write = write.clone();
        self.write(|cluster| match write {
            Write::Create(object) => cluster.create_pod(&object),
            Write::CreateWithKeys { secret, .. } => cluster.create_secret(&secret),
            Write::Apply(object) => cluster.apply_service(object),
            Write::Delete(target) if target.kind == Kind::DevServer => cluster.delete_server(&target),
            Write::Delete(target) => cluster.delete_pod(&target),
            Write::Adopt { target, owner } => cluster.adopt_pod(&target, &owner),
        })
    }

    fn create_pod(&mut self, manifest: &Object) -> Answer {
        assert_eq!(manifest.kind, Kind::Pod);
        // It is created only if the name is free, and nothing else creates pods here.
        assert!(self.pods.iter().all(|pod| pod.object.name != manifest.name), "pod {} exists", manifest.name);
        let mut pod: k8s::Pod = serde_json::from_value(manifest.body.clone()).unwrap();
        pod.metadata.uid = Some(format!("uid-pod-{}", self.number()));
        pod.metadata.creation_timestamp = Some(to_api_precision(self.now));
        let affinity = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
        let pinned = &manifest.body.pointer(affinity).unwrap()["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
        let object = cluster::Pod::from_api(&pod);
        let key = object.server.as_ref().and_then(|details| details.host_key.clone()).unwrap();
        let pod = Pod { object, pinned: pinned.as_str().unwrap().to_owned(), key };
        self.check_new_pod(&pod);
        self.pods.push(pod);
        self.record(Effect::Create(Kind::Pod, manifest.name.clone()));
        Answer::Done
    }

    fn create_secret(&mut self, object: &Object) -> Answer {
        assert_eq!(object.kind, Kind::Secret);
        let uid = self.server().metadata.uid.clone().unwrap();
        match &self.secret {
            Some(secret) if secret.owner == uid => Answer::Secret(secret.key.clone()),
            Some(_) => Answer::Foreign,
            None => {
                let owner = object.body["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap().to_owned();
                let key = format!("ssh-ed25519 host-{}", self.number());
                self.secret = Some(Secret { owner, key: key.clone() });
                self.record(Effect::Create(Kind::Secret, object.name.clone()));
                Answer::Secret(key)
            }
        }
    }

    fn apply_service(&mut self, object: Object) -> Answer {
        assert_eq!(object.kind, Kind::Service);
        let mut body = object.body;
        body["metadata"]["uid"] = format!("uid-service-{}", self.number()).into();
        let effect = if self.service.is_some() { Effect::Change } else { Effect::Create };
        self.service = Some(body);
        self.record(effect(Kind::Service, object.name));
        self.changed();
        Answer::Done
    }

    fn adopt_pod(&mut self, target: &Target, owner: &Value) -> Answer {
        let Some(pod) = self.pods.iter_mut().find(|pod| pod.object.uid == target.uid) else { return Answer::Done };
        pod.object.server.as_mut().unwrap().owner = owner["uid"].as_str().map(Into::into);
        self.record(Effect::Change(Kind::Pod, target.name.clone()));
        Answer::Done
    }

    fn delete_server(&mut self, target: &Target) -> Answer {
        assert_eq!(Some(&target.uid), self.server().metadata.uid.as_ref());
        self.deleted = true;
        self.record(Effect::Delete(Kind::DevServer, target.name.clone()));
        Answer::Done
    }

    fn delete_pod(&mut self, target: &Target) -> Answer {
        assert_eq!(target.kind, Kind::Pod);
        if self.pods.iter().any(|pod| pod.object.uid == target.uid) {
            self.check_deletion(target);
            self.record(Effect::Delete(Kind::Pod, target.name.clone()));
            self.remove_pod(&target.uid, target.grace);
        }
        Answer::Done
    }

    /// Deletes a pod at once if it is unbound, terminated or force-deleted. Other pods are deleted by their kubelet.
    pub(super) fn remove_pod(&mut self, uid: &str, grace: Option<u32>) {
        let now = self.now;
        let blocked = self.has_finalizers(uid);
        let immediately =
            |pod: &cluster::Pod| !blocked && (grace == Some(0) || pod.node.is_none() || pod.is_terminated());
        self.pods.retain(|pod| pod.object.uid != uid || !immediately(&pod.object));
        if let Some(pod) = self.pods.iter_mut().find(|pod| pod.object.uid == uid) {
            pod.object.deletion_timestamp.get_or_insert(to_api_precision(now).0);
        }
        self.changed();
    }

    /// Stores a status that was computed from this resource version.
    pub(super) fn store(&mut self, version: u64, status: DevServerStatus) -> Result<Answer, Interrupted> {
        self.write(|cluster| {
            if cluster.version != version {
                return Answer::Conflict;
            }
            cluster.check_status(&status);
            cluster.record(Effect::Status(status.phase.unwrap()));
            cluster.request.server.status = Some(status);
            cluster.touch();
            Answer::Done
        })
    }

    pub(super) fn touch(&mut self) {
        self.version += 1;
        self.request.server.metadata.resource_version = Some(self.version.to_string());
        self.changed();
    }

    /// Applies an edit of the owner and reports whether the API server accepted it.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut DevServerSpec)) -> bool {
        let mut edited = self.server().clone();
        change(&mut edited.spec);
        if self.deleted || edited.spec == self.server().spec {
            return !self.deleted;
        }
        if !allows(self.server(), &edited) {
            return false;
        }
        edited.metadata.generation = edited.metadata.generation.map(|generation| generation + 1);
        self.request.server = edited;
        self.touch();
        true
    }
}

/// The CRD rules about the lifecycle of a server. The test below compares them with the CRD.
pub(super) fn allows(old: &DevServer, new: &DevServer) -> bool {
    let phase = old.status.as_ref().and_then(|status| status.phase);
    let ended = phase.is_some_and(Phase::is_terminal);
    let stopping = phase == Some(Phase::Stopping) && old.spec.lifetime != new.spec.lifetime;
    let reverted = old.spec.desired == Desired::Ended && new.spec.desired != Desired::Ended;
    let ephemeral = matches!(new.spec.home, Home::Ephemeral(_)) && new.spec.desired == Desired::Hibernated;
    !(ended || stopping || reverted || ephemeral)
}

#[test]
fn edit_rules_match_crd() {
    use odc_api::check::check_update;
    let phases = Phase::ALL.iter().copied().map(Some).chain([None]);
    for phase in phases {
        for (before, after) in [(Desired::Running, Desired::Running), (Desired::Running, Desired::Hibernated)]
            .into_iter()
            .chain([(Desired::Hibernated, Desired::Running), (Desired::Ended, Desired::Running)])
            .chain([(Desired::Running, Desired::Ended)])
        {
            for lifetime in ["8h", "9h"] {
                for ephemeral in [false, true] {
                    let mut old = DevServer::test();
                    if ephemeral {
                        old = old.ephemeral("1Gi");
                    }
                    old.status = phase.map(|phase| DevServerStatus { phase: Some(phase), ..Default::default() });
                    old.spec.desired = before;
                    let mut new = old.clone().lifetime(lifetime);
                    new.spec.desired = after;
                    new.spec.wake = Some("changed".into());
                    let verdict = check_update(&old, &new);
                    let allowed = allows(&old, &new);
                    assert_eq!(verdict.is_ok(), allowed, "{phase:?} {before:?} to {after:?}, {lifetime}: {verdict:?}");
                }
            }
        }
    }
}

/// The current time as it is stored.
pub(super) fn time(cluster: &Cluster) -> Time {
    to_api_precision(cluster.now)
}
