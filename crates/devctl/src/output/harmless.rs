//! Text that others wrote, made safe for a terminal: a message, a node's name or the end of a log could move the cursor,
//! change the title or worse.

use std::borrow::Cow;

use super::style;

/// What stands for a letter that would act instead of being read.
const STAND_IN: char = '\u{fffd}';

/// The same text without anything that acts on a terminal, but for line breaks, tabs and the marks of our own colours.
/// Colours of others are left out without a trace: logs are full of them.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, letter)) = rest.char_indices().find(|(_, letter)| acts(*letter)) {
        safe.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(mark) = style::mark_at(rest) {
            safe.push_str(mark);
            rest = &rest[mark.len()..];
        } else if let Some(colour) = foreign_colour(rest) {
            rest = &rest[colour..];
        } else {
            safe.push(STAND_IN);
            rest = &rest[letter.len_utf8()..];
        }
    }
    safe.push_str(rest);
    Cow::Owned(safe)
}

/// JSON has its own way to write them, which programs read back. Its writer knows it for most, not for all.
pub(super) fn in_json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let escaped =
        |letter: char| if acts(letter) { format!("\\u{:04x}", u32::from(letter)) } else { letter.to_string() };
    Cow::Owned(text.chars().map(escaped).collect())
}

fn acts(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\n' | '\t')
}

/// How long the mark of a colour at the beginning of this text is.
fn foreign_colour(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\x1b[")?;
    let end = numbers.find(|letter: char| !letter.is_ascii_digit() && letter != ';')?;
    numbers[end..].starts_with('m').then_some("\x1b[".len() + end + "m".len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::style::{RED, painted};

    #[test]
    fn only_our_own_marks_act() {
        let ours = painted(RED, "broken");
        assert_eq!(harmless(&ours), ours);
        assert_eq!(harmless("a\nb\tc"), "a\nb\tc");
        assert_eq!(harmless("\x1b[35;1mpurple\x1b[0m"), "purple\x1b[0m");
        for (evil, left) in [
            ("a\x1b[2Jb", "a\u{fffd}[2Jb"),
            ("\x1b]0;title\x07", "\u{fffd}]0;title\u{fffd}"),
            ("over\rwritten", "over\u{fffd}written"),
            ("\u{9b}2J", "\u{fffd}2J"),
            ("\x1b[", "\u{fffd}["),
        ] {
            assert_eq!(harmless(evil), left, "{evil:?}");
        }
    }

    #[test]
    fn programs_read_back_what_was_said() {
        let text = "a\u{9b}b\u{7f}\x1b";
        let json = serde_json::to_string(text).unwrap();
        let safe = in_json(&json);
        assert!(!safe.chars().any(char::is_control), "{safe:?}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), text);
    }

    /// What a node and a log said, in YAML: its writer escapes it.
    #[test]
    fn yaml_has_no_raw_ones_either() {
        let text = "a\x1b[2Jb\u{9b}c\u{7f}\nd";
        let yaml = serde_saphyr::to_string(&serde_json::json!({"logTail": text})).unwrap();
        assert!(!yaml.chars().any(acts), "{yaml:?}");
        let back: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(back["logTail"], text);
    }
}
