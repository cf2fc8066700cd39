//! The status of a server, composed anew at every decision from the stored one and what is so now.
//!
//! The same situation gives the same status, so that it is written only when something happened. Fields of the queue
//! are carried along untouched.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::time::stored;
use odc_api::v1alpha1::condition::{self, Condition, Reason, Status, Type};
use odc_api::v1alpha1::{
    DevServer, DevServerStatus, Failure, Hibernation, HibernationCause, Phase, ServerAccess, ServerPod,
    TIMELINE_LENGTH, TimelineEntry,
};

use super::Settings;
use super::agents::Killed;
use super::goal::is_new;
use super::lifetime::{self, Stage};
use super::parts::{Parts, is_ready};
use super::unfit::Unfit;
use super::validate::{Valid, Violation};
use crate::seen::Container;

/// What a decision came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outlook {
    pub phase: Phase,
    /// Of the conditions that do not hold, and of the timeline.
    pub reason: Reason,
    pub message: String,
    /// It waits for nothing but the queue.
    competes: bool,
    news: Option<News>,
}

/// What must be stored besides, and at once, even if the phase may pass: the next decision builds on it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum News {
    Refused,
    UsedUp,
    Unused,
    Asleep(HibernationCause),
    Failure(Reason, String, Option<String>),
    KeyLost,
    HeldBack,
}

impl Outlook {
    pub(super) fn new(phase: Phase, reason: Reason, message: String) -> Self {
        Self { phase, reason, message, competes: false, news: None }
    }

    fn with(self, news: News) -> Self {
        Self { news: Some(news), ..self }
    }

    pub(super) fn competing(self) -> Self {
        Self { competes: true, ..self }
    }

    /// It ends because nobody uses it.
    pub(super) fn unused(self) -> Self {
        self.with(News::Unused)
    }

    /// The request cannot be granted as it is.
    pub(super) fn refused(self) -> Self {
        self.with(News::Refused)
    }

    /// Its time is over: nothing may be extended any more.
    pub(super) fn used_up(self) -> Self {
        self.with(News::UsedUp)
    }

    pub(super) fn asleep(self, cause: HibernationCause) -> Self {
        self.with(News::Asleep(cause))
    }

    /// What went wrong must not be forgotten because the next step follows quickly.
    pub(super) fn failing(self, reason: Reason, message: String, log: Option<String>) -> Self {
        self.with(News::Failure(reason, message, log))
    }

    /// What is stored of the host key is no longer so.
    pub(super) fn without_key(self) -> Self {
        self.with(News::KeyLost)
    }

    /// It was deleted, and somebody keeps it.
    pub(super) fn held_back(self) -> Self {
        self.with(News::HeldBack)
    }

    pub(super) fn is_refused(&self) -> bool {
        self.news == Some(News::Refused)
    }

    /// Left by itself, often at once; only worth a write when it lasts.
    pub(super) fn may_pass(&self) -> bool {
        let passing = matches!(self.phase, Phase::Queued | Phase::Starting | Phase::Hibernating | Phase::Stopping);
        passing && self.news.is_none()
    }
}

/// What is known beside the pods.
pub(super) struct Now {
    pub host_key: Option<String>,
    /// Of the condition Idle, if there is something new.
    pub idle: Option<(bool, Reason, String)>,
    /// Processes killed for want of memory, by pod, as the agents told.
    pub killed: BTreeMap<String, Killed>,
    /// What was not in order at a stop.
    pub unfit: Option<Unfit>,
}

pub(super) fn compose(
    server: &DevServer,
    outlook: &Outlook,
    checked: &Result<Valid<'_>, Vec<Violation>>,
    parts: &Parts<'_>,
    news: Now,
    settings: &Settings,
    now: Timestamp,
) -> DevServerStatus {
    let mut status = server.status.clone().unwrap_or_default();
    let generation = server.metadata.generation;
    status.observed_generation = generation;
    if status.phase != Some(outlook.phase) {
        status.timeline.push(TimelineEntry::new(outlook.phase, stored(now), outlook.reason));
        let surplus = status.timeline.len().saturating_sub(TIMELINE_LENGTH);
        status.timeline.drain(..surplus);
    }
    status.phase = Some(outlook.phase);
    let limits = super::limits(checked);
    // Answered only where the limits are known, or a server refused at first would get around them.
    if limits.is_some() || status.lifetime.is_some() || outlook.phase == Phase::Running {
        status.lifetime = Some(lifetime::grant(server.spec.lifetime, limits, status.lifetime));
    }
    if outlook.phase == Phase::Running {
        lifetime::run(&mut status, now);
    } else {
        lifetime::pause(&mut status, now);
    }
    let waits = outlook.competes && is_new(&status);
    status.waiting_since = waits.then(|| status.waiting_since.take().unwrap_or_else(|| stored(now)));
    if outlook.phase.terminal() {
        status.finished_at.get_or_insert_with(|| stored(now));
    }
    status.hibernation = match outlook.news {
        Some(News::Asleep(by)) => Some(hibernation(server, by, now)),
        _ => None,
    };
    if let Some(News::Failure(reason, message, log)) = &outlook.news {
        set_failure(&mut status, *reason, message, log.as_deref(), now);
    }
    if let Some(unfit) = &news.unfit {
        unfit.tell(&mut status);
    }
    count(&mut status, parts);
    let pods = pods(outlook.phase, parts, &status.pods, &news.killed);
    count_killed(&mut status, &pods);
    status.pods = pods;
    let host_key = news.host_key.filter(|_| outlook.news != Some(News::KeyLost));
    status.access = access(status.access, host_key);
    let made = Conditions { outlook, checked, generation, now };
    for condition in made.all(&status, settings) {
        condition::set(&mut status.conditions, condition);
    }
    if let Some((holds, reason, message)) = news.idle {
        condition::set(&mut status.conditions, made.one(Type::Idle, holds, reason, &message));
    }
    if matches!(outlook.phase, Phase::Queued | Phase::Starting) {
        // Of what is not there yet, nobody can say whether it is used.
        status.conditions.retain(|condition| condition.kind != Type::Idle);
    }
    status
}

