//! How a decision becomes a plan: what is told of it, and when.

use std::time::Duration;

use odc_api::v1alpha1::condition::{self, Reason, Type};
use odc_api::v1alpha1::{DevServerStatus, Phase};

use super::agents::Call;
use super::decide::Decision;
use super::lifetime::{self, Stage};
use super::status::{self, Now, Outlook};
use super::unfit::Unfit;
use super::{ADMITTING, PASSING, Plan, describe, left};
use crate::plan::{Again, Event, Write};

/// What is to be done, besides telling.
#[derive(Debug)]
pub(super) struct Work {
    pub writes: Vec<Write>,
    pub calls: Vec<Call>,
    pub again: Again,
}

impl Default for Work {
    fn default() -> Self {
        vec![].into()
    }
}

impl From<Vec<Write>> for Work {
    fn from(writes: Vec<Write>) -> Self {
        Self { writes, calls: vec![], again: Again::OnChange }
    }
}

impl Work {
    pub(super) fn plan(self, again: Again) -> Plan {
        Plan { writes: self.writes, calls: self.calls, again: self.again.or(again), ..Plan::nothing() }
    }
}

impl Decision<'_> {
    /// The plan that does this and tells it, now or, if it may pass by itself, a little later.
    pub(super) fn told(&self, outlook: &Outlook, work: impl Into<Work>, again: Again) -> Plan {
        let stored = self.stored_phase();
        let plan = Plan { phase: Some(outlook.phase), ..work.into().plan(again) };
        let untold = self.untold();
        if outlook.may_pass() && stored != Some(outlook.phase) && untold.is_none() {
            let held = self.seen.held.filter(|(phase, _)| *phase == outlook.phase).map_or(self.now, |(_, since)| since);
            let limit = if outlook.phase == Phase::Queued && self.seen.admitting { ADMITTING } else { PASSING };
            if let Some(left) = left(limit, held, self.now) {
                return Plan { again: plan.again.or(Again::After(left)), ..plan };
            }
        }
        let status = self.status(outlook);
        if self.stored() == Some(&status) {
            return plan;
        }
        // That the cluster refuses it has an event of its own.
        let news = stored != Some(outlook.phase) && self.seen.refused.as_ref() != Some(&outlook.message);
        let mut events: Vec<Event> = if news { describe::event(outlook).into_iter().collect() } else { vec![] };
        events.extend(untold.map(Unfit::event));
        events.extend(self.ends_soon(&status));
        let plan = Plan { status: Some(status), events, ..plan };
        if untold.is_some() { first_told(plan) } else { plan }
    }

    /// Once for each time its end comes near: with the write that says so, and never again. One that stops is told by
    /// that.
    fn ends_soon(&self, status: &DevServerStatus) -> Option<Event> {
        let expiring = |status: &DevServerStatus| condition::holds(&status.conditions, Type::Expiring);
        let news = expiring(status) && !self.stored().is_some_and(expiring);
        status.expires_at.as_ref().filter(|_| news).map(|at| describe::ends_soon(at.0))
    }

    /// The same, but told before it is done: what went wrong cannot be seen any more once it is cleared away.
    pub(super) fn noted(&self, outlook: &Outlook, work: impl Into<Work>, again: Again) -> Plan {
        let plan = self.told(outlook, work, again);
        if plan.status.is_none() {
            return plan;
        }
        first_told(plan)
    }

    fn status(&self, outlook: &Outlook) -> DevServerStatus {
        let now = Now {
            host_key: self.host_key(),
            idle: if outlook.phase == Phase::Running { self.idleness().condition } else { None },
            killed: self.killed(),
            unfit: self.unfit().cloned(),
        };
        status::compose(self.server, outlook, self.checked, &self.parts, now, self.settings, self.now)
    }

    /// When a running server comes into the next part of its time.
    pub(super) fn next_stage(&self) -> Again {
        let status = self.status(&Outlook::new(Phase::Running, Reason::Running, String::new()));
        match status.expires_at.map(|at| lifetime::stage(at.0, self.settings.expiry_grace, self.now)) {
            Some(Stage::TimeLeft(left) | Stage::EndsSoon(left) | Stage::Grace(left)) => Again::After(left),
            Some(Stage::Over) => Again::After(Duration::ZERO),
            None => Again::OnChange,
        }
    }
}

/// Everything else waits until it is stored.
fn first_told(plan: Plan) -> Plan {
    Plan { writes: vec![], calls: vec![], again: Again::After(Duration::ZERO), ..plan }
}
