//! A million random steps from more than a thousand beginnings: servers come, leave early, are extended, are asked to
//! leave; nodes fail, restart, are used by others; quotas change, and policies differ. Nothing is ever given twice and no
//! quota exceeded, no planned start moves for no reason, every overtaking has its right, and a plan that was carried out
//! leaves nothing to decide.

use odc_core::scheduler::{Backfill, Policy};
use odc_core::sim::Dice;

use super::change::{Change, random_change, start};
use super::harness::{Effort, Harness};
use super::live::Also;

/// Walks in each of the eight parts, and the steps of each; and the steps of the two long ones.
fn size() -> (u64, usize, usize) {
    match Effort::asked() {
        Effort::Quick => (6, 250, 1_000),
        Effort::Whole => (125, 1_000, 20_000),
        Effort::Full => (1_250, 1_000, 500_000),
    }
}

/// Walks from a number. `ODC_SEED` makes other walks of all.
fn walk(number: u64, steps: usize, rules: Rules) {
    let seed = std::env::var("ODC_SEED").map_or(0, |seed| seed.parse::<u64>().unwrap());
    let seed = (seed * 1_000_000 + number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    if let Some((step, wrong)) = go(seed, steps, rules).1 {
        let (before, _) = go(seed, step, rules);
        panic!("step {step} of seed {seed}: {wrong}\n{}", before.fewest().unwrap_or(before).facts());
    }
}

/// Makes some steps. Says in which one something went wrong, and what.
fn go(seed: u64, steps: usize, rules: Rules) -> (Harness, Option<(usize, String)>) {
    let mut dice = Dice(seed);
    let mut harness = start(rules(&mut dice));
    for step in 0..steps {
        happen(&mut dice, &mut harness, step);
        if let Err(wrong) = harness.live(Also { second: step % 4 == 0, undelayed: step % 8 == 1 }) {
            return (harness, Some((step, wrong)));
        }
    }
    happen(&mut dice, &mut harness, steps);
    (harness, None)
}

type Rules = fn(&mut Dice) -> Policy;

/// Something that is a day by default happens in a walk, too.
fn policy(dice: &mut Dice) -> Policy {
    Policy {
        depth: *dice.pick(&[2, 6, 6, 100]).unwrap(),
        ageing: *dice.pick(&[3_600, 24 * 3_600]).unwrap(),
        half_life: *dice.pick(&[7_200, 7 * 24 * 3_600]).unwrap(),
        most_preemptions: *dice.pick(&[1, 3]).unwrap(),
        ..Policy::default()
    }
}

/// What few people set: others pass less often, and nobody is spared for having started lately.
fn rare_policy(dice: &mut Dice) -> Policy {
    Policy {
        backfill: *dice.pick(&[Backfill::First, Backfill::None, Backfill::Planned]).unwrap(),
        least_run: *dice.pick(&[0, 600]).unwrap(),
        ..policy(dice)
    }
}

fn happen(dice: &mut Dice, harness: &mut Harness, step: usize) {
    for change in [Change::Pass(dice.number(120)), random_change(dice, harness)] {
        harness.happen(step, &change);
    }
}

macro_rules! walks {
    ($($name:ident: $part:literal),*) => {
        $(#[test]
        fn $name() {
            let (walks, steps, _) = size();
            (0..walks).for_each(|number| walk($part * walks + number, steps, policy));
        })*
    };
}

// Parts run beside each other where there is more than one core.
walks! { walks_1: 0, walks_2: 1, walks_3: 2, walks_4: 3, walks_5: 4, walks_6: 5, walks_7: 6, walks_8: 7 }

#[test]
fn a_long_walk() {
    walk(999_998, size().2, policy);
}

#[test]
fn another_long_walk() {
    walk(999_999, size().2, policy);
}

#[test]
fn walks_by_rare_rules() {
    let (walks, steps, _) = size();
    (0..2 * walks).for_each(|number| walk(900_000 + number, steps, rare_policy));
}
