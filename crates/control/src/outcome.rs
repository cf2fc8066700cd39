//! How a process ended.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::bounded::Text;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    Code(i32),
    Signal(i32),
    /// The timeout expired and the process was killed.
    TimedOut,
    /// The process could not be started. `code` is the exit code a shell would have returned.
    NotStarted {
        code: i32,
        reason: Text,
    },
}

impl Outcome {
    pub fn not_found(reason: impl AsRef<str>) -> Self {
        Self::NotStarted { code: 127, reason: Text::new(reason) }
    }

    /// Returns the outcome of an attempt to start `program` that failed with `error`.
    pub fn failed_to_start(program: &str, error: &io::Error) -> Self {
        let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        Self::NotStarted { code, reason: Text::new(format!("{program}: {error}")) }
    }

    pub fn is_success(&self) -> bool {
        *self == Self::Code(0)
    }

    /// Returns the exit code as a shell would report it.
    pub fn exit_code(&self) -> u8 {
        let code = match self {
            Self::Code(code) | Self::NotStarted { code, .. } => *code,
            Self::Signal(signal) => 128 + signal,
            Self::TimedOut => 124,
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was terminated by signal {signal}"),
            Self::TimedOut => f.write_str("timed out and was killed"),
            Self::NotStarted { reason, .. } => write!(f, "could not be started: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_follows_shell_convention() {
        let denied = Outcome::failed_to_start("x", &io::ErrorKind::PermissionDenied.into());
        for (outcome, code) in [
            (Outcome::Code(0), 0),
            (Outcome::Code(255), 255),
            (Outcome::Signal(15), 143),
            (Outcome::TimedOut, 124),
            (Outcome::not_found("x"), 127),
            (denied, 126),
        ] {
            assert_eq!(outcome.exit_code(), code, "{outcome}");
        }
    }
}
