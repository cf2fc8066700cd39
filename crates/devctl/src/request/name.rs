//! Server names.

use odc_api::name::ServerName;

use crate::error::{Error, Result};

/// Generates a name of two words, such as `brave-otter`.
pub fn generate() -> ServerName {
    loop {
        let name = petname::petname(2, "-").and_then(|name| name.parse().ok());
        // The word list has valid names only; retry in case an update changes that.
        if let Some(name) = name {
            return name;
        }
    }
}

/// Turns typed text into a valid host name.
pub fn sanitize(typed: &str) -> Result<ServerName> {
    let plain: String = typed
        .to_lowercase()
        .chars()
        .map(|character| if character.is_ascii_lowercase() || character.is_ascii_digit() { character } else { '-' })
        .collect();
    let mut words: Vec<&str> = plain.split('-').filter(|word| !word.is_empty()).collect();
    // A name must start with a letter.
    while words.first().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
        words.remove(0);
    }
    let joined = words.join("-");
    let name = joined.trim_start_matches(|character: char| character.is_ascii_digit());
    let truncated: String = name.chars().take(ServerName::MAX_LENGTH).collect();
    truncated.trim_end_matches('-').parse().map_err(|_| {
        Error::usage(format!("invalid name {typed:?}"))
            .with_hint("use lowercase letters, digits and '-', starting with a letter")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sanitize_yields_host_names() {
        for (typed, name) in [
            ("box", "box"),
            ("My Box!", "my-box"),
            ("a__b", "a-b"),
            ("2nd-try", "nd-try"),
            ("7-seas", "seas"),
            ("-x-", "x"),
        ] {
            assert_eq!(sanitize(typed).unwrap().as_str(), name, "{typed}");
        }
        for invalid in ["", "---", "42", "日本"] {
            assert!(sanitize(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn generated_names_have_two_words() {
        assert!((0..200).map(|_| generate()).all(|name| name.as_str().contains('-')));
    }

    proptest! {
        #[test]
        fn sanitize_is_idempotent(text in "\\PC{0,60}") {
            if let Ok(name) = sanitize(&text) {
                prop_assert_eq!(sanitize(name.as_str()).unwrap(), name);
            }
        }
    }
}
