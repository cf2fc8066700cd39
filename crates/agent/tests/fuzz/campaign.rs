//! A run of one target.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::mutate::Chance;

/// A target's own words for what an input did: few, and none of them from the input itself.
pub type Happened = String;

/// How long to go on, in seconds; without it there is a fixed number of inputs.
const SECONDS: &str = "ODC_FUZZ_SECONDS";
/// Where chance begins; a run says its own, so that it can be repeated.
const SEED: &str = "ODC_FUZZ_SEED";
/// More are kept only by luck, and slow everything down.
const MOST_KEPT: usize = 4096;

pub struct Campaign {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    words: &'static [&'static str],
    inputs: u64,
}

impl Campaign {
    /// With the kept inputs of that name, and so many new ones.
    pub fn new(name: &'static str, inputs: u64) -> Self {
        let mut files: Vec<PathBuf> = fs::read_dir(corpus(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        Self { name, seeds: files.iter().map(|file| fs::read(file).unwrap()).collect(), words: &[], inputs }
    }

    pub fn seeds(mut self, more: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.seeds.extend(more);
        self
    }

    /// That mean something to the target, to be put in anywhere.
    pub fn words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// A panic is a find: the input is kept, so that it is tried first from then on.
    pub fn run(self, target: impl Fn(&[u8]) -> Happened + RefUnwindSafe) {
        let Self { name, seeds: mut kept, words, inputs } = self;
        assert!(!kept.is_empty(), "there is nothing to begin with");
        let long = number(SECONDS).map(Duration::from_secs);
        // The usual tests are the same each time; in a long run, time is the chance.
        let fixed = if long.is_some() { u64::from(std::process::id()) << 32 } else { 1 };
        let mut chance = Chance::new(number(SEED).unwrap_or(fixed));
        let (begun, mut seen) = (Instant::now(), BTreeSet::new());
        let attempt = |input: &[u8]| catch_unwind(|| target(input)).unwrap_or_else(|_| found(name, input));
        for input in &kept {
            seen.insert(attempt(input));
        }
        let mut tried = 0_u64;
        while long.map_or(tried < inputs, |long| begun.elapsed() < long) {
            tried += 1;
            let input = chance.changed(&kept, words);
            if seen.insert(attempt(&input)) && kept.len() < MOST_KEPT {
                kept.push(input);
            }
        }
        eprintln!("{name}: {tried} inputs from {}, {} different ends", chance.seed(), seen.len());
        assert!(seen.len() > 3, "nothing ever happens here: {seen:?}");
    }
}

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().unwrap())
}

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name)
}

fn found(name: &str, input: &[u8]) -> Happened {
    let sum = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let file = corpus(name).join(format!("found-{sum:016x}"));
    fs::write(&file, input).unwrap();
    panic!("{name} does not stand this input, which is kept as {}", file.display());
}
