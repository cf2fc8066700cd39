//! Numbers without pattern for traces and worlds that are made up: the same for the same seed, on every machine.

/// Begins with any number but 0.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides.max(1)
    }

    /// The same as an amount or a time.
    pub fn number(&mut self, sides: u32) -> i64 {
        i64::try_from(self.roll(sides.into())).unwrap_or_default()
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let at = self.roll(u64::try_from(all.len()).ok()?);
        all.get(usize::try_from(at).ok()?)
    }
}
