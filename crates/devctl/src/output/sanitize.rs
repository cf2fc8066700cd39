//! Removes control characters from untrusted text: a message, node name or log line could move the cursor or change the
//! title of the terminal.

use std::borrow::Cow;

use super::style;

/// Printed in place of a control character.
const REPLACEMENT: char = '\u{fffd}';

/// Replaces control characters except newlines, tabs and devctl's own SGR sequences. Foreign SGR sequences, which are
/// common in logs, are removed.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, character)) = rest.char_indices().find(|(_, character)| is_control(*character)) {
        safe.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(sgr) = style::own_sgr_prefix(rest) {
            safe.push_str(sgr);
            rest = &rest[sgr.len()..];
        } else if let Some(length) = foreign_sgr(rest) {
            rest = &rest[length..];
        } else {
            safe.push(REPLACEMENT);
            rest = &rest[character.len_utf8()..];
        }
    }
    safe.push_str(rest);
    Cow::Owned(safe)
}

/// Escapes control characters in JSON. `serde_json` does so only for those below 0x20.
pub(super) fn sanitize_json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let escaped = |character: char| {
        if is_control(character) { format!("\\u{:04x}", u32::from(character)) } else { character.to_string() }
    };
    Cow::Owned(text.chars().map(escaped).collect())
}

/// Replaces all control characters, newlines and tabs included, by spaces.
pub(super) fn single_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

fn is_control(character: char) -> bool {
    character.is_control() && !matches!(character, '\n' | '\t')
}

/// Returns the length of the SGR sequence at the start of a text.
fn foreign_sgr(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\x1b[")?;
    let end = numbers.find(|character: char| !character.is_ascii_digit() && character != ';')?;
    numbers[end..].starts_with('m').then_some("\x1b[".len() + end + "m".len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::style::{RED, paint};

    #[test]
    fn only_own_sgr_sequences_are_kept() {
        let own = paint(RED, "broken");
        assert_eq!(sanitize(&own), own);
        assert_eq!(sanitize("a\nb\tc"), "a\nb\tc");
        assert_eq!(sanitize("\x1b[35;1mpurple\x1b[0m"), "purple\x1b[0m");
        for (text, expected) in [
            ("a\x1b[2Jb", "a\u{fffd}[2Jb"),
            ("\x1b]0;title\x07", "\u{fffd}]0;title\u{fffd}"),
            ("over\rwritten", "over\u{fffd}written"),
            ("\u{9b}2J", "\u{fffd}2J"),
            ("\x1b[", "\u{fffd}["),
        ] {
            assert_eq!(sanitize(text), expected, "{text:?}");
        }
    }

    #[test]
    fn json_round_trips_control_characters() {
        let text = "a\u{9b}b\u{7f}\x1b";
        let json = serde_json::to_string(text).unwrap();
        let safe = sanitize_json(&json);
        assert!(!safe.chars().any(char::is_control), "{safe:?}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), text);
    }

    #[test]
    fn yaml_escapes_control_characters() {
        let text = "a\x1b[2Jb\u{9b}c\u{7f}\nd";
        let yaml = serde_saphyr::to_string(&serde_json::json!({"logTail": text})).unwrap();
        assert!(!yaml.chars().any(is_control), "{yaml:?}");
        let back: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(back["logTail"], text);
    }
}
