//! One scheduling cycle. Pending servers are evaluated in queue order; each is either assigned nodes now or given a
//! reservation (start, end, nodes) that later servers must not overlap.
//!
//! Invariants, checked by `tests/scheduler`:
//!
//! 1. A reservation holds nodes and quota of the user and team for its whole time; nodes that are held without a known
//!    start hold that quota too. It is the earliest one that does not overlap running servers, assignments and
//!    earlier reservations; ties keep the previous reservation. It does not depend on servers behind it, and is delayed
//!    only if a server ahead uses more.
//! 2. The last attempt of a cycle assigns and preempts no server and confirms no booking, so planning the resulting state
//!    again is a no-op.
//! 3. A discarded attempt has no effect.

mod borrowing;
mod placement;
mod preemption;
pub(crate) mod queue_pass;
pub(crate) mod quota;
pub(crate) mod reservation;

use std::collections::{BTreeMap, BTreeSet};

use super::event::Server;
use super::order::{FairShares, QueueKey};
use super::plan::{PendingReason, Placement, Plan};
use super::state::Entry;
use super::state::arena::{NodeIdx, ServerIdx};
use super::state::request_class::RequestClass;
use super::timeline::Window;
use super::{ClusterState, Policy};
use placement::{NodeSelection, ReservationUse};
use preemption::{PreemptionTotals, SpeculativePreemption};
use queue_pass::{Attempt, Baseline, ClassBlocker, CycleBudget, Progress, SuspendedAttempt};
use quota::{AccountId, QuotaLedger};
use reservation::Reservation;

pub(super) struct SchedulingCycle<'w> {
    pub state: &'w mut ClusterState,
    pub policy: &'w Policy,
    pub now: i64,
    /// All pending servers in queue order.
    pub order: Vec<ServerIdx>,
    pub attempt: Attempt,
    /// The attempt that was suspended by the last preemption.
    suspended: Option<SuspendedAttempt>,
    baseline: Baseline,
    /// The reservations of the last attempt that was not discarded.
    previous_reservations: Option<BTreeMap<ServerIdx, Reservation>>,
    pub assignments: Vec<AssumedAssignment>,
    /// Bookings that are confirmed by this cycle.
    pub confirmed_bookings: BTreeSet<ServerIdx>,
    /// A booking was confirmed or revoked since `order` was computed.
    order_changed: bool,
    /// Applied speculatively, latest last.
    preemptions: Vec<SpeculativePreemption>,
    preemption_totals: PreemptionTotals,
    /// Preemptors for which a preemption was reverted.
    failed_preemptors: BTreeSet<ServerIdx>,
    /// The preemptors when `failed_preemptors` was last cleared.
    last_preemptors: Vec<ServerIdx>,
    budget: CycleBudget,
}

/// Why a server stays pending, and when it starts if that is known.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub reason: PendingReason,
    pub planned_start: Option<i64>,
}

/// An assignment that is assumed in the state until the cycle ends.
pub(super) struct AssumedAssignment {
    pub server: ServerIdx,
    pub nodes: Vec<NodeIdx>,
    pub placement: Placement,
    pub backfilled: bool,
    pub borrowed: bool,
}

/// What happens to the reservations of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanMode {
    /// They are stored in the state.
    Commit,
    DryRun,
}

/// A server that would fit for at least this long is reported as [`PendingReason::ConflictsWithReservation`].
const MIN_USEFUL_RUNTIME_SECONDS: i64 = 900;

/// The result for one server.
enum Evaluation {
    Admit(NodeSelection),
    Pending(Pending),
    /// It would start earlier with this preemption.
    Preempt(SpeculativePreemption),
}

impl Evaluation {
    fn pending(reason: PendingReason, planned_start: Option<i64>) -> Self {
        Self::Pending(Pending { reason, planned_start })
    }
}

pub(super) fn plan(state: &mut ClusterState, policy: &Policy, now: i64, mode: PlanMode) -> Plan {
    let mut cycle = SchedulingCycle::new(state, policy, now);
    let results = cycle.run();
    cycle.into_plan(results, mode)
}

