//! A million random steps: servers come, leave early, are extended, are asked to leave; nodes fail, restart, are used by
//! others; quotas change. Nothing is ever given twice and no quota exceeded, no planned start moves for no reason, and a
//! plan that was carried out leaves nothing to decide.

use odc_core::scheduler::Policy;
use odc_core::sim::Dice;

use super::change::{Change, random_change, start};
use super::harness::{Effort, Harness};

/// Of each of the eight walks.
fn steps() -> usize {
    match Effort::asked() {
        Effort::Quick => 2_000,
        Effort::Whole => 125_000,
        Effort::Full => 1_250_000,
    }
}

/// Walks from a number. `ODC_SEED` makes other walks of all.
fn walk(number: u64) {
    let seed = std::env::var("ODC_SEED").map_or(0, |seed| seed.parse::<u64>().unwrap());
    let seed = (seed * 8 + number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    if let Some((step, wrong)) = go(seed, steps()).1 {
        let (before, _) = go(seed, step);
        panic!("step {step} of seed {seed}: {wrong}\n{}", before.fewest().unwrap_or(before).facts());
    }
}

/// Makes some steps. Says in which one something went wrong, and what.
fn go(seed: u64, steps: usize) -> (Harness, Option<(usize, String)>) {
    let (mut dice, mut harness) = (Dice(seed), start(Policy { depth: 6, ..Policy::default() }));
    for step in 0..steps {
        happen(&mut dice, &mut harness, step);
        if let Err(wrong) = harness.live(step % 4 == 0) {
            return (harness, Some((step, wrong)));
        }
    }
    happen(&mut dice, &mut harness, steps);
    (harness, None)
}

fn happen(dice: &mut Dice, harness: &mut Harness, step: usize) {
    for change in [Change::Pass(dice.number(120)), random_change(dice, harness)] {
        harness.happen(step, &change);
    }
}

macro_rules! walks {
    ($($name:ident: $number:literal),*) => {
        $(#[test]
        fn $name() {
            walk($number);
        })*
    };
}

walks! { walk_1: 1, walk_2: 2, walk_3: 3, walk_4: 4, walk_5: 5, walk_6: 6, walk_7: 7, walk_8: 8 }
