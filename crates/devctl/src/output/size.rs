//! Formatting of amounts of bytes.

use odc_api::quantity::Quantity;

/// Formats bytes with two significant digits and a suffix of Kubernetes, rounded up: `17`, `3.2Gi`, `120Mi`.
pub fn format_bytes(bytes: u64) -> String {
    const SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    // Tenths, because those of an exbibyte overflow 64 bits.
    let tenths = |unit: u128| (u128::from(bytes) * 10).div_ceil(unit);
    let mut unit = 1024_u128;
    for suffix in SUFFIXES {
        // Rounded up, 1023.95Ki would be 1024Ki.
        let rounded = tenths(unit);
        if rounded < 100 {
            return format!("{}.{}{suffix}", rounded / 10, rounded % 10);
        }
        let whole = rounded.div_ceil(10);
        if whole < 1024 {
            return format!("{whole}{suffix}");
        }
        unit *= 1024;
    }
    format!("{}Ei", u128::from(bytes).div_ceil(1 << 60))
}

/// Formats a quantity of bytes.
pub fn format_quantity(quantity: Quantity) -> String {
    format_bytes(u64::try_from(quantity.value()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_significant_digits() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0Ki"),
            (1025, "1.1Ki"),
            (10 << 10, "10Ki"),
            ((1 << 20) - 1, "1.0Mi"),
            (3 << 29, "1.5Gi"),
            (120 << 20, "120Mi"),
            (u64::MAX, "16Ei"),
        ] {
            assert_eq!(format_bytes(bytes), text, "{bytes}");
        }
        assert_eq!(format_quantity("3277Mi".parse().unwrap()), "3.3Gi");
    }
}
