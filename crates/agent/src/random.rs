//! Random numbers from the kernel.

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns `BYTES` random bytes in hexadecimal.
pub fn hex<const BYTES: usize>() -> String {
    bytes::<BYTES>().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn u32() -> u32 {
    u32::from_ne_bytes(bytes())
}

fn bytes<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0_u8; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        // For a buffer of this size, the only possible error is an interrupt before the pool is initialized.
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty()).unwrap_or_default();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn values_differ() {
        assert_eq!(hex::<24>().len(), 48);
        assert_ne!(hex::<24>(), hex::<24>());
    }
}
