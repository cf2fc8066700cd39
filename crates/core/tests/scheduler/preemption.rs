//! If only time passes, each victim is preempted once, for a preemptor that then starts.

use std::collections::BTreeMap;

use odc_core::scheduler::{Plan, Policy};
use proptest::prelude::*;

use super::change::{Change, NODES, NewServer, any_change, start};
use super::harness::{Harness, running};

/// Returns a policy with which only arrival and priority determine the order.
fn policy() -> Policy {
    Policy {
        fair_share_resolution: i64::MAX,
        priority_aging_interval: 1 << 40,
        preempt_exempt_time: 0,
        ..Policy::default()
    }
}

/// The preemptor and end of each victim.
#[derive(Default)]
struct Victims(BTreeMap<String, (String, i64)>);

impl Victims {
    fn record(&mut self, harness: &Harness, plan: &Plan) -> Result<(), String> {
        for preemption in &plan.preemptions {
            self.0.insert(preemption.id.clone(), (preemption.preemptor.clone(), preemption.end));
        }
        let starts = |id: &String| plan.assignments.iter().any(|assignment| assignment.id == *id);
        self.0.retain(|_, (preemptor, _)| !starts(preemptor) && harness.servers.contains_key(preemptor));
        for (id, (preemptor, end)) in &self.0 {
            if starts(id) {
                return Err(format!("{id} was preempted by {preemptor}, which is still pending, and starts again"));
            }
            if *end <= harness.now {
                return Err(format!("{id} was preempted by {preemptor}, which does not start at {end}"));
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn preemptor_starts_before_its_victims(changes in prop::collection::vec(any_change(), 1..40)) {
        let mut harness = start(policy());
        for (number, change) in changes.iter().enumerate() {
            let change = match change {
                Change::Create(new) => Change::Create(NewServer { booked_in: None, ..new.clone() }),
                other => other.clone(),
            };
            harness.apply_change(number, &change);
            let plan = harness.plan();
            harness.apply_plan(&plan);
        }
        for number in 0..NODES {
            harness.apply_change(0, &Change::MakeSchedulable(number));
        }
        let mut victims = Victims::default();
        loop {
            let plan = harness.plan();
            harness.apply_plan(&plan);
            victims.record(&harness, &plan).map_err(TestCaseError::fail)?;
            let end = harness.servers.values().filter_map(|server| running(server)?.end).min();
            let Some(end) = end else { break };
            harness.now = end;
            harness.expire();
        }
    }
}
