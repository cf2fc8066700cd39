//! Tentative state of one pass over the queue: quota ledger, reservations, holds and cost budgets. It is discarded
//! when a preemption is applied or reverted.

use std::collections::{BTreeMap, BTreeSet};

use super::preemption::PreemptorClass;
use super::quota::QuotaLedger;
use super::reservation::Reservation;
use super::{AssumedAssignment, Pending, SchedulingCycle};
use crate::resources::Resources;
use crate::scheduler::plan::PendingReason;
use crate::scheduler::state::arena::{ClassIdx, DenseMap, NodeIdx, ServerIdx};
use crate::scheduler::timeline::Timeline;

#[derive(Default)]
pub(crate) struct Attempt {
    pub ledger: QuotaLedger,
    /// Free amounts after subtracting all reservations, for nodes with reservations.
    pub node_reservations: BTreeMap<NodeIdx, Timeline<Resources>>,
    pub reservations: BTreeMap<ServerIdx, Reservation>,
    pub node_holds: NodeHolds,
    /// Why a server of each class stayed pending. Capacity only shrinks within an attempt, so it applies to all servers of
    /// the class that run at least as long.
    pub class_blockers: DenseMap<ClassIdx, ClassBlocker>,
    /// Preemptor classes for which victim selection failed, with the shortest hold time tried. Servers of the class that run
    /// at least as long are skipped: assignments of an attempt are within quotas, so they create no new reason to preempt.
    pub no_victims_for: BTreeMap<PreemptorClass, i64>,
    pub budget: AttemptBudget,
}

/// Nodes held as a whole for servers whose start is unknown.
#[derive(Default)]
pub(crate) struct NodeHolds {
    by_server: BTreeMap<ServerIdx, Vec<NodeIdx>>,
    /// All nodes of `by_server`.
    nodes: BTreeSet<NodeIdx>,
}

pub(crate) struct ClassBlocker {
    pub min_hold_time: i64,
    pub reason: PendingReason,
}

/// The quota ledger at the start of an attempt.
pub(crate) struct Baseline {
    /// The number of assignments that `ledger` includes.
    pub assignments: usize,
    pub ledger: QuotaLedger,
}

/// Bounds the cost of the preemptions of an attempt, in evaluations. It depends only on the set of pending servers, so
/// replanning selects the same preemptors.
#[derive(Default)]
pub(crate) struct AttemptBudget {
    /// Servers that are pending when the attempt starts.
    pending: usize,
    /// Servers that stayed pending so far.
    stayed_pending: usize,
    preemption_cost: usize,
}

/// Bounds the cost of a cycle, in evaluations.
#[derive(Default)]
pub(crate) struct CycleBudget {
    /// Since the attempt started or continued.
    pub evaluated: usize,
    /// Evaluations of discarded and repeated attempts.
    pub retry_cost: usize,
    pub discarded_attempts: usize,
}

/// The preemption budget of an attempt, in evaluations per pending server.
const PREEMPTION_EVALUATIONS_PER_PENDING: usize = 4;
/// The smallest preemption budget of an attempt.
pub(crate) const MIN_PREEMPTION_EVALUATIONS: usize = 40_000;

/// How far an attempt has come.
pub(crate) struct Progress {
    /// Number of assignments before the attempt.
    pub assignments: usize,
    /// Servers of these assignments.
    pub assigned: BTreeSet<ServerIdx>,
    pub results: Vec<Option<Pending>>,
    /// Number of reservations that count towards the reservation depth.
    pub reservations: usize,
    /// A server that is due stays pending, so later assignments are backfilled.
    pub has_due_pending: bool,
}

/// A suspended attempt. If the preemption that suspended it is reverted, the attempt continues from the suspended position:
/// everything before it would be evaluated the same way.
pub(crate) struct SuspendedAttempt {
    preemptor: ServerIdx,
    /// The preemption was reverted.
    can_resume: bool,
    progress: Progress,
    attempt: Attempt,
    /// The assignments made by this attempt.
    assignments: Vec<AssumedAssignment>,
}

impl Attempt {
    pub fn new(ledger: QuotaLedger, pending: usize) -> Self {
        Self { ledger, budget: AttemptBudget { pending, ..AttemptBudget::default() }, ..Self::default() }
    }
}

