//! The result of a scheduling cycle: assignments, preemptions, and the status of all pending servers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cycle::quota::violation::QuotaViolation;
use super::cycle::reservation::Reservation;
use super::cycle::{self, AssumedAssignment, Pending, PlanMode, SchedulingCycle};
use super::reservation_history::{DelayedStart, Hold};
use super::{ClusterState, Policy};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they were made.
    pub assignments: Vec<Assignment>,
    pub preemptions: Vec<Preemption>,
    /// Bookings that are confirmed by this plan.
    pub confirmed_bookings: Vec<String>,
    /// All servers that do not start now, in queue order.
    pub pending: Vec<PendingServer>,
    /// Reservations that start later than in the last plan.
    pub delayed: Vec<DelayedStart>,
    /// When to run the next cycle if nothing changes.
    pub requeue_at: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub id: String,
    /// Sorted by name.
    pub nodes: Vec<String>,
    pub placement: Placement,
    /// It starts before servers ahead of it in the queue, without delaying any of them.
    pub backfilled: bool,
    /// It uses quota above that of its team, which can be reclaimed.
    pub borrowed: bool,
}

/// Why these nodes were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// The nodes with the least capacity left of those where it fits.
    BestFit,
    /// An empty node, because it fits on no partly used one.
    EmptyNode,
    /// A node with devices for a server without, because it fits on no other.
    DeviceNode,
    /// Nodes of the smallest topology domain that has enough.
    SmallestDomain,
}

/// A running server that has to release its nodes. It keeps its position in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The victim.
    pub id: String,
    pub preemptor: String,
    pub reason: PreemptionReason,
    /// When its graceful stop starts.
    pub stop_at: i64,
    /// When its nodes are free at the latest.
    pub end: i64,
}

/// Why a server is preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptionReason {
    /// The preemptor has a higher priority.
    Priority,
    /// The preemptor's team reclaims quota that the victim's team borrows.
    Reclaim,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingServer {
    pub id: String,
    /// Position among pending servers of the same flavor, from 1; `None` for a booking that is not due.
    pub position: Option<u32>,
    /// When it starts at the latest, unless a running server is extended or a server with higher precedence joins the
    /// queue. `None` if unknown, or beyond the reservation depth.
    pub planned_start: Option<i64>,
    pub reason: PendingReason,
}

/// Why a server is pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingReason {
    Quota(QuotaViolation),
    /// No set of nodes could ever satisfy the request.
    Unsatisfiable,
    /// The nodes that could satisfy the request rejected its pods.
    NodesRejected,
    /// Too little is free, or on the wrong nodes.
    Resources,
    /// The capacity is free, but held for servers ahead of it.
    Priority,
    /// The capacity is free now, but reserved before the server would end.
    ConflictsWithReservation,
    /// Its admission was just revoked.
    ExcludedThisCycle,
    /// Its start time has not been reached.
    BeginTime {
        confirmed: bool,
    },
}

impl Plan {
    /// Formats the decisions as lines. Recorded traces are compared by them, so the format must not change.
    pub fn decision_lines(&self, now: i64) -> impl Iterator<Item = String> {
        let bookings = self.confirmed_bookings.iter().map(move |id| format!("{now} book {id}"));
        let preemptions = self.preemptions.iter().map(move |preemption| {
            let Preemption { id, preemptor, stop_at, end, .. } = preemption;
            format!("{now} preempt {id} for {preemptor} from {stop_at} until {end}")
        });
        let assignments = self.assignments.iter();
        let assignments =
            assignments.map(move |assignment| format!("{now} grant {} {}", assignment.id, assignment.nodes.join(",")));
        bookings.chain(preemptions).chain(assignments)
    }
}

impl PendingReason {
    /// Returns a machine-readable word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Quota(_) => "quota",
            Self::Unsatisfiable => "unsatisfiable",
            Self::NodesRejected => "nodesRejected",
            Self::Resources => "resources",
            Self::Priority => "priority",
            Self::ConflictsWithReservation => "conflictsWithReservation",
            Self::ExcludedThisCycle => "excludedThisCycle",
            Self::BeginTime { confirmed: true } => "beginTime",
            Self::BeginTime { confirmed: false } => "beginTimeUnconfirmed",
        }
    }
}

