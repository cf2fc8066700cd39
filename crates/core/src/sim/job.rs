//! A request of a trace and its state.

use odc_api::v1alpha1::Priority;
use serde::Serialize;

use super::trace;
use crate::scheduler::{self, Eta, Placement, Precedence, RunInfo, Server, ServerState};

/// The report about a request. Times are in seconds of the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub id: String,
    pub queued_at: i64,
    /// The first estimate; `None` if it started at once, or there was no estimate.
    pub eta: Option<EstimatedStart>,
    pub runs: Vec<Run>,
    pub outcome: RequestOutcome,
    pub preemptions: u32,
    pub overtaken_by: Vec<Overtaker>,
    /// Why it never ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EstimatedStart {
    pub p50: i64,
    pub p90: i64,
    pub latest: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub started_at: i64,
    /// `None` if it is running at the end of the trace.
    pub ended_at: Option<i64>,
    pub nodes: Vec<String>,
    pub placement: Placement,
    pub backfilled: bool,
}

/// A request that was queued later and started earlier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Overtaker {
    pub id: String,
    pub precedence: Precedence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestOutcome {
    /// It ran for its actual duration.
    Finished,
    /// Its lifetime ended before its actual duration.
    Expired,
    Cancelled,
    /// It is running at the end of the trace.
    Running,
    /// It is pending at the end of the trace.
    Pending,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub request: trace::Request,
    pub team: Option<String>,
    pub resources: scheduler::Request,
    pub priority: Priority,
    pub queued_at: i64,
    /// Including extensions.
    pub lifetime: i64,
    /// Runtime of all completed runs.
    pub completed_runtime: i64,
    pub runs: Vec<Run>,
    pub outcome: RequestOutcome,
    pub preemptions: u32,
    /// When it has to end because it is preempted.
    pub preempted_end: Option<i64>,
    pub booking_confirmed: bool,
    /// The first estimate and its time.
    pub eta: Option<(i64, Eta)>,
    pub overtaken_by: Vec<Overtaker>,
    pub reason: Option<String>,
}

impl Job {
    /// Returns its team, or its user if it has none.
    pub fn account(&self) -> &str {
        self.team.as_deref().unwrap_or(&self.request.user)
    }

    /// Reports whether it had to wait for anything but its own start time.
    pub fn has_waited(&self) -> bool {
        self.request.not_before.is_none() && self.runs.first().is_none_or(|run| run.started_at > self.queued_at)
    }

    /// Returns the start of the current run.
    pub fn started_at(&self) -> Option<i64> {
        let run = self.runs.last().filter(|run| run.ended_at.is_none());
        run.map(|run| run.started_at).filter(|_| self.outcome == RequestOutcome::Running)
    }

    /// Returns when its lifetime ends.
    pub fn lifetime_end(&self) -> Option<i64> {
        Some(self.started_at()?.saturating_add(self.lifetime.saturating_sub(self.completed_runtime).max(0)))
    }

    /// Returns when it actually ends: after its actual duration, at the end of its lifetime, or when it is preempted.
    pub fn actual_end(&self) -> Option<i64> {
        let remaining = self.request.actual_seconds.map(|actual| actual.saturating_sub(self.completed_runtime).max(0));
        let started_at = self.started_at().unwrap_or_default();
        let finished = remaining.map_or(i64::MAX, |remaining| started_at.saturating_add(remaining));
        Some(self.lifetime_end()?.min(finished).min(self.preempted_end.unwrap_or(i64::MAX)))
    }

    /// Converts the job for the scheduler.
    pub fn server(&self) -> Server {
        let per_node = &self.resources.per_node;
        let state = match (self.started_at(), self.runs.last()) {
            (Some(started_at), Some(run)) => ServerState::Running(RunInfo {
                nodes: run.nodes.iter().map(|node| (node.clone(), per_node.clone())).collect(),
                started_at,
                end: self.lifetime_end().map(|end| end.min(self.preempted_end.unwrap_or(i64::MAX))),
                terminating: self.preempted_end.is_some(),
            }),
            _ => ServerState::Pending,
        };
        Server {
            id: self.request.id.clone(),
            name: self.request.id.clone(),
            owner: self.request.user.clone(),
            team: self.team.clone(),
            flavor: self.request.flavor.clone(),
            request: self.resources.clone(),
            priority: self.priority,
            preemptible: self.request.preemptible,
            queued_at: self.queued_at,
            not_before: self.request.not_before,
            booking_confirmed: self.booking_confirmed,
            max_hold_time: Some(self.lifetime.saturating_sub(self.completed_runtime).max(1)),
            preemptions: self.preemptions,
            rejected_by: std::collections::BTreeMap::new(),
            excluded_this_cycle: false,
            state,
        }
    }

    pub fn report(self) -> Request {
        let eta = self.eta.map(|(_, eta)| EstimatedStart { p50: eta.p50, p90: eta.p90, latest: eta.latest });
        let reason = self.reason.filter(|_| self.runs.is_empty());
        Request {
            id: self.request.id,
            queued_at: self.queued_at,
            eta,
            runs: self.runs,
            outcome: self.outcome,
            preemptions: self.preemptions,
            overtaken_by: self.overtaken_by,
            reason,
        }
    }
}
