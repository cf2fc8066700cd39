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

fn begin() -> Harness {
    start(Policy { depth: 6, ..Policy::default() })
}

/// Walks from a number. `ODC_SEED` makes other walks of all.
fn walk(number: u64) {
    let seed = std::env::var("ODC_SEED").map_or(0, |seed| seed.parse::<u64>().unwrap());
    let mut dice = Dice((seed * 8 + number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut harness = begin();
    let mut happened = Vec::new();
    for step in 0..steps() {
        for change in [Change::Pass(dice.number(120)), random_change(&mut dice, &harness)] {
            harness.happen(happened.len(), &change);
            happened.push(change);
        }
        if let Err(wrong) = harness.live(step % 8 == 0) {
            let few = fewest(&happened);
            panic!("walk {number} of seed {seed}, step {step}: {wrong}\n{} changes are enough: {few:#?}", few.len());
        }
    }
}

/// The last changes that go wrong by themselves, each of them needed; all if only all do.
fn fewest(happened: &[Change]) -> Vec<Change> {
    let goes_wrong = |changes: &[Change]| {
        let mut harness = begin();
        changes.iter().enumerate().any(|(number, change)| {
            harness.happen(number, change);
            harness.live(true).is_err()
        })
    };
    let tails = [20, 50, 100, 200, 500, 2_000].map(|most| &happened[happened.len().saturating_sub(most)..]);
    let mut few = tails.into_iter().find(|tail| goes_wrong(tail)).unwrap_or(happened).to_vec();
    let mut at = 0;
    while at < few.len() {
        let mut fewer = few.clone();
        fewer.remove(at);
        if goes_wrong(&fewer) {
            few = fewer;
            at = 0;
        } else {
            at += 1;
        }
    }
    few
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
