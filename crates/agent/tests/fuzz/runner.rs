//! Runs a fuzz target.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::mutate::Rng;

/// A description of the outcome of an input, from a small set and independent of the input's text.
pub type Signature = String;

/// Duration of a run in seconds. Without it the number of inputs is fixed.
const SECONDS_VARIABLE: &str = "ODC_FUZZ_SECONDS";
/// Seed of the random number generator. A run prints its seed, so that it can be repeated.
const SEED_VARIABLE: &str = "ODC_FUZZ_SEED";
/// A larger corpus slows the run down.
const MAX_CORPUS: usize = 4096;

pub struct Runner {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    dictionary: &'static [&'static str],
    inputs: u64,
}

impl Runner {
    /// Creates a runner with the corpus of that name and a number of new inputs.
    pub fn new(name: &'static str, inputs: u64) -> Self {
        let mut files: Vec<PathBuf> =
            fs::read_dir(corpus_dir(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        Self { name, seeds: files.iter().map(|file| fs::read(file).unwrap()).collect(), dictionary: &[], inputs }
    }

    pub fn seeds(mut self, more: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.seeds.extend(more);
        self
    }

    /// Sets strings that are inserted at random positions.
    pub fn dictionary(mut self, dictionary: &'static [&'static str]) -> Self {
        self.dictionary = dictionary;
        self
    }

    /// Runs the target. An input that makes it panic is added to the corpus.
    pub fn run(self, target: impl Fn(&[u8]) -> Signature + RefUnwindSafe) {
        let Self { name, seeds: mut corpus, dictionary, inputs } = self;
        assert!(!corpus.is_empty(), "the corpus is empty");
        let duration = env_number(SECONDS_VARIABLE).map(Duration::from_secs);
        // Short runs are deterministic.
        let default_seed = if duration.is_some() { u64::from(std::process::id()) << 32 } else { 1 };
        let mut rng = Rng::new(env_number(SEED_VARIABLE).unwrap_or(default_seed));
        let (started, mut signatures) = (Instant::now(), BTreeSet::new());
        let run = |input: &[u8]| catch_unwind(|| target(input)).unwrap_or_else(|_| report_panic(name, input));
        for input in &corpus {
            signatures.insert(run(input));
        }
        let mut count = 0_u64;
        while duration.map_or(count < inputs, |duration| started.elapsed() < duration) {
            count += 1;
            let input = rng.mutate(&corpus, dictionary);
            if signatures.insert(run(&input)) && corpus.len() < MAX_CORPUS {
                corpus.push(input);
            }
        }
        eprintln!("{name}: {count} inputs, seed {}, {} signatures", rng.seed(), signatures.len());
        assert!(signatures.len() > 3, "too few signatures: {signatures:?}");
    }
}

fn env_number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().unwrap())
}

fn corpus_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name)
}

fn report_panic(name: &str, input: &[u8]) -> Signature {
    let hash = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let file = corpus_dir(name).join(format!("found-{hash:016x}"));
    fs::write(&file, input).unwrap();
    panic!("{name} panicked; the input was saved as {}", file.display());
}
