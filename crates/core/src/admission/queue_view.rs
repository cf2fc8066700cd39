//! The queue after a plan: positions and estimated starts of pending servers, and dry runs.

mod quota_what_if;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use k8s_openapi::jiff::Timestamp;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::PlannedStart;
use odc_api::v1alpha1::condition::Reason;

pub use quota_what_if::{QuotaOverrides, StartChange, StartTime};

use super::convert::to_scheduler;
use super::{NodeRejections, Server};
use crate::scheduler::{
    self, ClusterState, DelayedStart, Eta, EtaCalibration, Event, Explanation, Forecast, PendingServer,
    ReservationSpec, ServerState,
};
use crate::time;

#[derive(Clone, Debug, Default)]
pub struct QueueView {
    pub(super) state: ClusterState,
    /// Created on demand and kept while servers are pending: it is as large as the state.
    pub(super) forecast: OnceLock<Forecast>,
    pending: Vec<PendingServer>,
    etas: BTreeMap<String, Eta>,
    /// Delays of pending servers, by uid.
    delayed: BTreeMap<String, DelayedStart>,
    policy: scheduler::Policy,
    /// The time of the plan; 0 before the first one.
    pub(super) as_of: i64,
}

/// A pending server with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePosition<'a> {
    pub server: &'a scheduler::Server,
    pub position: Option<u32>,
    pub eta: Option<Eta>,
    /// The last delay of its planned start.
    pub delayed: Option<&'a DelayedStart>,
    pub reason: Reason,
    pub message: String,
}

/// What would happen to a server if it were created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRunOutcome {
    Admitted,
    Pending { position: Option<u32>, eta: Option<Eta>, reason: Reason, message: String },
}

impl QueueView {
    /// Stores the result of a plan whose assignments were applied to the state.
    pub(super) fn update(
        &mut self,
        pending: Vec<PendingServer>,
        delayed: &[DelayedStart],
        policy: scheduler::Policy,
        now: i64,
    ) {
        self.update_delays(delayed, &pending);
        let forecast = self.forecast.take();
        self.etas = BTreeMap::new();
        if !pending.is_empty() {
            let create = || Forecast::from_state(&self.state, policy.usage_half_life, now);
            let mut forecast = forecast.unwrap_or_else(create);
            self.etas = etas(&self.state, &mut forecast, &pending, &policy, now);
            self.forecast = forecast.into();
        }
        (self.pending, self.policy, self.as_of) = (pending, policy, now);
    }

    /// Adds new delays, and removes those of servers that are not pending or not delayed any more.
    fn update_delays(&mut self, delayed: &[DelayedStart], pending: &[PendingServer]) {
        let mut known = std::mem::take(&mut self.delayed);
        known.extend(delayed.iter().map(|delayed| (delayed.id.clone(), delayed.clone())));
        let still_delayed = |pending: &PendingServer| {
            let delayed = known.remove(&pending.id)?;
            let is_later = pending.planned_start.is_none_or(|start| start > delayed.from);
            is_later.then(|| (pending.id.clone(), DelayedStart { to: pending.planned_start, ..delayed }))
        };
        self.delayed = pending.iter().filter_map(still_delayed).collect();
    }

    /// Reports whether there was a plan.
    pub fn has_plan(&self) -> bool {
        self.as_of != 0
    }

    pub(super) fn state(&self) -> &ClusterState {
        &self.state
    }

    pub(super) fn pending(&self) -> &[PendingServer] {
        &self.pending
    }

    pub fn eta(&self, uid: &str) -> Option<Eta> {
        self.etas.get(uid).copied()
    }

    /// Returns the reservations by uid.
    pub(super) fn planned_starts(&self) -> BTreeMap<String, PlannedStart> {
        let planned = |reservation: ReservationSpec| {
            let start = time::from_second(reservation.start);
            (reservation.server, PlannedStart { at: to_api_precision(start), nodes: reservation.nodes })
        };
        self.state.reservations().map(planned).collect()
    }

    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Returns all pending servers in queue order.
    pub fn positions(&self) -> Vec<QueuePosition<'_>> {
        self.positions_where(|_| true)
    }

    /// Returns some pending servers in queue order. Messages are created only for these, which is most of the work.
    pub fn positions_where(&self, is_wanted: impl Fn(&scheduler::Server) -> bool) -> Vec<QueuePosition<'_>> {
        let mut explainer = self.state.explainer();
        let position = |pending: &PendingServer| {
            let server = self.state.server(&pending.id).filter(|server| is_wanted(server))?;
            let Explanation { reason, message } = explainer.explain(pending);
            let (eta, delayed) = (self.eta(&pending.id), self.delayed.get(&pending.id));
            Some(QueuePosition { server, position: pending.position, eta, delayed, reason, message })
        };
        self.pending.iter().filter_map(position).collect()
    }

    pub fn eta_calibration(&self, flavor: &str) -> Option<&EtaCalibration> {
        self.state.history(flavor).map(|history| &history.eta_calibration)
    }

    /// Returns what would happen to a server if it were created now. The queue is not changed.
    pub fn dry_run(&self, server: &Server, now: Timestamp) -> DryRunOutcome {
        // The last plan may be old, if nothing has changed since.
        let now = now.as_second().max(self.as_of);
        let (mut state, usage_half_life) = (self.state.clone(), self.policy.usage_half_life);
        let server =
            scheduler::Server { state: ServerState::Pending, ..to_scheduler(server, &NodeRejections::default()) };
        let id = server.id.clone();
        let event = Event::Server(Box::new(server));
        state.apply(event.clone(), usage_half_life, now);
        let plan = state.plan_dry_run(&self.policy, now);
        let Some(pending) = plan.pending.iter().find(|pending| pending.id == id) else {
            return DryRunOutcome::Admitted;
        };
        let forecast = self.forecast.get_or_init(|| Forecast::from_state(&self.state, usage_half_life, now));
        let mut forecast = forecast.clone();
        forecast.apply(&event, &state, usage_half_life, now);
        let eta = etas(&state, &mut forecast, std::slice::from_ref(pending), &self.policy, now).remove(&id);
        let Explanation { reason, message } = state.explainer().explain(pending);
        DryRunOutcome::Pending { position: pending.position, eta, reason, message }
    }
}

fn etas(
    state: &ClusterState,
    forecast: &mut Forecast,
    pending: &[PendingServer],
    policy: &scheduler::Policy,
    now: i64,
) -> BTreeMap<String, Eta> {
    let expected = forecast.expected_starts(state, policy, now);
    let eta = |pending: &PendingServer| {
        let expected = expected.get(&pending.id).copied()?;
        Some((pending.id.clone(), state.eta(&pending.id, expected, pending.planned_start, now)?))
    };
    pending.iter().filter_map(eta).collect()
}