/// How to get in; nothing if there is nothing to tell.
fn access(before: Option<ServerAccess>, host_key: Option<String>) -> Option<ServerAccess> {
    let host_key = host_key.map(|key| key.as_str().into());
    Some(ServerAccess { host_key, ..before.unwrap_or_default() }).filter(|access| *access != ServerAccess::default())
}

fn hibernation(server: &DevServer, by: HibernationCause, now: Timestamp) -> Hibernation {
    let before = server.status.as_ref().and_then(|status| status.hibernation.clone());
    match before {
        // The value of that moment stays, however often this is decided again.
        Some(before) => Hibernation { by, ..before },
        None => Hibernation { since: stored(now), by, wake_seen: server.spec.wake.clone() },
    }
}

/// The same failure again keeps its time, or it would be written for ever.
fn set_failure(status: &mut DevServerStatus, reason: Reason, message: &str, log: Option<&str>, now: Timestamp) {
    let new = Failure::new(reason, message, stored(now), log);
    let same = status
        .last_failure
        .as_ref()
        .is_some_and(|old| Failure { time: new.time.clone(), ..Failure::clone(old) } == new);
    if !same {
        status.last_failure = Some(Box::new(new));
    }
}

/// Restarts of the pods that are there now: new pods begin at none, or their first restarts would be overlooked. Kills
/// for want of memory are counted over the server's whole life.
fn count(status: &mut DevServerStatus, parts: &Parts<'_>) {
    let containers = || parts.live().filter_map(|pod| pod.server.as_deref()).flat_map(|details| &details.containers);
    let before = status.restarts.unwrap_or(0);
    let restarts: i64 = containers().map(|container| container.restarts).sum();
    if restarts == before || parts.live().next().is_none() {
        return;
    }
    status.restarts = Some(restarts);
    let killed = |container: &Container| container.last.as_ref().is_some_and(|exit| exit.reason == "OOMKilled");
    if restarts > before && containers().any(killed) {
        status.oom_kills = Some(status.oom_kills.unwrap_or(0).saturating_add(1));
    }
}

/// Agents count from the start of their container, so what they tell is compared with what they told before of the same
/// start; another one counts from none.
fn count_killed(status: &mut DevServerStatus, pods: &[ServerPod]) {
    for pod in pods {
        let same = |told: &&ServerPod| told.name == pod.name && told.run == pod.run;
        let before = status.pods.iter().find(same).filter(|told| told.container_boot == pod.container_boot);
        let before = before.and_then(|told| told.oom_kills).unwrap_or(0);
        let now = pod.oom_kills.unwrap_or(0);
        let more = if now >= before { now - before } else { now };
        if more > 0 {
            status.oom_kills = Some(status.oom_kills.unwrap_or(0).saturating_add(more));
        }
    }
}

/// While it starts, pods come and go too often to be worth a write each.
fn pods(phase: Phase, parts: &Parts<'_>, before: &[ServerPod], killed: &BTreeMap<String, Killed>) -> Vec<ServerPod> {
    if phase != Phase::Running {
        return vec![];
    }
    let pod = |pod: &crate::seen::Pod| {
        let details = pod.server.as_deref();
        let same = |told: &&ServerPod| told.name == pod.name && Some(told.run) == details.and_then(|pod| pod.run);
        let told = before.iter().find(same);
        let (oom_kills, container_boot) = match (killed.get(&pod.uid), told) {
            (Some(Killed { count, boot }), _) => (Some(*count), Some(boot.clone())),
            (None, Some(told)) => (told.oom_kills, told.container_boot.clone()),
            (None, None) => (None, None),
        };
        ServerPod {
            name: pod.name.clone(),
            run: details.and_then(|details| details.run).unwrap_or(0),
            node: pod.node.as_deref().map(Into::into),
            ip: details.and_then(|details| details.ip.as_deref()).map(Into::into),
            ready: is_ready(pod),
            oom_kills,
            container_boot,
        }
    };
    parts.live().map(pod).collect()
}

