//! The API server: what it stores, what it refuses, and how an answer can be lost.

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use odc_api::time::stored;
use odc_api::v1alpha1::{Desired, DevServer, DevServerSpec, DevServerStatus, Home, Phase};
use serde_json::Value;

use super::observer::Did;
use super::{Cluster, Pod, Secret};
use crate::object::{Kind, Object};
use crate::plan::{Target, Write};
use crate::seen;

/// What goes wrong with a write of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The operator dies after the write was stored.
    Die,
    /// It was stored, but nobody hears of it.
    LoseAnswer,
    /// It was not stored.
    Refuse,
}

/// The write did not go as planned; what was planned after it is void.
pub(super) struct Interrupted;

/// How the API server answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    /// With the key of a Secret that is ours.
    Secret(String),
    Foreign,
    Conflict,
}

impl Cluster {
    /// One write of ours.
    pub(super) fn write(&mut self, commit: impl FnOnce(&mut Self) -> Answer) -> Result<Answer, Interrupted> {
        self.writes += 1;
        if let Some((_, event)) = self.between.take_if(|(number, _)| *number == self.writes) {
            self.happen(&event);
        }
        let fault = self.fault.take_if(|(number, _)| *number == self.writes).map(|(_, fault)| fault);
        if fault == Some(Fault::Refuse) {
            return Err(Interrupted);
        }
        let answer = commit(self);
        match fault {
            Some(Fault::Die) => {
                self.operator.die();
                Err(Interrupted)
            }
            Some(Fault::LoseAnswer | Fault::Refuse) => Err(Interrupted),
            None => Ok(answer),
        }
    }

    pub(super) fn carry_out(&mut self, write: &Write) -> Result<Answer, Interrupted> {
        let write = write.clone();
        self.write(|cluster| match write {
            Write::Create(object) if object.kind == Kind::Pod => cluster.create_pod(&object),
            Write::Create(object) => cluster.create_secret(&object),
            Write::Apply(object) => cluster.apply_service(object),
            Write::Delete(target) if target.kind == Kind::DevServer => cluster.delete_server(&target),
            Write::Delete(target) => cluster.delete_pod(&target),
            Write::Adopt { target, owner } => cluster.adopt_pod(&target, &owner),
        })
    }

    fn create_pod(&mut self, object: &Object) -> Answer {
        // It is only made where the name was seen to be free, and nobody else makes pods here.
        assert!(self.pods.iter().all(|pod| pod.seen.name != object.name), "pod {} exists", object.name);
        let mut pod: k8s::Pod = serde_json::from_value(object.body.clone()).unwrap();
        pod.metadata.uid = Some(format!("uid-pod-{}", self.number()));
        pod.metadata.creation_timestamp = Some(stored(self.now));
        let affinity = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
        let pinned = &object.body.pointer(affinity).unwrap()["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
        let seen = seen::Pod::of(&pod);
        let key = seen.server.as_ref().and_then(|details| details.host_key.clone()).unwrap();
        let pod = Pod { seen, pinned: pinned.as_str().unwrap().to_owned(), key };
        self.check_new_pod(&pod);
        self.pods.push(pod);
        self.did(Did::Create(Kind::Pod, object.name.clone()));
        Answer::Done
    }

    fn create_secret(&mut self, object: &Object) -> Answer {
        assert_eq!(object.kind, Kind::Secret);
        let uid = self.server().metadata.uid.clone().unwrap();
        match &self.secret {
            Some(there) if there.owner == uid => Answer::Secret(there.key.clone()),
            Some(_) => Answer::Foreign,
            None => {
                let owner = object.body["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap().to_owned();
                let key = object.body["stringData"]["host_key.pub"].as_str().unwrap().to_owned();
                self.secret = Some(Secret { owner, key: key.clone() });
                self.did(Did::Create(Kind::Secret, object.name.clone()));
                Answer::Secret(key)
            }
        }
    }

    fn apply_service(&mut self, object: Object) -> Answer {
        assert_eq!(object.kind, Kind::Service);
        let mut body = object.body;
        body["metadata"]["uid"] = format!("uid-service-{}", self.number()).into();
        let did = if self.service.is_some() { Did::Change } else { Did::Create };
        self.service = Some(body);
        self.did(did(Kind::Service, object.name));
        self.changed();
        Answer::Done
    }

    fn adopt_pod(&mut self, target: &Target, owner: &Value) -> Answer {
        let Some(pod) = self.pods.iter_mut().find(|pod| pod.seen.uid == target.uid) else { return Answer::Done };
        pod.seen.server.as_mut().unwrap().owner = owner["uid"].as_str().map(Into::into);
        self.did(Did::Change(Kind::Pod, target.name.clone()));
        Answer::Done
    }

    fn delete_server(&mut self, target: &Target) -> Answer {
        assert_eq!(Some(&target.uid), self.server().metadata.uid.as_ref());
        self.deleted = true;
        self.did(Did::Delete(Kind::DevServer, target.name.clone()));
        Answer::Done
    }

    fn delete_pod(&mut self, target: &Target) -> Answer {
        assert_eq!(target.kind, Kind::Pod);
        if self.pods.iter().any(|pod| pod.seen.uid == target.uid) {
            self.check_stop(target);
            self.did(Did::Delete(Kind::Pod, target.name.clone()));
            self.remove_pod(&target.uid, target.grace);
        }
        Answer::Done
    }

    /// A pod that nothing runs of is gone at once, and so is one that its node is not asked about. The others are gone
    /// when their kubelet says so.
    pub(super) fn remove_pod(&mut self, uid: &str, grace: Option<u32>) {
        let now = self.now;
        let held = self.is_held(uid);
        let at_once = |pod: &seen::Pod| !held && (grace == Some(0) || pod.node.is_none() || pod.is_over());
        self.pods.retain(|pod| pod.seen.uid != uid || !at_once(&pod.seen));
        if let Some(pod) = self.pods.iter_mut().find(|pod| pod.seen.uid == uid) {
            pod.seen.deleting.get_or_insert(stored(now).0);
        }
        self.changed();
    }

    /// Stores a status that was computed from this version.
    pub(super) fn store(&mut self, version: u64, status: DevServerStatus) -> Result<Answer, Interrupted> {
        self.write(|cluster| {
            if cluster.version != version {
                return Answer::Conflict;
            }
            cluster.check_status(&status);
            cluster.did(Did::Status(status.phase.unwrap()));
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

    /// Whether the API server takes the owner's edit. One that changes nothing always is.
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

/// The rules of the kind that concern a server's life. That they are the API server's is tested beside.
pub(super) fn allows(old: &DevServer, new: &DevServer) -> bool {
    let phase = old.status.as_ref().and_then(|status| status.phase);
    let ended = phase.is_some_and(Phase::terminal);
    let stopping = phase == Some(Phase::Stopping) && old.spec.lifetime != new.spec.lifetime;
    let called_back = old.spec.desired == Desired::Ended && new.spec.desired != Desired::Ended;
    let ephemeral = matches!(new.spec.home, Home::Ephemeral(_)) && new.spec.desired == Desired::Hibernated;
    !(ended || stopping || called_back || ephemeral)
}

#[test]
fn the_rules_are_the_api_servers() {
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
                    let ours = allows(&old, &new);
                    assert_eq!(verdict.is_ok(), ours, "{phase:?} {before:?} to {after:?}, {lifetime}: {verdict:?}");
                }
            }
        }
    }
}

/// A time as it is stored.
pub(super) fn time(cluster: &Cluster) -> Time {
    stored(cluster.now)
}
