//! Where nothing happens but that time passes, whoever is asked to leave does so once for somebody who then starts: nobody
//! is sent to and fro.

use std::collections::BTreeMap;

use odc_core::scheduler::{Plan, Policy};
use proptest::prelude::*;

use super::change::{Change, Come, NODES, any_change, start};
use super::harness::{Harness, running};

/// Nothing but arrival and priority decides whose turn it is, as long as this lasts.
fn policy() -> Policy {
    Policy { share_step: i64::MAX, ageing: 1 << 40, least_run: 0, ..Policy::default() }
}

/// Who was asked to leave, for whom, and when they are gone.
#[derive(Default)]
struct Asked(BTreeMap<String, (String, i64)>);

impl Asked {
    fn note(&mut self, harness: &Harness, plan: &Plan) -> Result<(), String> {
        for preemption in &plan.preemptions {
            self.0.insert(preemption.id.clone(), (preemption.by.clone(), preemption.end));
        }
        let starts = |id: &String| plan.grants.iter().any(|grant| grant.id == *id);
        self.0.retain(|_, (by, _)| !starts(by) && harness.servers.contains_key(by));
        for (id, (by, end)) in &self.0 {
            if starts(id) {
                return Err(format!("{id} left for {by}, which still waits, and starts again"));
            }
            if *end <= harness.now {
                return Err(format!("{id} left for {by}, which does not start though it is {end}"));
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whoever_leaves_does_so_for_somebody_who_starts(changes in prop::collection::vec(any_change(), 1..40)) {
        let mut harness = start(policy());
        for (number, change) in changes.iter().enumerate() {
            let change = match change {
                Change::Come(come) => Change::Come(Come { booked: None, ..come.clone() }),
                other => other.clone(),
            };
            harness.happen(number, &change);
            let plan = harness.plan();
            harness.carry_out(&plan);
        }
        for number in 0..NODES {
            harness.happen(0, &Change::Open(number));
        }
        let mut asked = Asked::default();
        loop {
            let plan = harness.plan();
            harness.carry_out(&plan);
            asked.note(&harness, &plan).map_err(TestCaseError::fail)?;
            let end = harness.servers.values().filter_map(|server| running(server)?.end).min();
            let Some(end) = end else { break };
            harness.now = end;
            harness.expire();
        }
    }
}
