//! Minimal cases of failures that random walks found.

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{Backfill, Policy, Server};

use super::checked_step::ExtraChecks;
use super::harness::{Harness, node, server};

fn with_one_node(policy: Policy) -> Harness {
    let mut harness = Harness::new(policy);
    harness.node(node("n0", 8, "a"));
    harness
}

/// Only the first server has a reservation with this policy, but a booking keeps its own when it is due.
#[test]
fn unconfirmed_booking_keeps_reservation_when_due() {
    let mut harness = with_one_node(Policy { backfill: Backfill::Easy, ..Policy::default() });
    harness.put(server("running", 8, 1_000, 0));
    harness.step(ExtraChecks::default()).unwrap();
    harness.put(server("first", 8, 100, 0));
    harness.put(Server { not_before: Some(500), ..server("booked", 8, 100, 1) });
    let start = |harness: &mut Harness| {
        let plan = harness.step(ExtraChecks { second_plan: true, backfill: true }).unwrap();
        plan.pending.iter().find(|pending| pending.id == "booked").unwrap().planned_start
    };
    assert_eq!(start(&mut harness), Some(1_100));
    harness.now = 500;
    assert_eq!(start(&mut harness), Some(1_100));
}

/// A server that was queued long ago is admitted first; one with higher priority does not preempt it in the same second,
/// although the policy has no exempt time.
#[test]
fn server_is_not_preempted_in_the_second_it_started() {
    let mut harness =
        with_one_node(Policy { preempt_exempt_time: 0, priority_aging_interval: 3_600, ..Policy::default() });
    harness.now = 7_200;
    harness.put(Server { preemptible: true, ..server("old", 6, 3_600, 0) });
    harness.put(Server { priority: Priority::High, ..server("urgent", 7, 600, 7_200) });
    let plan = harness.step(ExtraChecks { second_plan: true, backfill: true }).unwrap();
    assert_eq!(plan.assignments.iter().map(|assignment| assignment.id.as_str()).collect::<Vec<_>>(), ["old"]);
    harness.now += 1;
    let plan = harness.step(ExtraChecks { second_plan: true, backfill: true }).unwrap();
    assert_eq!(plan.preemptions.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["old"]);
}
