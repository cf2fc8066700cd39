//! Names of servers.

use odc_api::name::ServerName;

use crate::failure::{Failure, Result};

/// Two words that can be said on the phone, such as `brave-otter`.
pub fn generated() -> ServerName {
    loop {
        let name = petname::petname(2, "-").and_then(|name| name.parse().ok());
        // All its words are short and plain; should one not be, the next is.
        if let Some(name) = name {
            return name;
        }
    }
}

/// What was typed as a name that host names may have.
pub fn sanitised(typed: &str) -> Result<ServerName> {
    let plain: String = typed
        .to_lowercase()
        .chars()
        .map(|letter| if letter.is_ascii_lowercase() || letter.is_ascii_digit() { letter } else { '-' })
        .collect();
    let mut words: Vec<&str> = plain.split('-').filter(|word| !word.is_empty()).collect();
    // It must begin with a letter.
    while words.first().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
        words.remove(0);
    }
    let joined = words.join("-");
    let name = joined.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let short: String = name.chars().take(ServerName::LONGEST).collect();
    short.trim_end_matches('-').parse().map_err(|_| {
        Failure::usage(format!("{typed:?} cannot be a name"))
            .advise("Use small letters, digits and '-', and begin with a letter.")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_made_fit_for_hosts() {
        for (typed, name) in [
            ("box", "box"),
            ("My Box!", "my-box"),
            ("a__b", "a-b"),
            ("2nd-try", "nd-try"),
            ("7-seas", "seas"),
            ("-x-", "x"),
        ] {
            assert_eq!(sanitised(typed).unwrap().as_str(), name, "{typed}");
        }
        for bad in ["", "---", "42", "日本"] {
            assert!(sanitised(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn generated_names_are_names() {
        assert!((0..200).map(|_| generated()).all(|name| name.as_str().contains('-')));
    }

    proptest! {
        #[test]
        fn what_is_made_of_a_text_is_a_name_or_refused(text in "\\PC{0,60}") {
            if let Ok(name) = sanitised(&text) {
                prop_assert_eq!(sanitised(name.as_str()).unwrap(), name);
            }
        }
    }
}