impl NodeHolds {
    pub fn insert(&mut self, server: ServerIdx, nodes: Vec<NodeIdx>) {
        self.nodes.extend(&nodes);
        self.by_server.insert(server, nodes);
    }

    pub fn contains(&self, node: NodeIdx) -> bool {
        self.nodes.contains(&node)
    }

    pub fn into_nodes_by_server(self) -> BTreeMap<ServerIdx, Vec<NodeIdx>> {
        self.by_server
    }
}

impl Progress {
    pub fn new(assignments: &[AssumedAssignment], pending: usize) -> Self {
        Self {
            assignments: assignments.len(),
            assigned: assignments.iter().map(|assumed| assumed.server).collect(),
            results: Vec::with_capacity(pending),
            reservations: 0,
            has_due_pending: false,
        }
    }
}

impl AttemptBudget {
    /// Counts a server that stays pending.
    pub fn count_pending(&mut self) {
        self.stayed_pending += 1;
    }

    /// Reports whether a preemption of the next server is within the budget.
    pub fn allows_preemption(&self) -> bool {
        self.preemption_cost.saturating_add(self.next_preemption_cost()) <= self.max_preemption_cost()
    }

    /// Charges a server that might have preempted. A preemptor is not charged before its preemption was reverted and the
    /// attempt continues.
    pub fn charge_preemption(&mut self) {
        self.preemption_cost = self.preemption_cost.saturating_add(self.next_preemption_cost());
    }

    /// Returns [`MIN_PREEMPTION_EVALUATIONS`] or, if that is more, a number of evaluations per pending server.
    pub fn max_preemption_cost(&self) -> usize {
        (PREEMPTION_EVALUATIONS_PER_PENDING * self.pending).max(MIN_PREEMPTION_EVALUATIONS)
    }

    /// A preemption costs at most two evaluations of every server ahead.
    fn next_preemption_cost(&self) -> usize {
        2 * (self.stayed_pending + 1)
    }
}

impl CycleBudget {
    /// Adds the evaluations of an attempt that is discarded or repeated.
    pub fn add_retry(&mut self) {
        self.retry_cost += self.evaluated;
    }
}

impl SchedulingCycle<'_> {
    /// Starts a new attempt from the current assignments.
    pub(super) fn restart_attempt(&mut self) {
        let Baseline { assignments, ledger } = &mut self.baseline;
        for assumed in self.assignments.iter().skip(*assignments) {
            if let Some(entry) = self.state.entry(assumed.server) {
                ledger.assign(self.state, assumed.server, entry, self.now);
            }
        }
        *assignments = self.assignments.len();
        ledger.ensure_timelines_like(self.state, &self.attempt.ledger);
        self.attempt = Attempt::new(ledger.clone(), self.order.len() - self.assignments.len());
    }

    /// Suspends the attempt before the evaluation of `preemptor` and reverts its assignments.
    pub(super) fn suspend(&mut self, preemptor: ServerIdx, progress: Progress) {
        let assignments = self.forget_assignments(progress.assignments);
        self.baseline.ledger.ensure_timelines_like(self.state, &self.attempt.ledger);
        let attempt = std::mem::take(&mut self.attempt);
        self.suspended = Some(SuspendedAttempt { preemptor, can_resume: false, progress, attempt, assignments });
    }

    /// Lets the suspended attempt continue if the reverted preemption suspended it; otherwise discards it.
    pub(super) fn revert_suspension(&mut self, preemptor: ServerIdx, is_unchanged: bool) {
        self.suspended = self.suspended.take().filter(|suspended| is_unchanged && suspended.preemptor == preemptor);
        if let Some(suspended) = &mut self.suspended {
            suspended.can_resume = true;
        }
    }

    /// Continues the suspended attempt, if it can be.
    pub(super) fn resume(&mut self) -> Option<Progress> {
        let suspended = self.suspended.take_if(|suspended| suspended.can_resume)?;
        suspended.assignments.into_iter().for_each(|assumed| self.assume(assumed));
        self.attempt = suspended.attempt;
        Some(suspended.progress)
    }
}
