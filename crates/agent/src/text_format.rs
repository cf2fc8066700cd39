//! Text for terminals: sizes, suggested commands, and removal of control characters.

/// Returns the command by which a user extends the server. The duration is an example; without one, devctl prompts for it.
pub fn extend_command(server: &str) -> String {
    format!("devctl extend {server} 2h")
}

/// Returns a size such as `17 B`, `1.5 GiB` or `120 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = bytes.ilog2() / 10;
    let unit = UNITS[usize::try_from(power).unwrap_or(1) - 1];
    let shift = 10 * power;
    let whole = bytes >> shift;
    // In 128 bits: the remainder of an exbibyte times ten overflows 64 bits.
    let tenth = (u128::from(bytes - (whole << shift)) * 10) >> shift;
    if whole < 10 { format!("{whole}.{tenth} {unit}") } else { format!("{whole} {unit}") }
}

/// Replaces control characters other than tabs with U+FFFD, so that `line` stays on one line and contains no terminal
/// escape sequence.
pub fn sanitize_line(line: &str) -> String {
    line.chars().map(|symbol| if symbol.is_control() && symbol != '\t' { '\u{fffd}' } else { symbol }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_significant_digits() {
        for (bytes, expect) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 << 10, "10 KiB"),
            ((1 << 20) - 1, "1023 KiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "15 EiB"),
        ] {
            assert_eq!(size(bytes), expect);
        }
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(sanitize_line("a\x1b[2J\r\nb\tc\u{9b}"), "a\u{fffd}[2J\u{fffd}\u{fffd}b\tc\u{fffd}");
    }
}
