//! Random mutations of inputs.

/// Marsaglia's xorshift: deterministic for a seed on every platform.
pub struct Rng {
    seed: u64,
    state: u64,
}

const MAX_INPUT_BYTES: usize = 64 << 10;
const BOUNDARY_BYTES: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b'\\'];

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self { seed, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap_or_default() % limit.max(1)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    /// Returns a mutated copy of a random input of the corpus.
    pub fn mutate(&mut self, corpus: &[Vec<u8>], dictionary: &[&str]) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(4) {
            self.mutate_once(&mut input, corpus, dictionary);
        }
        input.truncate(MAX_INPUT_BYTES);
        input
    }

    fn mutate_once(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>], dictionary: &[&str]) {
        let at = self.below(input.len() + 1);
        let end = at + self.below((input.len() - at).min(64) + 1);
        match self.below(9) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.byte(),
            2 => input.insert(at, BOUNDARY_BYTES[self.below(BOUNDARY_BYTES.len())]),
            3 => drop(input.drain(at..end)),
            4 => {
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
            5 => input.truncate(at),
            // Splices the end of another input.
            6 => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len() + 1);
                input.splice(at.., other[from..].iter().copied());
            }
            7 if !dictionary.is_empty() => {
                let word = dictionary[self.below(dictionary.len())].as_bytes().to_vec();
                let end = if self.below(2) == 0 { at } else { end };
                input.splice(at..end, word);
            }
            // A 32-bit integer, as in length fields.
            _ if input.len() >= 4 => {
                let at = self.below(input.len() - 3);
                let number = [0, 1, u32::MAX, 1 << 31, 1 << 16, u32::try_from(input.len()).unwrap_or(0)][self.below(6)];
                input[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
            _ => input.push(self.byte()),
        }
    }
}
