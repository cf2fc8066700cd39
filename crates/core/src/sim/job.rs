//! A request of a trace and what became of it.

use odc_api::v1alpha1::Priority;
use serde::Serialize;

use super::trace;
use crate::scheduler::{Ask, Choice, Eta, Right, Running, Server, State};

/// What is reported about a request. Times are in seconds of the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub id: String,
    pub queued_at: i64,
    /// As first promised; nothing if it started at once, or nothing could be said.
    pub eta: Option<Promise>,
    pub runs: Vec<Run>,
    pub outcome: Outcome,
    pub preemptions: u32,
    pub overtaken_by: Vec<Overtaken>,
    /// Why it never ran, as was last said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Promise {
    pub p50: i64,
    pub p90: i64,
    pub latest: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub started_at: i64,
    /// Nothing if it runs at the end of the trace.
    pub ended_at: Option<i64>,
    pub nodes: Vec<String>,
    /// Why these nodes.
    pub choice: Choice,
    /// It started before others that came before it in the queue, and delayed none of them.
    pub backfilled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Overtaken {
    pub id: String,
    pub right: Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Its owner was done.
    Finished,
    /// Its lifetime was used up.
    Expired,
    Cancelled,
    /// The trace ended first.
    Running,
    /// It never ran, or waits to run again.
    Waiting,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub request: trace::Request,
    pub team: Option<String>,
    pub ask: Ask,
    pub priority: Priority,
    pub queued: i64,
    /// Extensions included.
    pub lifetime: i64,
    /// How long it ran in runs that are over.
    pub ran: i64,
    pub runs: Vec<Run>,
    pub outcome: Outcome,
    pub preemptions: u32,
    /// It was asked to leave by then.
    pub leaves: Option<i64>,
    pub booked: bool,
    pub eta: Option<(i64, Eta)>,
    pub overtaken_by: Vec<Overtaken>,
    pub reason: Option<String>,
}

impl Job {
    /// Whose share it uses: its team's, or its user's own.
    pub fn holder(&self) -> &str {
        self.team.as_deref().unwrap_or(&self.request.user)
    }

    /// Whether it had to wait for anything but its own time.
    pub fn waited(&self) -> bool {
        self.request.not_before.is_none() && self.runs.first().is_none_or(|run| run.started_at > self.queued)
    }

    pub fn started(&self) -> Option<i64> {
        let run = self.runs.last().filter(|run| run.ended_at.is_none());
        run.map(|run| run.started_at).filter(|_| self.outcome == Outcome::Running)
    }

    /// When its lifetime is used up.
    pub fn end(&self) -> Option<i64> {
        Some(self.started()?.saturating_add(self.lifetime.saturating_sub(self.ran).max(0)))
    }

    /// When it really goes: its owner is done, its lifetime is used up, or it was asked to.
    pub fn leaves_at(&self) -> Option<i64> {
        let done = self.request.actual_seconds.map(|actual| actual.saturating_sub(self.ran).max(0));
        let done = done.map_or(i64::MAX, |left| self.started().unwrap_or_default().saturating_add(left));
        Some(self.end()?.min(done).min(self.leaves.unwrap_or(i64::MAX)))
    }

    /// As the world is told.
    pub fn server(&self) -> Server {
        let state = match (self.started(), self.runs.last()) {
            (Some(since), Some(run)) => State::Running(Running {
                on: run.nodes.iter().map(|node| (node.clone(), self.ask.each.clone())).collect(),
                since,
                end: self.end().map(|end| end.min(self.leaves.unwrap_or(i64::MAX))),
                leaving: self.leaves.is_some(),
            }),
            _ => State::Waiting,
        };
        Server {
            id: self.request.id.clone(),
            name: self.request.id.clone(),
            owner: self.request.user.clone(),
            team: self.team.clone(),
            flavor: self.request.flavor.clone(),
            ask: self.ask.clone(),
            priority: self.priority,
            preemptible: self.request.preemptible,
            queued: self.queued,
            not_before: self.request.not_before,
            booked: self.booked,
            lifetime: Some(self.lifetime.saturating_sub(self.ran).max(1)),
            preemptions: self.preemptions,
            unfit: std::collections::BTreeMap::new(),
            barred: false,
            state,
        }
    }

    pub fn report(self) -> Request {
        let eta = self.eta.map(|(_, eta)| Promise { p50: eta.p50, p90: eta.p90, latest: eta.latest });
        let reason = self.reason.filter(|_| self.runs.is_empty());
        Request {
            id: self.request.id,
            queued_at: self.queued,
            eta,
            runs: self.runs,
            outcome: self.outcome,
            preemptions: self.preemptions,
            overtaken_by: self.overtaken_by,
            reason,
        }
    }
}
