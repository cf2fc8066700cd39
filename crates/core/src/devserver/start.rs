//! What is missing of a run, and what must be known before it can be made.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::annotation;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Admission, Phase};

use super::decide::Decision;
use super::status::Outlook;
use super::trouble::Trouble;
use super::validate::Valid;
use super::{Plan, Question, SecretSeen, build, describe, left, parts};
use crate::object::Kind;
use crate::plan::{Again, Write};
use crate::seen::{Child, Pod};

/// Why nothing can be written for a start.
enum Blocked {
    Ask(Question),
    /// An object of a name we need is somebody else's.
    Taken(String),
    /// What must be known cannot be.
    Unknown(String),
}

impl Decision<'_> {
    pub(super) fn start(&self, grant: &Admission, trouble: Option<&Trouble>) -> Plan {
        let valid = match self.checked {
            Ok(valid) => valid,
            // What is there stays; only what would have to be made waits.
            Err(violations) => return self.refuse(violations, self.adopt()),
        };
        let next = self.next_writes(valid, grant);
        let (reason, message) = match (&next, trouble) {
            (Err(Blocked::Taken(what)), _) => (Reason::NameTaken, what.clone()),
            (_, Some(trouble)) => (trouble.reason, trouble.message.clone()),
            (_, None) if self.waits_for_disk(valid) => (valid.disk.reason, valid.disk.message.clone()),
            (_, None) => match &self.seen.obstacle {
                Some(obstacle) => (Reason::Incomplete, obstacle.clone()),
                None => match self.held().or_else(|| self.overdue()) {
                    Some(held) => (Reason::PodHeld, held),
                    None => describe::starting(&self.parts),
                },
            },
        };
        let hopeless = match &next {
            Ok(writes) => writes.is_empty() && self.is_placed(),
            Err(blocked) => matches!(blocked, Blocked::Taken(_)),
        };
        let left = self.time_to_start(grant);
        if hopeless && left.is_none() {
            return self.fail(&Trouble {
                reason: Reason::StartTimeout,
                message: describe::start_timeout(reason, &message),
                log: trouble.and_then(|trouble| trouble.log.clone()),
                fatal: true,
            });
        }
        let forgets = self.seen.secret == SecretSeen::Missing && self.remembers_key();
        let outlook = Outlook::new(Phase::Starting, reason, message);
        let outlook = if forgets { outlook.without_key() } else { outlook };
        match next {
            Ok(writes) => {
                // The answer to a Secret tells the key that counts, and with it the pods follow.
                let at_once = forgets || writes.iter().any(makes_secret);
                let again = if at_once { Some(Duration::ZERO) } else { left }.map_or(Again::OnChange, Again::After);
                self.told(&outlook, writes, again.or(self.pod_watch()).or(self.secret_doubt()))
            }
            Err(Blocked::Taken(_)) => {
                let again = left.map_or(Again::OnChange, Again::After);
                self.told(&outlook, vec![], again.or(self.secret_doubt()))
            }
            Err(Blocked::Ask(question)) => {
                // While no answer comes, people are told what it waits for.
                let told = self.seen.obstacle.is_some().then(|| self.told(&outlook, vec![], Again::OnChange));
                Plan {
                    ask: Some(question),
                    phase: Some(Phase::Starting),
                    status: told.and_then(|told| told.status),
                    ..Plan::nothing()
                }
            }
            Err(Blocked::Unknown(message)) => self.fail(&Trouble {
                reason: Reason::ImageNotFound,
                message: describe::entrypoint_unknown(&message),
                log: None,
                fatal: true,
            }),
        }
    }

    /// How much longer it may take. It counts from the start that people were told of, from the grant, from the
    /// youngest pod, and from the end of those before, whichever is last: a pod that is replaced has its own time.
    fn time_to_start(&self, grant: &Admission) -> Option<Duration> {
        let limit = self.settings.start_limit;
        let told = self.stored().filter(|status| status.phase == Some(Phase::Starting));
        let told = told.and_then(|status| status.timeline.last()).filter(|entry| entry.phase == Phase::Starting);
        // What is not told yet begins now, however old the grant is: it may have run for days before.
        let Some(told) = told.map(|entry| entry.at.0) else { return Some(limit) };
        let made = self.parts.live().filter_map(|pod| pod.server.as_ref()?.created);
        let gone = self.parts.leaving.iter().filter_map(|pod| pod.deleting);
        let granted = grant.granted_at.as_ref().map(|at| at.0);
        let since = made.chain(gone).chain(granted).fold(told, Timestamp::max);
        left(limit, since, self.now)
    }

    /// Whether all pods are on nodes that answer, so that nobody but they can be to blame. Of a pod without a node, or
    /// with one that is silent, the queue will have its say.
    fn is_placed(&self) -> bool {
        let answers = |node: &str| self.seen.nodes.get(node).is_some_and(|node| node.is_ready());
        let placed = |pod: &Pod| pod.node.as_deref().is_some_and(answers);
        self.parts.current.iter().all(|pod| pod.is_some_and(placed))
    }

    /// What is missing of the objects of this run, in the order in which each needs the one before: a pod mounts the
    /// Secret, and finds its peers by the Service.
    fn next_writes(&self, valid: &Valid<'_>, grant: &Admission) -> Result<Vec<Write>, Blocked> {
        if let Some(foreign) = self.parts.foreign.iter().find(|pod| pod.deleting.is_none()) {
            return Err(Blocked::Taken(describe::name_taken("Pod", &foreign.name)));
        }
        let mut writes = self.adopt();
        writes.extend(self.surplus());
        let missing: Vec<usize> = (0..self.parts.current.len()).filter(|at| self.is_free(*at)).collect();
        match self.seen.secret {
            SecretSeen::Foreign if self.is_in_doubt() => return Err(Blocked::Ask(Question::Secret)),
            SecretSeen::Foreign => {
                return Err(Blocked::Taken(describe::name_taken("Secret", &build::secret_name(valid.name.as_str()))));
            }
            // Forgotten before it is replaced: whoever comes after us must not take the old key for the new one.
            SecretSeen::Missing if self.remembers_key() => {
                return Ok(self.keyed().map(|pod| Write::Delete(parts::target(pod, None))).collect());
            }
            SecretSeen::Missing => return self.new_secret(valid, writes),
            SecretSeen::Unknown | SecretSeen::There(_) if missing.is_empty() => {
                return if self.is_in_doubt() { Err(Blocked::Ask(Question::Secret)) } else { Ok(writes) };
            }
            SecretSeen::Unknown | SecretSeen::There(_) => {}
        }
        let Some(host_key) = self.host_key() else { return self.new_secret(valid, writes) };
        let entrypoint = self.entrypoint(valid)?;
        writes.extend(self.service(valid)?);
        if self.waits_for_disk(valid) {
            return Ok(writes);
        }
        for ordinal in missing {
            let Some(node) = grant.nodes.get(ordinal) else { continue };
            let place = build::Placement {
                ordinal,
                run: grant.run,
                node,
                user_namespaces: self.seen.nodes.get(node.as_str()).is_some_and(|node| node.user_namespaces),
            };
            writes.push(Write::Create(build::pod(
                valid,
                place,
                &host_key,
                &entrypoint,
                self.settings,
                self.seen.authorities,
            )));
        }
        Ok(writes)
    }

    fn new_secret(&self, valid: &Valid<'_>, mut writes: Vec<Write>) -> Result<Vec<Write>, Blocked> {
        let Some(keys) = self.seen.keys else { return Err(Blocked::Ask(Question::Keys)) };
        writes.push(Write::Create(build::secret(valid, keys)));
        Ok(writes)
    }

    /// Whether a pod would have to be made while somebody else may still write to a disk of it. A grant does not settle
    /// that: it may be older than what is known of the disk now.
    fn waits_for_disk(&self, valid: &Valid<'_>) -> bool {
        let missing = (0..self.parts.current.len()).any(|at| self.is_free(at));
        missing && valid.disk.reason == Reason::DiskInUse
    }

    /// Nothing has the name of this ordinal's pod, not even on its way out.
    fn is_free(&self, ordinal: usize) -> bool {
        let name = parts::name(self.server.metadata.name.as_deref().unwrap_or_default(), ordinal);
        self.seen.pods.iter().all(|pod| pod.name != name)
    }

    fn entrypoint(&self, valid: &Valid<'_>) -> Result<Vec<String>, Blocked> {
        let image = self.server.spec.image.as_ref();
        if !image.is_some_and(|image| image.keep_entrypoint) {
            return Ok(vec![]);
        }
        match &self.seen.entrypoint {
            Some(Ok(words)) => Ok(words.clone()),
            Some(Err(message)) => Err(Blocked::Unknown(message.clone())),
            None => {
                let own = image.and_then(|image| image.pull_secret.as_ref());
                let all = own.into_iter().chain(&valid.flavor.pull_secret);
                let pull_secrets = all.map(|name| name.as_str().to_owned()).collect();
                Err(Blocked::Ask(Question::Entrypoint { image: valid.image.to_owned(), pull_secrets }))
            }
        }
    }

    /// Makes or mends the Service of a gang.
    fn service(&self, valid: &Valid<'_>) -> Result<Option<Write>, Blocked> {
        if valid.nodes == 1 {
            return Ok(None);
        }
        let wanted = build::service(valid);
        match self.seen.service {
            Some(there) if !is_ours(there, valid.uid) => {
                Err(Blocked::Taken(describe::name_taken("Service", &wanted.name)))
            }
            Some(there) if there.deleting || there.covers(&wanted) => Ok(None),
            Some(_) | None => Ok(Some(Write::Apply(wanted))),
        }
    }

    /// What somebody changed of a server whose pods are all there.
    pub(super) fn upkeep(&self) -> Vec<Write> {
        let service = self.checked.as_ref().ok().and_then(|valid| self.service(valid).ok().flatten());
        self.adopt().into_iter().chain(self.surplus()).chain(service).collect()
    }

    fn adopt(&self) -> Vec<Write> {
        let name = self.server.metadata.name.as_deref().unwrap_or_default();
        let uid = self.server.metadata.uid.as_deref().unwrap_or_default();
        let owner = serde_json::to_value(build::owner_reference(name, uid)).unwrap_or_default();
        let orphans = self.parts.orphaned.iter();
        orphans.map(|pod| Write::Adopt { target: parts::target(pod, None), owner: owner.clone() }).collect()
    }

    /// Pods of an older run, which may stand where ours should.
    fn surplus(&self) -> impl Iterator<Item = Write> {
        self.parts.surplus.iter().map(|pod| Write::Delete(parts::target(pod, None)))
    }
}

fn makes_secret(write: &Write) -> bool {
    matches!(write, Write::Create(object) if object.kind == Kind::Secret)
}

/// By its owner, or by what it was made for should somebody have taken the owner away.
fn is_ours(child: &Child, uid: &str) -> bool {
    let owners = child.body["metadata"]["ownerReferences"].as_array();
    match owners.into_iter().flatten().find(|owner| owner["controller"] == true) {
        Some(controller) => controller["uid"] == uid,
        None => child.body["metadata"]["annotations"][annotation::SERVER_UID] == uid,
    }
}
