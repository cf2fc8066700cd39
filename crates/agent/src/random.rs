//! Numbers nobody can guess.

use rustix::rand::{GetRandomFlags, getrandom};

/// `BYTES` random bytes, as twice as many digits.
pub fn hex<const BYTES: usize>() -> String {
    let mut bytes = [0_u8; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        // The kernel refuses nothing of this size, and may only be interrupted.
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty()).unwrap_or_default();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn no_two_are_alike() {
        assert_eq!(hex::<24>().len(), 48);
        assert_ne!(hex::<24>(), hex::<24>());
    }
}
