//! What random walks found, as small as it is.

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{Backfill, Policy, Server};

use super::harness::{Harness, node, server};
use super::live::Also;

fn with_one_node(policy: Policy) -> Harness {
    let mut harness = Harness::new(policy);
    harness.node(node("n0", 8, "a"));
    harness
}

/// Its time came, somebody else is first, and only the first has a planned start: it keeps what it was told.
#[test]
fn a_booking_that_could_not_be_promised_keeps_its_planned_start_when_its_time_comes() {
    let mut harness = with_one_node(Policy { backfill: Backfill::First, ..Policy::default() });
    harness.put(server("runs", 8, 1_000, 0));
    harness.live(Also::default()).unwrap();
    harness.put(server("first", 8, 100, 0));
    harness.put(Server { not_before: Some(500), ..server("booked", 8, 100, 1) });
    let start = |harness: &mut Harness| {
        let plan = harness.live(Also { second: true, undelayed: true }).unwrap();
        plan.waits.iter().find(|wait| wait.id == "booked").unwrap().start
    };
    assert_eq!(start(&mut harness), Some(1_100));
    harness.now = 500;
    assert_eq!(start(&mut harness), Some(1_100));
}

/// Who waited long comes first, and somebody more urgent who may ask it to leave does not do so in the same second, though
/// the policy spares nobody.
#[test]
fn nobody_is_asked_to_leave_in_the_second_it_started_in() {
    let mut harness = with_one_node(Policy { least_run: 0, ageing: 3_600, ..Policy::default() });
    harness.now = 7_200;
    harness.put(Server { preemptible: true, ..server("patient", 6, 3_600, 0) });
    harness.put(Server { priority: Priority::High, ..server("urgent", 7, 600, 7_200) });
    let plan = harness.live(Also { second: true, undelayed: true }).unwrap();
    assert_eq!(plan.grants.iter().map(|grant| grant.id.as_str()).collect::<Vec<_>>(), ["patient"]);
    harness.now += 1;
    let plan = harness.live(Also { second: true, undelayed: true }).unwrap();
    assert_eq!(plan.preemptions.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["patient"]);
}
