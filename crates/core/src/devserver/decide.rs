//! The state machine of a server: one match over its goal, and a function for each way to get there.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::text::Text;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Admission, DevServer, DevServerStatus, HibernationCause, IdleAction, Phase, ServerPod};

use super::goal::{End, Goal, gives_up_at, goal};
use super::parts::{self, Parts};
use super::status::Outlook;
use super::tell::Work;
use super::trouble::{self, Trouble};
use super::validate::{Valid, Violation};
use super::{Plan, Seen, Settings, describe, granted, left, limits};
use crate::object::Kind;
use crate::plan::{Again, Target, Write};
use crate::seen::{Pod, holders};

/// Everything a decision looks at.
pub(super) struct Decision<'a> {
    pub server: &'a DevServer,
    pub checked: &'a Result<Valid<'a>, Vec<Violation>>,
    pub seen: &'a Seen<'a>,
    pub settings: &'a Settings,
    pub now: Timestamp,
    pub parts: Parts<'a>,
}

impl<'a> Decision<'a> {
    pub(super) fn new(
        server: &'a DevServer,
        checked: &'a Result<Valid<'a>, Vec<Violation>>,
        seen: &'a Seen<'a>,
        settings: &'a Settings,
        now: Timestamp,
    ) -> Self {
        let name = server.metadata.name.as_deref().unwrap_or_default();
        let uid = server.metadata.uid.as_deref().unwrap_or_default();
        let nodes = server.spec.nodes as usize;
        let fits = granted(server.status.as_ref()).filter(|grant| grant.nodes.len() == nodes);
        let parts = parts::sort(&seen.pods, name, uid, nodes, fits.map(|grant| grant.run));
        Self { server, checked, seen, settings, now, parts }
    }

    pub(super) fn plan(&self) -> Plan {
        if self.server.metadata.deletion_timestamp.is_some() {
            return self.deleted();
        }
        if let Some(phase) = self.stored_phase().filter(|phase| phase.terminal()) {
            return self.ended(phase);
        }
        let unused = self.is_unused();
        let sleep = unused.filter(|action| *action == IdleAction::Hibernate).map(|_| HibernationCause::Idle);
        match goal(self.server, self.seen.sleep.or(sleep), limits(self.checked), self.settings, self.now) {
            Goal::Run if unused == Some(IdleAction::End) => self.end(End::Unused),
            Goal::End(end) => self.end(end),
            Goal::Sleep(cause) => self.sleep(cause),
            Goal::Run => match (self.checked, self.grant()) {
                (Err(violations), None) => self.refuse(violations, self.stop_pods()),
                (_, grant) => self.run(grant),
            },
        }
    }

    /// What is to happen because nobody uses it.
    fn is_unused(&self) -> Option<IdleAction> {
        let running = self.is_told() && self.parts.all_ready();
        (running && self.idleness().over).then_some(self.server.spec.idle.action)
    }

