//! Hints for common mistakes on the command line.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Adds a hint to the error for an unexpected argument if the command takes a remote command after `--`.
pub fn suggest_double_dash(mut error: clap::Error) -> clap::Error {
    let takes_command = error.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains("COMMAND>..."));
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) if error.kind() == ErrorKind::UnknownArgument && takes_command => {
            argument.clone()
        }
        _ => return error,
    };
    let hint = format!("to run a command in the server, put it after two dashes: -- {argument}");
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text(arguments: &[&str]) -> String {
        suggest_double_dash(crate::cli::command().try_get_matches_from(arguments).unwrap_err()).to_string()
    }

    #[test]
    fn command_without_double_dash_gets_a_hint() {
        for arguments in [
            ["devctl", "submit", "python", "train.py"],
            ["devctl", "exec", "box", "python"],
            ["devctl", "ssh", "box", "python"],
        ] {
            let text = error_text(&arguments);
            assert!(text.contains("after two dashes: -- python"), "{text}");
        }
    }

    #[test]
    fn other_errors_are_unchanged() {
        assert!(!error_text(&["devctl", "list", "--nonsense"]).contains("two dashes"));
        assert!(!error_text(&["devctl", "nonsense"]).contains("two dashes"));
    }
}
