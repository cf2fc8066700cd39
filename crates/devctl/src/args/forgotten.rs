//! The `--` before a command for a server, which people forget.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The same error, with what was probably meant where a word was too many and a command could have followed.
pub fn told(mut error: clap::Error) -> clap::Error {
    let takes_a_command = error.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains("COMMAND>..."));
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument && takes_a_command => {
            word.clone()
        }
        _ => return error,
    };
    let tip = format!("a command for the server comes after two dashes: -- {word}");
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> String {
        told(crate::args::command().try_get_matches_from(words).unwrap_err()).to_string()
    }

    #[test]
    fn a_command_without_its_dashes_is_recognised() {
        for words in [
            ["devctl", "submit", "python", "train.py"],
            ["devctl", "exec", "box", "python"],
            ["devctl", "ssh", "box", "python"],
        ] {
            assert!(said(&words).contains("after two dashes: -- python"), "{}", said(&words));
        }
    }

    #[test]
    fn other_mistakes_are_left_as_they_are() {
        assert!(!said(&["devctl", "list", "--nonsense"]).contains("two dashes"));
        assert!(!said(&["devctl", "nonsense"]).contains("two dashes"));
    }
}