    pub(super) fn stored(&self) -> Option<&'a DevServerStatus> {
        self.server.status.as_ref()
    }

    pub(super) fn stored_phase(&self) -> Option<Phase> {
        self.stored().and_then(|status| status.phase)
    }

    fn grant(&self) -> Option<&'a Admission> {
        granted(self.stored())
    }

    /// Without a finalizer of ours it is gone at once; it is seen here only while somebody else holds it.
    fn deleted(&self) -> Plan {
        let plan = self.stop_pods().plan(self.pod_watch());
        let holders = holders(self.server.metadata.finalizers.as_deref());
        if self.stored_phase().is_some_and(Phase::terminal) || holders.is_empty() {
            return plan;
        }
        let outlook = Outlook::new(Phase::Stopping, Reason::Stopping, describe::held_back(&holders)).held_back();
        self.told(&outlook, self.stop_pods(), self.pod_watch())
    }

    /// Terminal phases are final. What is left of it is cleared away, and after a day the object itself.
    fn ended(&self, phase: Phase) -> Plan {
        let plan = Plan { phase: Some(phase), ..Plan::nothing() };
        if !self.parts.none_left() {
            return Plan { phase: Some(phase), ..self.stop_pods().plan(self.pod_watch()) };
        }
        let Some(finished) = self.stored().and_then(|status| status.finished_at.as_ref()) else { return plan };
        match left(self.settings.keep_ended, finished.0, self.now) {
            Some(left) => Plan { again: Again::After(left), ..plan },
            None => Plan { writes: vec![Write::Delete(self.this_server())], ..plan },
        }
    }

    fn this_server(&self) -> Target {
        let meta = &self.server.metadata;
        Target {
            kind: Kind::DevServer,
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            grace: None,
        }
    }

    /// In order: the intent is stored, the pods stop, the queue takes the grant back, the end is stored.
    fn end(&self, end: End) -> Plan {
        let (phase, reason, message) = match end {
            End::Expired => (Phase::Expired, Reason::LifetimeUsedUp, describe::EXPIRED.to_owned()),
            End::Cancelled => (Phase::Cancelled, Reason::Ended, describe::CANCELLED.to_owned()),
            End::Unused => (Phase::Cancelled, Reason::NobodyThere, describe::UNUSED.to_owned()),
            End::QueuedTooLong => {
                let limit = self.settings.queue_limit.unwrap_or_default();
                (Phase::Cancelled, Reason::QueuedTooLong, describe::queued_too_long(limit))
            }
        };
        let outlook = |phase, message: String| {
            let outlook = Outlook::new(phase, reason, message);
            match end {
                End::Expired => outlook.used_up(),
                End::Unused => outlook.unused(),
                End::Cancelled | End::QueuedTooLong => outlook,
            }
        };
        if matches!(end, End::Expired | End::Unused) && self.stored_phase() != Some(Phase::Stopping) {
            // Stored before anything stops: from here on nobody can extend it, and until here everybody could. What
            // never ran has nothing to stop, and its end is final with the same write.
            let outlook = outlook(Phase::Stopping, self.stopping_message(describe::STOPPING));
            return self.told(&outlook, vec![], Again::After(Duration::ZERO));
        }
        if !self.parts.none_left() {
            let outlook = outlook(Phase::Stopping, self.stopping_message(describe::STOPPING));
            return self.told(&outlook, self.stop_pods(), self.pod_watch());
        }
        if self.grant().is_some() {
            return Plan { phase: Some(Phase::Stopping), ..Plan::nothing() };
        }
        self.told(&outlook(phase, message), vec![], Again::After(self.settings.keep_ended))
    }

    /// In order, as when ending. What the spec does not say is stored first.
    fn sleep(&self, cause: HibernationCause) -> Plan {
        let reason = match cause {
            HibernationCause::User => Reason::HibernatedByUser,
            HibernationCause::Idle => Reason::HibernatedByIdleness,
            HibernationCause::Drain => Reason::HibernatedByDrain,
        };
        let intended = self.stored().is_some_and(|status| status.hibernation.is_some());
        let on_the_way = Outlook::new(Phase::Hibernating, reason, self.stopping_message(describe::HIBERNATING));
        if cause != HibernationCause::User && !intended {
            // Only the status says so, so it says so before anything stops.
            return self.told(&on_the_way.asleep(cause), vec![], Again::After(Duration::ZERO));
        }
        if !self.parts.none_left() {
            let outlook = if intended { on_the_way.asleep(cause) } else { on_the_way };
            return self.told(&outlook, self.stop_pods(), self.pod_watch());
        }
        if self.grant().is_some() {
            return Plan { phase: Some(Phase::Hibernating), ..Plan::nothing() };
        }
        let outlook = Outlook::new(Phase::Hibernated, reason, describe::asleep(cause).into()).asleep(cause);
        self.told(&outlook, vec![], Again::OnChange)
    }

    /// Waits until somebody mends the request, or what it needs.
    pub(super) fn refuse(&self, violations: &[Violation], work: impl Into<Work>) -> Plan {
        let reason = violations.first().map_or(Reason::Invalid, |violation| violation.reason);
        let message = violations.iter().map(|violation| violation.message.as_str()).collect::<Vec<_>>().join(" ");
        let outlook = Outlook::new(self.before_the_queue(), reason, message).refused();
        self.told(&outlook, work, self.pod_watch())
    }

    /// A server that was further once does not go back to the beginning.
    fn before_the_queue(&self) -> Phase {
        match self.stored_phase() {
            None | Some(Phase::Pending) => Phase::Pending,
            Some(_) => Phase::Queued,
        }
    }

    fn run(&self, grant: Option<&Admission>) -> Plan {
        if let Some(plan) = self.lost(grant) {
            return plan;
        }
        let Some(grant) = grant else { return self.wait() };
        match self.gives_way_in() {
            None => self.go_on(grant),
            Some(Duration::ZERO) => self.give_way(),
            Some(left) => {
                let plan = self.go_on(grant);
                Plan { again: plan.again.or(Again::After(left)), ..plan }
            }
        }
    }

    fn go_on(&self, grant: &Admission) -> Plan {
        if grant.nodes.len() != self.server.spec.nodes as usize {
            return self.misfit(grant);
        }
        if let Some(over) = self.parts.over.first() {
            return self.back_to_the_queue(over);
        }
        if self.parts.all_ready() {
            return self.running();
        }
        let troubles: Vec<Trouble> = self.parts.live().filter_map(|pod| trouble::of(pod, self.pull_secret())).collect();
        let running = self.stored().is_some_and(|status| status.running_since.is_some());
        if let Some(fatal) = troubles.iter().find(|trouble| trouble.fatal && !running) {
            return self.fail(fatal);
        }
        let same = self.parts.current.iter().all(|pod| pod.is_some_and(|pod| self.was_ready(pod)));
        if running && same && !self.wants_the_secret() {
            return self.restarting(&troubles);
        }
        self.start(grant, troubles.first())
    }

    /// Not a grant for this server: somebody else wrote it. The queue sees it too and takes it back.
    fn misfit(&self, grant: &Admission) -> Plan {
        let message = describe::misfit(grant.nodes.len(), self.server.spec.nodes);
        let outlook = Outlook::new(Phase::Queued, Reason::Unschedulable, message.clone());
        let outlook = outlook.failing(Reason::Unschedulable, message, None);
        self.noted(&outlook, self.stop_pods(), self.pod_watch())
    }

    fn pull_secret(&self) -> Option<&str> {
        Some(self.server.spec.image.as_ref()?.pull_secret.as_ref()?.as_str())
    }

    /// Whether this pod was ready before, and did not only take the place of one that was. Pods of a run have the same
    /// names; but one that is older than the time the server runs was ready then, and each has its own address, which
    /// people were told.
    fn was_ready(&self, pod: &Pod) -> bool {
        let (Some(status), Some(details)) = (self.stored(), &pod.server) else { return false };
        let is_it = |told: &ServerPod| {
            let address = told.ip.as_ref().map(Text::as_str);
            told.name == pod.name && Some(told.run) == details.run && address == details.ip.as_deref()
        };
        let since = status.running_since.as_ref().map(|since| since.0);
        let older = details.created.zip(since).is_some_and(|(created, since)| created <= since);
        older || status.pods.iter().any(is_it)
    }

    /// Waits for the queue, or for what the queue waits for.
    fn wait(&self) -> Plan {
        let disk = self.checked.as_ref().ok().map(|valid| &valid.disk);
        let booked = self.server.spec.scheduling.not_before.as_ref().filter(|booked| booked.0 > self.now);
        let refused = || self.seen.refused.clone().map(|message| (Reason::Incomplete, message));
        let (outlook, again) = match (disk.filter(|disk| !disk.ready), booked) {
            (Some(disk), _) => {
                (Outlook::new(self.before_the_queue(), disk.reason, disk.message.clone()), Again::OnChange)
            }
            (None, Some(booked)) => {
                let until = Duration::try_from(self.now.duration_until(booked.0)).unwrap_or_default();
                let admission = self.stored().and_then(|status| status.admission.as_ref());
                let booking = admission.and_then(|admission| admission.booking.as_ref());
                let promised = booking.is_some_and(|booking| booking.from.0.as_second() == booked.0.as_second());
                let said = || (Reason::Booked, describe::booked(promised).into());
                let (reason, message) = refused().unwrap_or_else(said);
                (Outlook::new(Phase::Queued, reason, message), Again::After(until))
            }
            (None, None) => {
                let said = || describe::waiting(self.stored().and_then(|status| status.admission.as_ref()));
                // Until its old pods are gone the queue gives it nothing.
                let held = self.held().or_else(|| self.overdue()).map(|message| (Reason::PodHeld, message));
                let (reason, message) = held.or_else(refused).unwrap_or_else(said);
                (Outlook::new(Phase::Queued, reason, message).competing(), self.patience())
            }
        };
        let again = again.or(self.pod_watch());
        // The queue may have taken the grant back before we told why.
        match self.parts.surplus.iter().find(|pod| pod.is_over()) {
            Some(over) => {
                let outlook = outlook.failing(Reason::PodGone, describe::pod_over(over), None);
                self.noted(&outlook, self.stop_pods(), again)
            }
            None => self.told(&outlook, self.stop_pods(), again),
        }
    }

    /// When it has waited for as long as it may.
    fn patience(&self) -> Again {
        let at = gives_up_at(self.server, self.settings);
        let left = at.map(|at| Duration::try_from(self.now.duration_until(at)).unwrap_or_default());
        left.map_or(Again::OnChange, Again::After)
    }

    /// Its node sent the pod away. The queue takes the grant back and keeps the place; then the pod is deleted.
    fn back_to_the_queue(&self, over: &Pod) -> Plan {
        let message = describe::pod_over(over);
        let outlook = Outlook::new(Phase::Queued, Reason::PodGone, message.clone());
        self.told(&outlook.failing(Reason::PodGone, message, None), vec![], self.pod_watch())
    }

    /// How long until it has to stop for somebody with a better right.
    fn gives_way_in(&self) -> Option<Duration> {
        let at = self.grant()?.gives_way_at.as_ref()?;
        Some(Duration::try_from(self.now.duration_until(at.0)).unwrap_or_default())
    }

    /// Its pods stop in order. When they are gone the queue takes the grant back, and the server has its old place.
    fn give_way(&self) -> Plan {
        let message = self.stopping_message(describe::GIVING_WAY);
        self.told(&Outlook::new(Phase::Queued, Reason::Preempted, message), self.stop_pods(), self.pod_watch())
    }

    /// A node that does not come back. The queue takes the grant back; here the pods are cleared away.
    fn lost(&self, grant: Option<&Admission>) -> Option<Plan> {
        let with_pods = self.lost_nodes().next().map(|node| describe::node_lost(node, self.has_disk(), self.is_spot()));
        let granted = || grant.and_then(|grant| grant.nodes.iter().find(|node| self.is_lost(node)));
        let message = with_pods.or_else(|| granted().map(|node| describe::node_lost(node, false, self.is_spot())))?;
        let told = self.held().unwrap_or_else(|| message.clone());
        let outlook = Outlook::new(Phase::Queued, Reason::NodeLost, told);
        let outlook = outlook.failing(Reason::NodeLost, message, None);
        Some(self.noted(&outlook, self.stop_pods(), self.pod_watch()))
    }

    fn running(&self) -> Plan {
        let outlook = Outlook::new(Phase::Running, Reason::Running, describe::RUNNING.into());
        let idle = self.idleness();
        let mut work = Work { again: idle.again, ..self.upkeep().into() };
        if self.is_told() {
            let (news, again) = self.news();
            work.calls = news.into_iter().chain(idle.calls).collect();
            work.again = work.again.or(again);
        }
        self.told(&outlook, work, self.next_stage().or(self.pod_watch()))
    }

    /// A container of a server that was ready is being started again where it is.
    fn restarting(&self, troubles: &[Trouble]) -> Plan {
        let nodes = self.parts.live().filter_map(|pod| pod.node.as_deref());
        let is_silent = |node: &&str| self.seen.nodes.get(node).is_none_or(|node| !node.is_ready());
        let (reason, message) = match nodes.into_iter().find(is_silent) {
            Some(node) => (Reason::NodeLost, describe::node_silent(node)),
            None => (Reason::Restarting, describe::restarting(troubles.first())),
        };
        let again = self.next_stage().or(self.pod_watch()).or(self.secret_doubt());
        self.told(&Outlook::new(Phase::Running, reason, message), self.upkeep(), again)
    }

    pub(super) fn fail(&self, trouble: &Trouble) -> Plan {
        let outlook = Outlook::new(Phase::Failed, trouble.reason, trouble.message.clone());
        let outlook = outlook.failing(trouble.reason, trouble.message.clone(), trouble.log.clone());
        // The pods go afterwards: the end is stored first, so that it is the end whatever happens.
        self.told(&outlook, vec![], Again::After(Duration::ZERO))
    }
}