/// Returns all pending servers in queue order. Sorting starts from the last order, which is nearly right.
fn sort_queue(state: &mut ClusterState, policy: &Policy, now: i64) -> Vec<ServerIdx> {
    let mut order = std::mem::take(&mut state.pending);
    let shares: BTreeMap<AccountId, i64> =
        state.accounts().map(|(id, account)| (id, account.fair_share(policy, now))).collect();
    let share = |account: AccountId| shares.get(&account).copied().unwrap_or_default();
    let mut keys: Vec<(QueueKey<'_>, ServerIdx)> = order
        .iter()
        .filter_map(|server| {
            let entry = state.entry(*server).filter(|entry| entry.server.is_pending())?;
            Some((QueueKey::new(&entry.server, FairShares::new(entry, share), policy, now), *server))
        })
        .collect();
    keys.sort();
    keys.dedup_by_key(|(_, server)| *server);
    order.clear();
    order.extend(keys.into_iter().map(|(_, server)| server));
    order
}

impl<'w> SchedulingCycle<'w> {
    pub(super) fn new(state: &'w mut ClusterState, policy: &'w Policy, now: i64) -> Self {
        state.extend_overdue(now);
        let ledger = QuotaLedger::new(state);
        let order = sort_queue(state, policy, now);
        Self {
            state,
            policy,
            now,
            attempt: Attempt::new(ledger.clone(), order.len()),
            order,
            suspended: None,
            baseline: Baseline { assignments: 0, ledger },
            previous_reservations: None,
            assignments: Vec::new(),
            confirmed_bookings: BTreeSet::new(),
            order_changed: false,
            preemptions: Vec::new(),
            preemption_totals: PreemptionTotals::default(),
            failed_preemptors: BTreeSet::new(),
            last_preemptors: Vec::new(),
            budget: CycleBudget::default(),
        }
    }

    /// Repeats attempts until one changes nothing. More than one is needed because servers ahead of a preemptor may use
    /// what its victims leave, borrowing comes after all other assignments, and confirmed bookings change the order.
    pub(super) fn run(&mut self) -> Vec<Option<Pending>> {
        loop {
            let assigned = self.assignments.len();
            if let Some(results) = self.attempt() {
                let is_changed = self.assignments.len() > assigned || self.confirm_bookings(&results);
                if is_changed {
                    self.failed_preemptors.clear();
                } else if self.retry_failed_preemptors() {
                    self.budget.add_retry();
                } else {
                    self.admit_borrowing(&results);
                    if self.assignments.len() == assigned {
                        return results;
                    }
                    self.failed_preemptors.clear();
                }
                self.previous_reservations = Some(std::mem::take(&mut self.attempt.reservations));
            } else {
                self.budget.discarded_attempts += 1;
                self.budget.add_retry();
                self.forget_assignments(assigned);
            }
            self.update_order();
            self.restart_attempt();
        }
    }

    /// Evaluates each server once. Returns `None` if the attempt was discarded, because a preemption was applied or
    /// reverted.
    fn attempt(&mut self) -> Option<Vec<Option<Pending>>> {
        let order = std::mem::take(&mut self.order);
        let results = self.evaluate_all(&order);
        self.order = order;
        results
    }

    fn evaluate_all(&mut self, order: &[ServerIdx]) -> Option<Vec<Option<Pending>>> {
        let mut progress = self.resume().unwrap_or_else(|| Progress::new(&self.assignments, order.len()));
        self.budget.evaluated = 0;
        for server in order.iter().skip(progress.results.len()) {
            self.budget.evaluated += 1;
            if progress.assigned.contains(server) {
                progress.results.push(None);
                continue;
            }
            match self.evaluate(*server, progress.reservations) {
                Evaluation::Admit(NodeSelection { nodes, placement }) => {
                    let (server, backfilled) = (*server, progress.has_due_pending);
                    self.assign(AssumedAssignment { server, nodes, placement, backfilled, borrowed: false });
                    progress.results.push(None);
                }
                Evaluation::Pending(pending) => {
                    if let Some(failed) = self.find_failed(*server, pending.planned_start) {
                        self.revert_preemption(failed);
                        return None;
                    }
                    let entry = self.state.entry(*server).map(|entry| &entry.server);
                    let is_due = entry.is_some_and(|server| server.is_due(self.now));
                    // Bookings do not count towards the reservation depth, even when they are due.
                    let is_booking = entry.is_some_and(Server::is_booking);
                    progress.reservations += usize::from(pending.planned_start.is_some() && !is_booking);
                    self.attempt.budget.count_pending();
                    progress.has_due_pending |= is_due && pending.reason != PendingReason::Unsatisfiable;
                    progress.results.push(Some(pending));
                }
                Evaluation::Preempt(preemption) => {
                    self.apply_preemption(preemption);
                    self.suspend(*server, progress);
                    return None;
                }
            }
        }
        self.suspended = None;
        Some(progress.results)
    }

    /// Confirms bookings whose nodes and quota are free at their start time. Reports whether there are new ones.
    fn confirm_bookings(&mut self, results: &[Option<Pending>]) -> bool {
        let is_new = |(server, result): (&ServerIdx, &Option<Pending>)| {
            let Pending { reason: PendingReason::BeginTime { .. }, planned_start: Some(start) } = result.as_ref()?
            else {
                return None;
            };
            let booking = &self.state.entry(*server)?.server;
            (!booking.booking_confirmed && booking.not_before == Some(*start)).then_some(*server)
        };
        let new: Vec<ServerIdx> = self.order.iter().zip(results).filter_map(is_new).collect();
        for server in &new {
            self.state.set_booking_confirmed(*server, true);
        }
        self.confirmed_bookings.extend(&new);
        self.add_dependent_bookings(&new);
        self.order_changed |= !new.is_empty();
        !new.is_empty()
    }

    /// Sorts the queue again if a booking was confirmed or revoked.
    fn update_order(&mut self) {
        if std::mem::take(&mut self.order_changed) {
            self.state.pending = std::mem::take(&mut self.order);
            self.order = sort_queue(self.state, self.policy, self.now);
        }
    }

    /// Clears the failed preemptors if other preemptions or reservations changed since they failed, because the next cycle
    /// would try them again. Reports whether there were any.
    fn retry_failed_preemptors(&mut self) -> bool {
        let preemptors = self.preemptors();
        let is_changed = preemptors != self.last_preemptors
            || self.previous_reservations.as_ref() != Some(&self.attempt.reservations);
        let retry = is_changed && !self.failed_preemptors.is_empty();
        self.last_preemptors = preemptors;
        if retry {
            self.failed_preemptors.clear();
        }
        retry
    }

    fn evaluate(&mut self, server: ServerIdx, reservations: usize) -> Evaluation {
        let Some(entry) = self.state.entry(server) else {
            return Evaluation::pending(PendingReason::Unsatisfiable, None);
        };
        let hold_time = entry.server.hold_time();
        if let Some(start) = entry.server.not_before.filter(|start| *start > self.now) {
            return Evaluation::Pending(self.evaluate_booking(server, Window { start, duration: hold_time }));
        }
        let window = Window { start: self.now, duration: hold_time };
        if let Some(violation) = self.attempt.ledger.violation(self.state, server, entry, window, &[]) {
            // A server that exceeds a quota holds no nodes; if it is known when the quota is free, it gets a reservation.
            let gets_reservation = self.gets_reservation(server, reservations);
            let start = if gets_reservation { self.reserve_earliest(server, window) } else { None };
            return Evaluation::pending(PendingReason::Quota(violation), start);
        }
        if !self.is_satisfiable(entry) {
            return Evaluation::pending(PendingReason::Unsatisfiable, None);
        }
        let is_ordinary = entry.server.rejected_by.is_empty() && !entry.server.excluded_this_cycle;
        let class = entry.class.filter(|_| is_ordinary);
        let blocker = class.and_then(|class| self.attempt.class_blockers.get(class));
        let blocker = blocker.filter(|blocker| hold_time >= blocker.min_hold_time);
        let reason = if let Some(blocker) = blocker {
            blocker.reason.clone()
        } else {
            if !entry.server.excluded_this_cycle
                && let Some(selection) = self
                    .reserved_nodes_now(server, entry, hold_time)
                    .or_else(|| self.find_nodes(entry, hold_time, ReservationUse::Respect))
            {
                return Evaluation::Admit(selection);
            }
            let reason = self.pending_reason(entry);
            if let Some(class) = class {
                let blocker = ClassBlocker { min_hold_time: hold_time, reason: reason.clone() };
                self.attempt.class_blockers.insert(class, blocker);
            }
            reason
        };
        self.reserve_or_preempt(server, hold_time, reservations, reason)
    }

    /// Evaluates a booking that is not due. If it cannot be satisfied or exceeds a quota at its start time, that is the
    /// reason, because it does not depend on other servers.
    fn evaluate_booking(&mut self, server: ServerIdx, window: Window) -> Pending {
        let Some(entry) = self.state.entry(server) else {
            return Pending { reason: PendingReason::Unsatisfiable, planned_start: None };
        };
        let confirmed = entry.server.booking_confirmed;
        if !confirmed && !self.is_satisfiable(entry) {
            return Pending { reason: PendingReason::Unsatisfiable, planned_start: None };
        }
        let violation =
            if confirmed { None } else { self.attempt.ledger.violation_from(self.state, server, entry, window) };
        let planned_start = self.reserve_earliest(server, window);
        let confirmed = confirmed || planned_start == Some(window.start);
        let reason = violation.map_or(PendingReason::BeginTime { confirmed }, PendingReason::Quota);
        Pending { reason, planned_start }
    }

    /// Reports whether enough nodes could hold the server if they were empty and schedulable.
    fn is_satisfiable(&self, entry: &Entry) -> bool {
        let needed = entry.server.request.nodes();
        let class = self.state.request_class(entry);
        class.is_some_and(|class| class.domains.values().any(|domain| domain.fits_empty >= needed))
    }

    fn pending_reason(&self, entry: &Entry) -> PendingReason {
        let needed = entry.server.request.nodes();
        if entry.server.excluded_this_cycle {
            return PendingReason::ExcludedThisCycle;
        }
        if !entry.server.rejected_by.is_empty() {
            let (mut fitting, mut accepting) = (BTreeMap::<_, usize>::new(), BTreeMap::<_, usize>::new());
            let class = self.state.request_class(entry);
            let fits = class.into_iter().flat_map(RequestClass::node_fits);
            for (node, fit) in fits.filter(|(_, fit)| fit.fits_without_servers) {
                if let Some(domain) = &fit.domain {
                    *fitting.entry(domain.clone()).or_default() += 1;
                    if !self.state.is_rejected_by(entry, node) {
                        *accepting.entry(domain.clone()).or_default() += 1;
                    }
                }
            }
            let is_enough = |domains: &BTreeMap<_, usize>| domains.values().any(|count| *count >= needed);
            if !is_enough(&accepting) && is_enough(&fitting) {
                return PendingReason::NodesRejected;
            }
        }
        let has_end = entry.server.max_hold_time.is_some();
        if has_end && self.find_nodes(entry, MIN_USEFUL_RUNTIME_SECONDS, ReservationUse::Respect).is_some() {
            PendingReason::ConflictsWithReservation
        } else if self.find_nodes(entry, 1, ReservationUse::Ignore).is_some() {
            PendingReason::Priority
        } else {
            PendingReason::Resources
        }
    }

    /// Adds an assignment to the attempt and the state.
    fn assign(&mut self, assumed: AssumedAssignment) {
        let Some(entry) = self.state.entry(assumed.server) else { return };
        self.attempt.ledger.assign(self.state, assumed.server, entry, self.now);
        let (end, per_node) = (self.assignment_end(entry).unwrap_or(i64::MAX), &entry.server.request.per_node);
        for node in &assumed.nodes {
            if let Some(timeline) = self.attempt.node_reservations.get_mut(node) {
                timeline.update(i64::MIN, end, |free| free.saturating_sub_assign(per_node));
            }
        }
        self.assume(assumed);
    }

    /// Adds an assignment to the state.
    fn assume(&mut self, assumed: AssumedAssignment) {
        let Some(entry) = self.state.entry(assumed.server) else { return };
        let (end, per_node) = (self.assignment_end(entry), entry.server.request.per_node.clone());
        for node in &assumed.nodes {
            self.state.update_node(*node, |info| info.add_server(assumed.server, &per_node, end));
        }
        self.assignments.push(assumed);
    }

    /// Returns the end of a server that is assigned nodes now; `None` if unknown.
    fn assignment_end(&self, entry: &Entry) -> Option<i64> {
        entry.server.max_hold_time.map(|_| self.now.saturating_add(entry.server.hold_time()))
    }

    /// Reverts all assignments except the first `keep`, and returns them.
    fn forget_assignments(&mut self, keep: usize) -> Vec<AssumedAssignment> {
        let forgotten: Vec<AssumedAssignment> = self.assignments.drain(keep..).collect();
        for AssumedAssignment { server, nodes, .. } in &forgotten {
            for node in nodes {
                self.state.update_node(*node, |info| info.remove_server(*server));
            }
        }
        forgotten
    }

    /// Returns the reservation of a server in the last attempt or, in the first attempt, in the last cycle.
    fn previous_reservation(&self, server: ServerIdx) -> Option<&Reservation> {
        match &self.previous_reservations {
            Some(previous) => previous.get(&server),
            None => self.state.reservations.get(server),
        }
    }
}
