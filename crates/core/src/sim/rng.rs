//! Pseudo-random numbers for generated traces: the same for the same seed, on all machines.

/// A xorshift generator. The seed must not be 0.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }

    /// Returns a number below `limit` as an amount or a time.
    pub fn number(&mut self, limit: u32) -> i64 {
        i64::try_from(self.below(limit.into())).unwrap_or_default()
    }

    pub fn choose<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let position = self.below(u64::try_from(all.len()).ok()?);
        all.get(usize::try_from(position).ok()?)
    }
}
