//! A million random steps from more than a thousand seeds, with all kinds of changes and policies. Checks that capacity and
//! quota are never exceeded, each delayed reservation has a cause, each overtaking has a precedence, and an applied plan
//! leaves nothing to decide.

use odc_core::scheduler::{Backfill, Policy};
use odc_core::sim::Rng;

use super::change::{Change, random_change, start};
use super::checked_step::ExtraChecks;
use super::harness::{Effort, Harness};

/// Returns the number of walks in each of the eight parts, their steps, and the steps of the two long walks.
fn walk_sizes() -> (u64, usize, usize) {
    match Effort::from_env() {
        Effort::Quick => (6, 250, 1_000),
        Effort::Default => (125, 1_000, 20_000),
        Effort::Full => (1_250, 1_000, 500_000),
    }
}

/// Runs a walk. `ODC_SEED` changes the seeds of all walks.
fn walk(number: u64, steps: usize, policy: PolicyFn) {
    let seed = std::env::var("ODC_SEED").map_or(0, |seed| seed.parse::<u64>().unwrap());
    let seed = (seed * 1_000_000 + number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    if let Some((step, error)) = run(seed, steps, policy).1 {
        let (before, _) = run(seed, step, policy);
        panic!("step {step} of seed {seed}: {error}\n{}", before.shrink().unwrap_or(before).describe());
    }
}

/// Runs some steps. Returns the first error with its step.
fn run(seed: u64, steps: usize, policy: PolicyFn) -> (Harness, Option<(usize, String)>) {
    let mut rng = Rng(seed);
    let mut harness = start(policy(&mut rng));
    for step in 0..steps {
        apply_changes(&mut rng, &mut harness, step);
        if let Err(error) = harness.step(ExtraChecks { second_plan: step % 4 == 0, backfill: step % 8 == 1 }) {
            return (harness, Some((step, error)));
        }
    }
    apply_changes(&mut rng, &mut harness, steps);
    (harness, None)
}

type PolicyFn = fn(&mut Rng) -> Policy;

/// Returns a policy with times that are short enough to matter in a walk.
fn common_policy(rng: &mut Rng) -> Policy {
    Policy {
        reservation_depth: *rng.choose(&[2, 6, 6, 100]).unwrap(),
        priority_aging_interval: *rng.choose(&[3_600, 24 * 3_600]).unwrap(),
        usage_half_life: *rng.choose(&[7_200, 7 * 24 * 3_600]).unwrap(),
        max_preemptions: *rng.choose(&[1, 3]).unwrap(),
        ..Policy::default()
    }
}

/// Returns a policy with less backfill and without exempt time.
fn rare_policy(rng: &mut Rng) -> Policy {
    Policy {
        backfill: *rng.choose(&[Backfill::Easy, Backfill::Disabled, Backfill::Conservative]).unwrap(),
        preempt_exempt_time: *rng.choose(&[0, 600]).unwrap(),
        ..common_policy(rng)
    }
}

fn apply_changes(rng: &mut Rng, harness: &mut Harness, step: usize) {
    for change in [Change::Advance(rng.number(120)), random_change(rng, harness)] {
        harness.apply_change(step, &change);
    }
}

macro_rules! walks {
    ($($name:ident: $part:literal),*) => {
        $(#[test]
        fn $name() {
            let (walks, steps, _) = walk_sizes();
            (0..walks).for_each(|number| walk($part * walks + number, steps, common_policy));
        })*
    };
}

// Parts run in parallel.
walks! { walks_1: 0, walks_2: 1, walks_3: 2, walks_4: 3, walks_5: 4, walks_6: 5, walks_7: 6, walks_8: 7 }

#[test]
fn long_walk() {
    walk(999_998, walk_sizes().2, common_policy);
}

#[test]
fn second_long_walk() {
    walk(999_999, walk_sizes().2, common_policy);
}

#[test]
fn walks_with_rare_policies() {
    let (walks, steps, _) = walk_sizes();
    (0..2 * walks).for_each(|number| walk(900_000 + number, steps, rare_policy));
}
