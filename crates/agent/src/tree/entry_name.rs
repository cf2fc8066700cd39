//! File names as text.

/// Escapes a path for terminals and JSON: backslashes, control characters, characters that change the direction of text,
/// and bytes that are not UTF-8. The result identifies the path.
pub(crate) fn escape(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        for symbol in chunk.valid().chars() {
            match symbol {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                symbol if symbol.is_control() || is_direction_mark(symbol) => {
                    text.push_str(&symbol.escape_unicode().to_string());
                }
                symbol => text.push(symbol),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

fn is_direction_mark(symbol: char) -> bool {
    matches!(symbol, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_names_are_escaped() {
        assert_eq!(escape("dir/file é".as_bytes()), "dir/file é");
        assert_eq!(escape(b"a\nb\tc\\d"), "a\\nb\\tc\\\\d");
        assert_eq!(escape(b"\x1b[2J\xff\xfe"), "\\u{1b}[2J\\xff\\xfe");
        assert_eq!(escape("\u{202e}gpj.exe".as_bytes()), "\\u{202e}gpj.exe");
    }
}