struct Conditions<'a> {
    outlook: &'a Outlook,
    checked: &'a Result<Valid<'a>, Vec<Violation>>,
    generation: Option<i64>,
    now: Timestamp,
}

impl Conditions<'_> {
    fn all(&self, status: &DevServerStatus, settings: &Settings) -> Vec<Condition> {
        let mut all = vec![self.accepted(), self.image()];
        all.extend(self.disk(status));
        all.extend([self.admitted(status), self.pods_ready(), self.ready()]);
        all.extend(self.expiring(status, settings));
        all
    }

    fn one(&self, kind: Type, holds: bool, reason: Reason, message: &str) -> Condition {
        let status = if holds { Status::True } else { Status::False };
        condition::new(kind, status, reason, message, self.generation, stored(self.now))
    }

    fn accepted(&self) -> Condition {
        match self.checked {
            Err(violations) => {
                let reason = violations.first().map_or(Reason::Invalid, |violation| violation.reason);
                let all: Vec<&str> = violations.iter().map(|violation| violation.message.as_str()).collect();
                self.one(Type::Accepted, false, reason, &all.join(" "))
            }
            Ok(_) => self.one(Type::Accepted, true, Reason::Valid, "Everything asked for exists and is allowed."),
        }
    }

    fn image(&self) -> Condition {
        self.one(Type::ImageReady, true, Reason::ImageAvailable, "The image needs no build.")
    }

    fn disk(&self, status: &DevServerStatus) -> Option<Condition> {
        match self.checked {
            Ok(valid) => Some(self.one(Type::DiskReady, valid.disk.ready, valid.disk.reason, &valid.disk.message)),
            // A flavor that is gone takes nothing away from a server that has its disk.
            Err(_) if super::granted(Some(status)).is_some() => None,
            Err(_) => Some(self.one(Type::DiskReady, false, Reason::NotQueued, "The request is not accepted.")),
        }
    }

    fn admitted(&self, status: &DevServerStatus) -> Condition {
        let grant = super::granted(Some(status));
        let asked_away = grant.filter(|grant| grant.gives_way_at.is_some()).and_then(|grant| grant.message.as_ref());
        let (holds, reason, message) = match self.outlook.phase {
            Phase::Starting | Phase::Running if grant.is_some() => match asked_away {
                Some(message) => (true, Reason::Preempted, message.as_str()),
                None => (true, Reason::Granted, "The queue granted its devices and nodes."),
            },
            Phase::Queued => (false, self.outlook.reason, self.outlook.message.as_str()),
            Phase::Hibernating | Phase::Hibernated => (false, self.outlook.reason, "It sleeps, and holds nothing."),
            _ => (false, Reason::NotQueued, "It does not wait for devices."),
        };
        self.one(Type::Admitted, holds, reason, message)
    }

    fn pods_ready(&self) -> Condition {
        let holds = self.outlook.phase == Phase::Running && self.outlook.reason == Reason::Running;
        let message = if holds { "All pods are ready." } else { &self.outlook.message };
        self.one(Type::PodsReady, holds, self.outlook.reason, message)
    }

    fn ready(&self) -> Condition {
        let holds = self.outlook.phase == Phase::Running && self.outlook.reason == Reason::Running;
        self.one(Type::Ready, holds, self.outlook.reason, &self.outlook.message)
    }

    fn expiring(&self, status: &DevServerStatus, settings: &Settings) -> Option<Condition> {
        let soon = "Its time ends within half an hour: raise spec.lifetime to extend it.";
        let over = "Its time is used up and it is about to stop: raise spec.lifetime to keep it.";
        let stage = status.expires_at.as_ref().map(|at| lifetime::stage(at.0, settings.expiry_grace, self.now));
        let (holds, reason, message) = match stage {
            _ if self.outlook.news == Some(News::UsedUp) => (true, Reason::LifetimeUsedUp, "Its time is used up."),
            Some(Stage::Grace(_) | Stage::Over) => (true, Reason::EndsSoon, over),
            Some(Stage::EndsSoon(_)) => (true, Reason::EndsSoon, soon),
            Some(Stage::TimeLeft(_)) => (false, Reason::TimeLeft, "There is time left."),
            None if status.started_at.is_some() => (false, Reason::TimeLeft, "Its time stands still."),
            None => return None,
        };
        Some(self.one(Type::Expiring, holds, reason, message))
    }
}