impl ClusterState {
    /// Runs a scheduling cycle. The plan depends only on the current state, and a plan that was applied leaves nothing to
    /// decide. Only the reservations are stored; all other decisions take effect when they come back as events.
    pub fn plan(&mut self, policy: &Policy, now: i64) -> Plan {
        cycle::plan(self, policy, now, PlanMode::Commit)
    }

    /// Runs a scheduling cycle without storing the reservations.
    pub fn plan_dry_run(&mut self, policy: &Policy, now: i64) -> Plan {
        cycle::plan(self, policy, now, PlanMode::DryRun)
    }
}

impl SchedulingCycle<'_> {
    /// Removes the assumed assignments from the state and returns the plan.
    pub(super) fn into_plan(mut self, results: Vec<Option<Pending>>, mode: PlanMode) -> Plan {
        let next_exemption_end = self.next_exemption_end(&results);
        let preemptions = self.take_preemptions();
        for assumed in &self.assignments {
            for node in &assumed.nodes {
                self.state.update_node(*node, |info| info.remove_server(assumed.server));
            }
        }
        for booking in &self.confirmed_bookings {
            self.state.set_booking_confirmed(*booking, false);
        }
        let Self { state, policy, now, order, assignments, confirmed_bookings, attempt, .. } = self;
        let mut plan = Plan { preemptions, requeue_at: next_exemption_end, ..Plan::default() };
        if mode == PlanMode::Commit {
            let mut reservations = attempt.reservations;
            let mut node_holds = attempt.node_holds.into_nodes_by_server();
            reservations.extend(assignments.iter().map(|assumed| {
                let hold_time = state.entry(assumed.server).map_or(0, |entry| entry.server.hold_time());
                let (start, end) = (now, now.saturating_add(hold_time));
                (assumed.server, Reservation { start, end, nodes: assumed.nodes.clone() })
            }));
            let holds = order.iter().map(|server| {
                let reservation = reservations.remove(server).map(Hold::Reservation);
                (*server, reservation.or_else(|| node_holds.remove(server).map(Hold::Nodes)))
            });
            let mut history = std::mem::take(&mut state.reservations);
            plan.delayed = history.record(holds, now, |server| Some(state.entry(server)?.server.id.clone()));
            state.reservations = history;
        }
        for AssumedAssignment { server, nodes, placement, backfilled, borrowed } in assignments {
            let Some(id) = state.entry(server).map(|entry| entry.server.id.clone()) else { continue };
            let nodes = nodes.iter().filter_map(|node| state.node(*node));
            let mut nodes: Vec<String> = nodes.map(|info| info.node.name.clone()).collect();
            nodes.sort();
            plan.assignments.push(Assignment { id, nodes, placement, backfilled, borrowed });
        }
        // Positions are counted per flavor: other flavors do not delay a server.
        let mut positions: BTreeMap<&str, u32> = BTreeMap::new();
        for (index, result) in order.iter().zip(results) {
            let (Some(Pending { reason, planned_start }), Some(entry)) = (result, state.entry(*index)) else {
                continue;
            };
            let server = &entry.server;
            plan.requeue_at = earlier(plan.requeue_at, next_priority_increase(server.queued_at, policy, now));
            plan.requeue_at = earlier(plan.requeue_at, server.not_before.filter(|start| *start > now));
            if confirmed_bookings.contains(index) && planned_start == server.not_before {
                plan.confirmed_bookings.push(server.id.clone());
            }
            let position = server.is_due(now).then(|| {
                let position = positions.entry(server.flavor.as_str()).or_default();
                *position += 1;
                *position
            });
            plan.pending.push(PendingServer { id: server.id.clone(), position, planned_start, reason });
        }
        state.pending = order;
        plan
    }
}

/// Returns when the priority of a pending server rises next.
fn next_priority_increase(queued_at: i64, policy: &Policy, now: i64) -> Option<i64> {
    let interval = policy.priority_aging_interval.max(1);
    let levels = now.saturating_sub(queued_at).max(0) / interval;
    queued_at.checked_add(levels.checked_add(1)?.checked_mul(interval)?)
}

fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.into_iter().chain(other).min()
}
